"""What is written down of a run, and what its end is judged by."""

from typing import TYPE_CHECKING

from clearway.adapters.local.keeper.contract import Progress
from clearway.adapters.local.keeper.host import NEVER, Purpose
from clearway.adapters.local.keeper.messages import Launch
from clearway.adapters.local.keeper.records import Asked, Started
from clearway.adapters.local.keeper.verdict import Traces

if TYPE_CHECKING:
    from clearway.adapters.local.keeper.runs import Run


def describe_start(run: "Run") -> Started:
    """What there is of it."""
    return Started(
        boot=run.host.boot,
        mark=run.mark,
        processes=tuple((pid, run.ticks[pid], rank) for pid, rank in run.mains.items()),
        started_ms=run.report.started_ms,
        resized_ms=run.report.resized_ms,
        suspended_ms=run.report.suspended_ms,
        began_ms=run.began_ms,
        done_ms=run.done_ms,
        limit_tick_ms=0 if run.limit_tick == NEVER else run.limit_tick,
        is_setup=run.stage == "setup",
    )


def is_partial(launch: Launch, started: Started) -> bool:
    """Whether the keeper was still waiting for processes that warm runners were to fork."""
    has_run = started.is_setup or started.started_ms or started.suspended_ms
    return not has_run and len(started.processes) < len(launch.replicas)


def describe_end(run: "Run", purpose: Purpose, by_tick: int) -> Asked:
    """Why, and until when, it is being ended."""
    return Asked(
        end=purpose.end,
        value=purpose.value,
        reason=purpose.reason,
        request=run.request,
        is_leave=run.leave is not None,
        was_signalled=run.was_signalled,
        by_tick_ms=by_tick,
    )


def describe_traces(run: "Run", said: Progress) -> Traces:
    """What is known of how it ended. said: by itself."""
    return Traces(
        purpose=run.purpose,
        is_alive=bool(run.mains),
        bad_status=run.bad_status,
        has_unknown_end=run.has_unknown_end,
        was_signalled=run.was_signalled,
        has_answered=run.request != "" and said.answers == run.request,
        is_out_of_memory=run.group is not None and run.group.count_oom_kills() > 0,
    )
