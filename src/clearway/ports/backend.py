"""What the shell must offer to carry out commands: a backend, of a real cluster or of a model of one.

A backend acts and reports; it never decides. Drivers call `perform` for each command in the order in which the kernel
gave them, and `observe` for what has happened since. Both never raise for what the world does: a node that died is an
event, not an exception.

What every backend keeps to:

- `Start(job, generation, allocation)`: runs all replicas on exactly these devices; `JobStarted` once all of them run.
  `JobPreparing` may come before, where something runs first that may take long.
  A run ends with `JobFinished`: by itself, or with `Outcome.TIMEOUT` at `limit_ms` after its `JobStarted`. A resize or
  migration does not begin the limit anew; a new start does. A start that cannot be carried out is a `JobStopped` with
  `StopCause.START_FAILED`, or `UNSTARTABLE` where the backend knows that the job is to blame and not the node.
- `Stop` without a cause ends the job for good: `JobFinished` with `Outcome.CANCELLED`. With a cause the job may save
  within `grace_ms`: `JobStopped(cause, saved_ms)` comes when it has left its devices, with the work that is safe.
- `Suspend`: `JobSuspended` once the devices are free; the work stays in memory, and a later `Start` goes on with it.
- `Resize` and `Migrate`: the job saves and moves to `allocation` under the new generation; `JobResized` once the
  devices that it left are free. Until then it holds the old and the new ones.
- Failures are reported as they are seen: `NodeDown` (or `DeviceDown`) and, in the same batch and in order of job id,
  one `JobStopped` for each job that ran there, with its last regular checkpoint. `NodeUp`, `DeviceUp` when it is over.
- A node whose jobs cannot be asked after is down, and they hold what they hold: no `JobStopped` comes with its
  `NodeDown`. `NodeUp` when it answers; then follows what became of them meanwhile.
- Idempotent by (job, generation): a command of a generation that is not newer than the last start, resize or migration
  seen is ignored, as is a stop of what is gone or of an older generation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from clearway.model.allocation import Allocation
from clearway.model.cluster import NodeSpec
from clearway.model.events import Event, JobStopped
from clearway.model.ids import JobId, NodeName, TenantName
from clearway.model.jobs import JobSpec, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.model.runs import RunSpec

BackendCommand = Start | Stop | Suspend | Resize | Migrate | Cap


class Backend(Protocol):
    """Carries out commands and reports truth, by the rules at the head of this module."""

    def perform(self, now_ms: int, command: BackendCommand) -> None:
        """Carry out `command`, or begin to. Its effects are reported by `observe`, never returned."""
        ...

    def observe(self, now_ms: int) -> Sequence[Event]:
        """What happened up to `now_ms` and was not yet reported, in the order in which it must be applied."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What the journal says a job holds when a control plane starts again.

    allocation: what it holds, or held when it was frozen; while it moves, what it had before. is_started: the journal
    says that it runs: if nothing of it is found, it was lost. Otherwise its start may never have been performed, and
    will be again. is_suspended: it was frozen and holds no devices. generation_before: of a job that was told to resize
    or migrate, or to go on where it was frozen, and has not confirmed it, the generation that it had: it may be found
    under either. 0 = none. lost: how it has to end, since a node or a device that it lies on is not among `nodes`;
    None = all are there.
    """

    job: JobId
    generation: int
    allocation: Allocation
    is_started: bool
    is_suspended: bool = False
    generation_before: int = 0
    lost: JobStopped | None = None

    @property
    def has_lost_devices(self) -> bool:
        """Whether devices that it lies on are missing, of nodes that are there."""
        return self.lost is not None and self.lost.cause is StopCause.DEVICE_FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a real backend may ask of its driver; every function is for the driver's own thread.

    launch: what a job is and how it is run. locate: an allocation as (node, device indices within the node) of each
    replica, in order. wake: call it, from any thread, when `observe` has something to report.
    """

    launch: Callable[[JobId], tuple[JobSpec, RunSpec]]
    locate: Callable[[Allocation], tuple[tuple[NodeName, tuple[int, ...]], ...]]
    wake: Callable[[], None]


class LastingBackend(Backend, Protocol):
    """A backend of real machines: it outlives its driver, and is found again by the next one.

    A driver calls `nodes` first, then `connect` once, then `perform` and `observe`. After `connect` the driver performs
    again what the journal asked for and the reports do not answer: commands are idempotent.

    What `observe` told is safe only when it is called again: a driver does so when all that it was told is on disk.
    Until then `connect` must be able to tell it anew, for the driver may have died in between.
    """

    def nodes(self) -> tuple[NodeSpec, ...]:
        """The nodes as they are now, in a fixed order."""
        ...

    def connect(self, now_ms: int, holdings: Sequence[Holding], world: World) -> Sequence[Event]:
        """Find again what runs. Reports what became of each of `holdings` while nobody looked; no event = it is as the
        journal says. What runs and is in none of them, or under an older generation, is ended; so is what is `lost`,
        before this returns, for the machine may be there under another name: the driver takes `lost` for the end of
        those of which no report tells another.

        Before these reports are applied, every node of `nodes` and each of its devices counts as up, whatever the
        journal says: what is down now is among the reports, as are the jobs that it stopped."""
        ...

    def progress(self) -> Mapping[JobId, float]:
        """What jobs have said of themselves since the last call, 0..1 of their work. For people to see: nothing is
        decided by it, and what was not asked for in time is lost."""
        ...

    def close(self) -> None:
        """Let go of the machines without touching what runs there."""
        ...


@runtime_checkable
class BoundingBackend(Protocol):
    """A backend whose site bounds tenants by rules of its own."""

    def bounds(self) -> Mapping[TenantName, tuple[str, ...]]:
        """What tenants are let have there, in words, for people to see; nothing is decided by it. From any thread."""
        ...


@runtime_checkable
class NotingBackend(Protocol):
    """A backend that has more to say of its machine, for people to see, once it is connected. From any thread."""

    notes: tuple[str, ...]
    """What it cannot enforce or limit there."""
    uuids: Mapping[tuple[NodeName, int], str]
    """Of devices that have one, by node and number."""
