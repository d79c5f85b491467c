"""Places for pods: bindings of a run are made whole, or not at all, and given back where they cannot be."""

from collections.abc import Sequence

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.convoys import PERMIT_MS, REST_FIRST_MS, REST_MAX_MS
from clearway.adapters.kubernetes.entries import real_name
from clearway.adapters.kubernetes.facts import PodFacts
from clearway.adapters.kubernetes.gangs import ELASTIC
from clearway.adapters.kubernetes.manifests import binding_annotations
from clearway.adapters.kubernetes.runs import CONFLICTS_MAX, REST_MS, Bind, Bundle, Run, Scale, Slot
from clearway.adapters.kubernetes.shares import KAI
from clearway.adapters.kubernetes.sightings import Sightings
from clearway.model.events import Event, JobCancelled, JobFinished, JobHeld, JobStopped
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome, StopCause

NO_PLACE = "other pods of its gang have no place"


class Placing(Sightings):
    """All that the book knows of runs whose pods are put somewhere. jobs: groups that wait or run, by number."""

    def __init__(self, config: KubernetesConfig) -> None:
        super().__init__(config)
        self.jobs: dict[JobId, Bundle] = {}
        self._generations: dict[JobId, int] = {}
        self._events: list[Event] = []

    def _fill(self, pairs: Sequence[tuple[Slot, PodFacts]], bundle: Bundle, run: Run) -> str:
        """Bind each pod to its slot's node, all or none; returns what is in the way of one, "" = nothing."""
        laid: list[PodFacts] = []
        obstacle = ""
        for slot, pod in pairs:
            obstacle = self.nodes.find_obstacle(pod, slot.node)
            if not obstacle and (obstacle := self._find_conflict(pod, slot)):
                bundle.conflicts += 1
            if obstacle := obstacle or self.nodes.take_devices(pod, slot.node, slot.devices):
                break
            self._places[pod.uid] = real_name(slot.node)
            self.nodes.lay(pod, real_name(slot.node))
            laid.append(pod)
        if obstacle:
            for pod in laid:
                self._lift(pod.uid)
            return obstacle
        for slot, pod in pairs:
            slot.pod = pod.uid
            self.nodes.ours.add(pod.uid)
            told = binding_annotations(pod, len(run.slots), run.generation)
            told |= self.nodes.render_devices(pod, slot.node, slot.devices)
            device = slot.devices[0] if pod.share is not None and pod.share.by == KAI and slot.devices else None
            run.pending.append(Bind(pod, real_name(slot.node), tuple(told.items()), device))
            if self._other_parts(bundle):
                self.nodes.keep_unbound(pod, real_name(slot.node))
        return ""

    def _find_conflict(self, pod: PodFacts, slot: Slot) -> str:
        return self.nodes.find_conflict(pod, slot.node) or self.nodes.find_mistake(pod, slot.node, slot.devices)

    def _release(self, now_ms: int, bundle: Bundle) -> None:
        """Make the bindings of a run; of a convoy once all parts have places, looked at once more, all or none."""
        if self._lacks_parts(bundle):
            bundle.rests_until_ms = now_ms + PERMIT_MS
            self._resting[bundle.group.key] = None
            return
        parts = [part for part in (bundle, *self._other_parts(bundle)) if part.run is not None and part.run.pending]
        late = self._find_late(parts) if self._other_parts(bundle) else None
        if late is not None:
            part, conflict = late
            assert part.run is not None
            self._wait_for_parts(now_ms, part, part.run, conflict)
            return
        for part in parts:
            assert part.run is not None
            self._actions += part.run.pending
            part.run.pending, part.rested, part.conflicts = [], 0, 0

    def _find_late(self, parts: Sequence[Bundle]) -> tuple[Bundle, str] | None:
        """A part of which a pod must not lie any more where it was put, and why; else all count from now on."""
        judged: list[Bind] = []
        for part in parts:
            assert part.run is not None
            for bind in part.run.pending:
                if conflict := self.nodes.find_change(bind.pod, bind.node):
                    for one in judged:
                        self.nodes.keep_unbound(one.pod, one.node)
                    return part, conflict
                self.nodes.may_bind(bind.pod, bind.node)
                judged.append(bind)
        return None

    def _wait_for_parts(self, now_ms: int, bundle: Bundle, run: Run, reason: str = NO_PLACE) -> None:
        """Other parts of its convoy have found no places in time, or not beside it: it rests, and tries again."""
        self._give_back(now_ms, bundle, run, StopCause.MIGRATED, reason)
        self._rest(bundle, now_ms + min(REST_FIRST_MS << min(bundle.rested, 16), REST_MAX_MS))
        bundle.rested += 1
        self._events.append(JobHeld(now_ms, run.job, reason))

    def _give_back(self, now_ms: int, bundle: Bundle, run: Run, cause: StopCause | None, reason: str) -> None:
        """A part of a convoy leaves places to which nothing was bound yet."""
        for slot in run.slots:
            self._lift(slot.pod)
        self._let_go(bundle, run)
        if cause is None:
            self._events.append(JobFinished(now_ms, run.job, run.generation, Outcome.CANCELLED))
            self._forget(bundle)
        else:
            self._events.append(JobStopped(now_ms, run.job, run.generation, cause, reason=reason))

    def _abandon(self, now_ms: int, bundle: Bundle, obstacle: str) -> None:
        run = bundle.run
        assert run is not None
        bundle.run = None
        cause = StopCause.MIGRATED if bundle.conflicts else StopCause.START_FAILED  # of a conflict no node is to blame
        self._events.append(JobStopped(now_ms, run.job, run.generation, cause, reason=obstacle))
        if bundle.own is not None:
            return
        pods = self.waiting(bundle)[: bundle.size]
        is_other = bundle.wants is not None or bundle.conflicts > 0 or any(pod.claims for pod in pods)
        if is_other and bundle.wants != self.nodes.note_wants(pods):
            # What is demanded, or who else speaks of these pods, is not what the engine knows: it is told anew.
            self._events.append(JobCancelled(now_ms, run.job))
            self._forget(bundle)
            bundle.is_again = True
        elif bundle.conflicts >= CONFLICTS_MAX:
            self._rest(bundle, now_ms + REST_MS)
            self._events.append(JobHeld(now_ms, run.job, obstacle))

    def _is_elastic(self, bundle: Bundle) -> bool:
        pods = (self.pods[uid] for uid in bundle.members if uid in self.pods)
        return bundle.group.source is not None and any(ELASTIC in dict(pod.annotations) for pod in pods)

    def _scale(self, bundle: Bundle, job: JobId, pods: list[PodFacts], count: int) -> list[PodFacts]:
        """Have an elastic Job make as many pods; returns those to be bound now: none before all are there."""
        assert bundle.group.source is not None
        if len(self._live(bundle)) != count:
            self._actions.append(Scale(bundle.group.source, count, job))
        bundle.size = self._sizes[bundle.group.source] = count
        return pods if len(pods) == count else []

    def _let_go(self, bundle: Bundle, run: Run) -> None:
        for slot in run.slots:
            self.nodes.let_go(run.job, slot.node)
            self.nodes.ours.discard(slot.pod)
        bundle.run = None
        self._dirty[bundle.group.key] = None

    def _forget(self, bundle: Bundle) -> None:
        """The job is over; what pods are left may be another one."""
        if bundle.job is not None:
            self.jobs.pop(bundle.job, None)
            self._generations.pop(bundle.job, None)
        bundle.job, bundle.key, bundle.is_held, bundle.refused = None, "", False, ""
        if bundle.own is None:
            self._dirty[bundle.group.key] = None
        else:
            self.bundles.pop(bundle.group.key, None)
