"""What a book finds again of an earlier process: jobs that the journal says wait, or hold places. And how a run ends.

A mistake of ours about one job's pods ends that job, whose pods are left alone; all others are found.
"""

from collections.abc import Sequence

from clearway.adapters.kubernetes.entries import real_name
from clearway.adapters.kubernetes.gangs import Group, own_key
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.manifests import OwnJob
from clearway.adapters.kubernetes.offers import counted_for
from clearway.adapters.kubernetes.placing import BIND_REFUSED, NO_PLACE, RESTING, Placing
from clearway.adapters.kubernetes.runs import (
    Bundle,
    End,
    Ending,
    Launch,
    Place,
    Run,
    RunPhase,
    Scale,
    Slot,
    Unpark,
)
from clearway.model.events import JobCancelled, JobFinished
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome, Request, StopCause

NOT_WHOLE = "its pods are not all there yet"

HELD = (NOT_WHOLE, NO_PLACE, RESTING, BIND_REFUSED)
"""How reasons begin for which a book holds jobs of pods: what one of an earlier process held, this one lets go."""


class Recovering(Placing):
    """The part of the book that comes first."""

    def restore(self, now_ms: int, job: JobId, origin: str, size: int, message: str = "") -> None:
        """The job of `size` pods waits already, as the journal says; its pods are found by its origin. message: why it
        is held."""
        try:
            self._restore(now_ms, job, origin, size, message)
        except Exception:  # about these pods alone
            self._give_back_job(job, origin, JobCancelled(now_ms, job))

    def _restore(self, now_ms: int, job: JobId, origin: str, size: int, message: str) -> None:
        bundle = self._bundle_for(origin)
        if bundle is None or bundle.job is not None:
            self._events.append(JobCancelled(now_ms, job))
            return
        key = bundle.group.key
        bundle.job, bundle.key, bundle.size, bundle.is_held = job, origin, size, message.startswith(HELD)
        self.jobs[job] = bundle
        self._dirty[key] = None
        self._arrivals = [arrival for arrival in self._arrivals if arrival.group != key]

    def adopt(
        self,
        now_ms: int,
        job: JobId,
        generation: int,
        places: Sequence[Place],
        origin: str,
        limit_ms: int | None = None,
        *,
        is_started: bool,
        own: OwnJob | None = None,
        is_moving: bool = False,
        request: Request | None = None,
    ) -> None:
        """The journal says that the job holds these places: find its pods there. is_moving: it was told to leave them
        for others; it leaves, and starts again. A job whose pods cannot be judged ends, and they are left alone, as
        pods of others. request: see `Run`."""
        before, actions = len(self._events), len(self._actions)
        run = Run(job, generation, [Slot(*place) for place in places], now_ms, limit_ms=limit_ms, request=request)
        if is_started:
            run.phase, run.started_ms = RunPhase.RUNNING, now_ms
        try:
            self._adopt(now_ms, run, origin, own, is_moving=is_moving)
        except Exception:  # about these pods alone
            del self._events[before:], self._actions[actions:]
            for slot in run.slots:
                self.nodes.let_go(job, slot.node)
                self.nodes.ours.pop(slot.pod, None)
            self._give_back_job(job, origin, JobFinished(now_ms, job, generation, Outcome.CANCELLED))

    def _adopt(self, now_ms: int, run: Run, origin: str, own: OwnJob | None, *, is_moving: bool) -> None:
        job, places, crowds = run.job, run.slots, run.crowds
        bundle = self._find(job, origin, len(places)) if own is None else self._open(own)
        self._generations[job] = run.generation
        namespace, kind, uid = [*origin.partition("#")[0].split("/"), "", "", ""][:3]
        if is_moving and kind == "job":
            self._actions.append(Unpark(namespace, uid))
        if bundle is None:
            self._events.append(JobFinished(now_ms, job, run.generation, Outcome.CANCELLED))
            return
        bundle.run, is_started = run, run.phase is RunPhase.RUNNING
        if run.limit_ms is not None or own is not None:
            self._limited[job] = None
        if own is not None:
            bundle.own, bundle.size = own, len(places)
            if not is_started:
                self._actions.append(Launch(own, len(places)))
        elif not is_started and self._is_elastic(bundle):
            self._scale(bundle, job, [], len(places))
        lying: dict[str, list[str]] = {}
        for uid in bundle.members:
            pod = self.pods.get(uid)
            if pod is not None and pod.node:
                lying.setdefault(pod.node, []).append(uid)
        for slot in run.slots:
            self.nodes.hold(job, slot.node, slot.devices, crowds)
            there = lying.get(real_name(slot.node))
            if there:
                slot.pod = there.pop(0)
                self.nodes.ours[slot.pod] = counted_for(self.pods[slot.pod], run.request)
        if is_moving:
            self._stop(now_ms, bundle, StopCause.MIGRATED, "")

    def _open(self, own: OwnJob) -> Bundle:
        """The group of a submitted job's pods, of which there may be none yet."""
        key = own_key(own.namespace, own.job)
        bundle = self.bundles.setdefault(key, Bundle(Group(key, returns=True), 0))
        bundle.job, bundle.key, bundle.refused = own.job, key, ""
        self.jobs[own.job] = bundle
        self._dirty[key] = None
        return bundle

    def _give_back_job(self, job: JobId, origin: str, event: JobCancelled | JobFinished) -> None:
        """In an `except`: the job's pods could not be judged. It ends by this event, and they are told so."""
        self._generations.pop(job, None)
        self._limited.pop(job, None)
        self._events.append(event)
        bundle = self.jobs.get(job) or self.bundles.get(origin.rpartition("#")[0])
        if bundle is None:
            self.guard.note(("job", job), None, f"job {job}")
            return
        self._note_fault(bundle)
        bundle.run = None
        if bundle.job == job:
            self._forget(bundle)
        self._refuse(bundle, self.waiting(bundle), BROKEN)

    def _find(self, job: JobId, origin: str, size: int) -> Bundle | None:
        bundle = self._bundle_for(origin)
        if bundle is not None and bundle.job is None:
            key = bundle.group.key
            bundle.job, bundle.key = job, origin
            bundle.size = size
            self.jobs[job] = bundle
            self._dirty[key] = None
        return bundle if bundle is not None and bundle.job == job else None

    def _stop(self, now_ms: int, bundle: Bundle, cause: StopCause | None, reason: str) -> None:
        run = bundle.run
        assert run is not None
        if run.pending:
            self._give_back(now_ms, bundle, run, cause, reason)
            return
        run.phase, run.cause, run.reason, run.since_ms = RunPhase.STOPPING, cause, reason, now_ms
        self._end_own(bundle, run)
        for part in self._other_parts(bundle):
            if part.run is not None and part.run.phase is not RunPhase.STOPPING:
                self._stop(now_ms, part, cause and StopCause.MIGRATED, "another part of its gang stops")
        self._dirty[bundle.group.key] = None

    def _end_own(self, bundle: Bundle, run: Run) -> None:
        if bundle.own is not None:
            final = Ending.FAIL if run.outcome is Outcome.FAILED else Ending.REMOVE
            run.is_ended = False
            self._actions.append(End(bundle.own, final if run.cause is None else Ending.PARK))
        elif run.is_parked and run.next_slots is not None and bundle.group.source is not None:
            self._actions.append(Scale(bundle.group.source, len(run.next_slots), run.job, is_parked=True))
