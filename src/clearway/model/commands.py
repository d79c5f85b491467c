"""What the kernel asks of the world. Imperative, frozen. Executors are idempotent by (job, generation) and refuse a
generation older than one they have seen.

Plan moves that the world must carry out are commands as they are: `Start`, `Stop`, `Suspend`, `Resize`, `Migrate`,
`Cap`. `Reserve` stays inside. `WakeAt` asks the driver for a `TimerFired`.
"""

from dataclasses import dataclass

from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send `TimerFired` at `at_ms`. A later `WakeAt` replaces an earlier one."""

    at_ms: int


Command = Start | Stop | Suspend | Resize | Migrate | Cap | WakeAt
