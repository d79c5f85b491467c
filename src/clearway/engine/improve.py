"""Steps 6 to 8 and 10 of the cycle: what to change about jobs that run, for those that wait."""

from typing import TYPE_CHECKING

from clearway.model.plan import Move

if TYPE_CHECKING:
    from clearway.engine.cycle import Planner


def improve_plan(planner: "Planner", moves: list[Move]) -> tuple[str, ...]:
    """Add moves of running jobs to a plan of starts; returns notes about what was considered."""
    del planner, moves
    return ()
