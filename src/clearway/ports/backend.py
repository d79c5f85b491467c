"""What the shell must offer to carry out commands: a backend, of a real cluster or of a model of one.

A backend acts and reports; it never decides. Drivers call `perform` for each command in the order in which the kernel
gave them, and `observe` for what has happened since. Both never raise for what the world does: a node that died is an
event, not an exception.

What every backend keeps to:

- `Start(job, generation, allocation)`: runs all replicas on exactly these devices; `JobStarted` once all of them run.
  A run ends with `JobFinished`: by itself, or with `Outcome.TIMEOUT` at `limit_ms` after its `JobStarted`. A resize or
  migration does not begin the limit anew; a new start does. A start that cannot be carried out is a `JobStopped` with
  `StopCause.START_FAILED`.
- `Stop` without a cause ends the job for good: `JobFinished` with `Outcome.CANCELLED`. With a cause the job may save
  within `grace_ms`: `JobStopped(cause, saved_ms)` comes when it has left its devices, with the work that is safe.
- `Suspend`: `JobSuspended` once the devices are free; the work stays in memory, and a later `Start` goes on with it.
- `Resize` and `Migrate`: the job saves and moves to `allocation` under the new generation; `JobResized` once the
  devices that it left are free. Until then it holds the old and the new ones.
- Failures are reported as they are seen: `NodeDown` (or `DeviceDown`) and, in the same batch and in order of job id,
  one `JobStopped` for each job that ran there, with its last regular checkpoint. `NodeUp`, `DeviceUp` when it is over.
- Idempotent by (job, generation): a command of a generation that is not newer than the last start, resize or migration
  seen is ignored, as is a stop of what is gone or of an older generation.
"""

from collections.abc import Sequence
from typing import Protocol

from clearway.model.events import Event
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend

BackendCommand = Start | Stop | Suspend | Resize | Migrate | Cap


class Backend(Protocol):
    """Carries out commands and reports truth, by the rules at the head of this module."""

    def perform(self, now_ms: int, command: BackendCommand) -> None:
        """Carry out `command`, or begin to. Its effects are reported by `observe`, never returned."""
        ...

    def observe(self, now_ms: int) -> Sequence[Event]:
        """What happened up to `now_ms` and was not yet reported, in the order in which it must be applied."""
        ...
