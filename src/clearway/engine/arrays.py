"""Limits of arrays (`--array=1-100%4`): how many tasks of an array may hold devices or be about to get them.

A task has a slot from when nothing else blocks it until it ends or is blocked again. A task that is held, or waits for
a time or another job, has none and keeps nobody from having one.
"""

from clearway.model.ids import JobId
from clearway.model.jobs import ArrayMember, JobSpec
from clearway.model.plan import ReasonCode


class ArraySlots:
    """Which tasks have a slot, and which wait for one, in order of acceptance. Arrays without a limit are not noted."""

    __slots__ = ("_slots", "_waiting")

    def __init__(self) -> None:
        self._slots: dict[JobId, set[JobId]] = {}
        self._waiting: dict[JobId, list[JobId]] = {}

    def is_full_for(self, spec: JobSpec) -> bool:
        """Whether the task has no slot and its array has none left."""
        array = _limited(spec)
        if array is None:
            return False
        slots = self._slots.get(array.array, ())
        return spec.id not in slots and len(slots) >= array.parallel_max

    def note(self, spec: JobSpec, reason: ReasonCode | None) -> tuple[JobId, ...]:
        """The task waits (`reason` None) or is blocked; returns those that may have the slot that it left."""
        array = _limited(spec)
        if array is None:
            return ()
        slots = self._slots.setdefault(array.array, set())
        waiting = self._waiting.setdefault(array.array, [])
        if reason is ReasonCode.ARRAY_LIMIT:
            if spec.id not in waiting:
                waiting.append(spec.id)
                waiting.sort()
            return ()
        if spec.id in waiting:
            waiting.remove(spec.id)
        if reason is None:
            slots.add(spec.id)
            return ()
        return self._leave(array, spec.id)

    def end(self, spec: JobSpec) -> tuple[JobId, ...]:
        """The task is over; returns those that may have its slot."""
        array = _limited(spec)
        if array is None:
            return ()
        waiting = self._waiting.get(array.array, [])
        if spec.id in waiting:
            waiting.remove(spec.id)
        return self._leave(array, spec.id)

    def _leave(self, array: ArrayMember, job: JobId) -> tuple[JobId, ...]:
        slots = self._slots.get(array.array, set())
        if job not in slots:
            return ()
        slots.remove(job)
        return tuple(self._waiting.get(array.array, [])[: array.parallel_max - len(slots)])


def _limited(spec: JobSpec) -> ArrayMember | None:
    """The task's place in an array with a limit, None for any other job."""
    return spec.array if spec.array is not None and spec.array.parallel_max else None
