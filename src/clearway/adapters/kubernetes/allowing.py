"""What the API server lets Jobs make: jobs wait, or have fewer replicas, before it would refuse their pods.

Where a quota says so beforehand, nothing is asked of it. What else refuses pods (admission of any kind) only the events
of their Job tell: they are read where pods do not come, and are the reason why the job waits.
"""

from typing import Final

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.gangs import elastic_range
from clearway.adapters.kubernetes.manifests import OwnJob
from clearway.adapters.kubernetes.placing import BIND_REFUSED
from clearway.adapters.kubernetes.quotas import Ask, ask_of, ask_of_template
from clearway.adapters.kubernetes.recovering import Recovering
from clearway.adapters.kubernetes.runs import Bundle, Inquire, Run, RunPhase
from clearway.model.events import JobBounded, JobHeld, JobReleased, JobStopped
from clearway.model.ids import JobId
from clearway.model.jobs import StopCause
from clearway.model.plan import ReasonCode

REFUSED: Final = "the API server does not let its pods be made: "
"""Begins the reason of a job that waits for it."""

REFUSALS_MAX: Final = 5
"""So often in a row, a second apart, a pod may not be bound: then its run gives back what it holds."""

PASSING: Final = (404, 409)
"""Answers that say that a pod is not what it was: what it is now is heard of soon."""

RETRY_MS: Final = 30_000
"""Pause before another try; a quota that changes ends it."""

LOOK_MS: Final = 5_000
"""Pods that do not come for so long: what their Job says is read, again and again."""


class Allowing(Recovering):
    """The part of the book about what may be made."""

    def __init__(self, config: KubernetesConfig) -> None:
        super().__init__(config)
        self._quotas_seen = 0

    def release_own(self, now_ms: int, job: JobId, message: str) -> None:
        """A submitted job waits as the journal says; if it was refused in an earlier process, it tries anew."""
        if message.startswith((REFUSED, BIND_REFUSED)):
            self._events.append(JobReleased(now_ms, job))

    def note_refusal(self, now_ms: int, job: JobId, generation: int, message: str) -> None:
        """The Job of a run could not make all of its pods."""
        bundle = self.jobs.get(job)
        run = None if bundle is None else bundle.run
        if bundle is None or run is None or run.generation != generation or not self._lacks_pods(run):
            return
        run.is_refused = True
        self._stop(now_ms, bundle, StopCause.MIGRATED, REFUSED + message)

    def note_refused_call(self, now_ms: int, uid: str, status: int, words: str) -> None:
        """A pod was not bound, or not told to go, as the API server said. It is tried again; a run of which a pod may
        not be bound keeps its places for a few tries only, and nothing of it stays where it was bound by halves."""
        self.unbind(uid)
        bundle, pod = self.bundles.get(self._bundle_of.get(uid, "")), self.pods.get(uid)
        run = None if bundle is None else bundle.run
        if bundle is None or run is None or pod is None:
            return
        run.asked.discard(uid)
        if pod.node or status in PASSING:
            return
        run.refusals[uid] += 1
        if run.refusals[uid] >= REFUSALS_MAX and run.phase is not RunPhase.STOPPING:
            run.is_refused = True
            self._stop(now_ms, bundle, StopCause.MIGRATED, BIND_REFUSED + words)
        if run.is_refused:
            # Of those that lie nowhere none has to leave, and no call about them is on its way.
            for slot in run.slots:
                slot.pod = slot.pod if slot.pod in self._places else ""

    def _lacks_pods(self, run: Run) -> bool:
        return run.phase is RunPhase.STARTING and not all(slot.pod for slot in run.slots)

    def _inquire(self, now_ms: int, bundle: Bundle, run: Run) -> None:
        """Have it looked up why pods do not come, now and then."""
        if not self._lacks_pods(run) or now_ms < max(run.since_ms, run.inquired_ms) + LOOK_MS:
            return
        run.inquired_ms = now_ms
        source, own = bundle.group.source, bundle.own
        if own is not None:
            self._actions.append(Inquire(run.job, run.generation, own.namespace, own.name, run.since_ms))
        elif source is not None:
            self._actions.append(Inquire(run.job, run.generation, source.namespace, source.name, run.since_ms))

    def _is_refused(self, now_ms: int, bundle: Bundle, own: OwnJob, count: int) -> bool:
        """Whether quotas let its Job make fewer pods than these: nothing is made, and the job waits until they do, or
        starts again with as many as it may have."""
        room, words = self.quotas.find_room(own.namespace, _ask_of_own(own))
        if room >= count:
            return False
        reason = f"{REFUSED}{words} lets {room} more be made, found {count} that it needs"
        stopped = JobStopped(now_ms, own.job, self._generations[own.job], StopCause.MIGRATED, bundle.saved_ms, reason)
        self._events.append(stopped)
        if 0 < own.replicas_min <= room:
            self._bound(now_ms, own.job, room)
        else:
            self._hold_refused(now_ms, bundle, own.job, reason)
        return True

    def _hold_refused(self, now_ms: int, bundle: Bundle, job: JobId, reason: str) -> None:
        code = ReasonCode.HELD if reason.startswith(BIND_REFUSED) else ReasonCode.QUOTA
        self._events.append(JobHeld(now_ms, job, reason, code))
        bundle.awaits_quota = "quota" in reason.lower()
        self._rest(bundle, now_ms + RETRY_MS)

    def _try_again(self, now_ms: int, bundle: Bundle) -> None:
        """A submitted job that was refused tries again, unless a quota says beforehand that it is in vain."""
        if bundle.job is None or bundle.own is None or not bundle.is_held or now_ms < bundle.rests_until_ms:
            return
        if self._has_room(bundle, bundle.own):
            bundle.is_held = False
            self._events.append(JobReleased(now_ms, bundle.job))
        else:
            self._rest(bundle, now_ms + RETRY_MS)

    def _has_room(self, bundle: Bundle, own: OwnJob) -> bool:
        room, _ = self.quotas.find_room(own.namespace, _ask_of_own(own))
        return room >= (own.replicas_min or bundle.size)

    def _regard_quotas(self, now_ms: int) -> None:
        """Quotas have changed: who waits for one tries again, and elastic jobs may have more replicas, or fewer."""
        if self._quotas_seen == self.quotas.version:
            return
        self._quotas_seen = self.quotas.version
        for bundle in self.jobs.values():
            if bundle.own is not None and bundle.run is None:
                if bundle.is_held and bundle.awaits_quota and self._has_room(bundle, bundle.own):
                    bundle.rests_until_ms = now_ms
                    self._dirty[bundle.group.key] = None
            elif bundle.run is not None and (bundle.own is not None or bundle.group.source is not None):
                self._dirty[bundle.group.key] = None

    def _bound_elastic(self, now_ms: int, bundle: Bundle) -> None:
        """Tell how many replicas an elastic job may have that runs: those that it has, and as many as may be made."""
        run = bundle.run
        if run is None or run.phase is not RunPhase.RUNNING:
            return
        most, namespace, ask = self._find_most(bundle)
        if ask is not None:
            room, _ = self.quotas.find_room(namespace, ask)
            self._bound(now_ms, run.job, min(len(run.slots) + room, most), most)

    def _find_most(self, bundle: Bundle) -> tuple[int, str, Ask | None]:
        """How many replicas an elastic job asks for at most, where, and what each takes there; None = it is none."""
        if bundle.own is not None:
            own = bundle.own
            return own.replicas_max, own.namespace, _ask_of_own(own) if own.replicas_max > own.replicas_min else None
        pod = next((self.pods[uid] for uid in bundle.members if uid in self.pods), None)
        found = elastic_range(pod) if pod is not None and self._is_elastic(bundle) else None
        return (0, "", None) if pod is None or found is None else (found[1], pod.namespace, ask_of(pod))

    def _bound(self, now_ms: int, job: JobId, most: int, unbounded: int | None = None) -> None:
        known = self._bounds.get(job, unbounded)
        if most != known:
            self._bounds[job] = most
            self._events.append(JobBounded(now_ms, job, most))


def _ask_of_own(own: OwnJob) -> Ask:
    return ask_of_template(own.manifest["spec"]["template"])
