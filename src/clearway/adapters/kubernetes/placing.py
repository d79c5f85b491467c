"""Places for pods: bindings of a run are made whole, or not at all, and given back where they cannot be."""

from collections.abc import Callable, Sequence

from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.convoys import PERMIT_MS, REST_FIRST_MS, REST_MAX_MS
from clearway.adapters.kubernetes.entries import real_name
from clearway.adapters.kubernetes.facts import PodFacts, PodPhase
from clearway.adapters.kubernetes.gangs import ELASTIC
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.manifests import binding_annotations
from clearway.adapters.kubernetes.offers import counted_for
from clearway.adapters.kubernetes.runs import CONFLICTS_MAX, REST_MS, Arrival, Bind, Bundle, Run, RunPhase, Scale, Slot
from clearway.adapters.kubernetes.shares import KAI
from clearway.adapters.kubernetes.sightings import Sightings
from clearway.model.events import Event, JobCancelled, JobFinished, JobHeld, JobStopped
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome, StopCause

NO_PLACE = "other pods of its gang have no place"
RESTING = "it rests before its next try: "
BIND_REFUSED = "the API server does not let its pods be bound: "
"""Begin the reasons of jobs that the book holds."""


class Placing(Sightings):
    """All that the book knows of runs whose pods are put somewhere. jobs: groups that wait or run, by number."""

    def __init__(self, config: KubernetesConfig) -> None:
        super().__init__(config)
        self.jobs: dict[JobId, Bundle] = {}
        self._generations: dict[JobId, int] = {}
        self._limited: dict[JobId, None] = {}
        self._bounds: dict[JobId, int] = {}
        self._events: list[Event] = []
        self._arrivals: list[Arrival] = []

    # --- what is worth a look -------------------------------------------------------------------------------------

    @property
    def is_urgent(self) -> bool:
        """Whether `settle` may tell more than that pods which were bound run by now."""
        has_news = self.nodes.has_news or self.disruptions.has_news or bool(self._events)
        return has_news or not all(self._goes_well(key) for key in self._dirty)

    def _goes_well(self, key: str) -> bool:
        """Whether the group has a run of which no pod has ended, is gone or is leaving."""
        bundle = self.bundles.get(key)
        if bundle is None or bundle.own is not None or bundle.run is None or bundle.run.phase is RunPhase.STOPPING:
            return False
        pods = [self.pods.get(slot.pod) for slot in bundle.run.slots]
        return all(pod is not None and not pod.is_over and not pod.is_leaving for pod in pods)

    # --- what cannot be judged ------------------------------------------------------------------------------------

    def _judge(self, now_ms: int, bundle: Bundle, judge: Callable[[int, Bundle], None]) -> None:
        """Have a group looked at. Where that goes wrong by a mistake of ours it is left out until a pod of it changes:
        a run goes on as it is, a job that waits is taken back, and what was told before stays told."""
        key = bundle.group.key
        if bundle.run is None and key in self.guard and self.guard.knows(key, self._version(bundle)):
            return
        try:
            judge(now_ms, bundle)
        except Exception:  # about these pods alone
            self._note_fault(bundle)
            self._give_up(now_ms, bundle)
        else:
            if bundle.run is None and not bundle.refused:
                self.guard.forget(key)

    def _version(self, bundle: Bundle) -> tuple[PodFacts, ...]:
        return tuple(self.pods[uid] for uid in bundle.members if uid in self.pods)

    def _note_fault(self, bundle: Bundle) -> None:
        """In an `except`: pods of the group could not be judged as they are."""
        self.guard.note(bundle.group.key, self._version(bundle), f"group {bundle.group.key}")

    def _give_up(self, now_ms: int, bundle: Bundle) -> None:
        """The group's pods could not be judged: nothing is bound, its job is taken back, and they are told so."""
        run = bundle.run
        if bundle.own is not None or (run is not None and not run.pending):
            return
        if run is not None:
            self._give_back(now_ms, bundle, run, StopCause.MIGRATED, BROKEN)
        if bundle.job is not None:
            self._events.append(JobCancelled(now_ms, bundle.job))
        if bundle.job is not None or bundle.key:
            self._forget(bundle)
            bundle.is_again = True
        self._arrivals = [arrival for arrival in self._arrivals if arrival.group != bundle.group.key]
        bundle.refused = ""
        self._refuse(bundle, self._live(bundle), BROKEN)

    # --- places ---------------------------------------------------------------------------------------------------

    def _fill(self, pairs: Sequence[tuple[Slot, PodFacts]], bundle: Bundle, run: Run) -> str:
        """Bind each pod to its slot's node, all or none; returns what is in the way of one, "" = nothing."""
        laid: list[PodFacts] = []
        before, pending = [slot.pod for slot, _ in pairs], len(run.pending)
        try:
            return self._put(pairs, bundle, run, laid)
        except Exception:  # about these pods alone
            self._note_fault(bundle)
            for pod in laid:
                self._lift(pod.uid)
            for (slot, pod), uid in zip(pairs, before, strict=True):
                slot.pod = uid
                self.nodes.claims.release(pod.uid)
                self.nodes.volumes.take_back(pod)
            del run.pending[pending:]
            return BROKEN

    def _put(self, pairs: Sequence[tuple[Slot, PodFacts]], bundle: Bundle, run: Run, laid: list[PodFacts]) -> str:
        obstacle = ""
        for slot, pod in pairs:
            obstacle = self.nodes.find_obstacle(pod, slot.node)
            if self.nodes.is_well(slot.node) and (obstacle := obstacle or self._find_conflict(pod, slot)):
                bundle.conflicts += 1
            if obstacle := obstacle or self.nodes.take_devices(pod, slot.node, slot.devices):
                break
            laid.append(pod)
            self._places[pod.uid] = real_name(slot.node)
            self.nodes.lay(pod, real_name(slot.node))
        if obstacle:
            for pod in laid:
                self._lift(pod.uid)
            for _, pod in pairs:
                self.nodes.volumes.take_back(pod)
            return obstacle
        for slot, pod in pairs:
            slot.pod = pod.uid
            self.nodes.ours[pod.uid] = counted_for(pod, run.request)
            told = binding_annotations(pod, len(run.slots), run.generation)
            told |= self.nodes.render_devices(pod, slot.node, slot.devices)
            device = slot.devices[0] if pod.share is not None and pod.share.by == KAI and slot.devices else None
            run.pending.append(Bind(pod, real_name(slot.node), tuple(told.items()), device))
            if self._other_parts(bundle):
                self.nodes.keep_unbound(pod, real_name(slot.node))
        return ""

    def _find_conflict(self, pod: PodFacts, slot: Slot) -> str:
        fault = "" if pod.share is None else self.nodes.find_share_fault(pod.share)
        fault = fault or self.nodes.find_conflict(pod, slot.node)
        fault = fault or self.nodes.find_mistake(pod, slot.node, slot.devices)
        return fault or self.nodes.promise_volumes(pod, slot.node)

    def _lacks_binder(self, pairs: Sequence[tuple[Slot, PodFacts]]) -> bool:
        return any(pod.share is not None and bool(self.nodes.find_share_fault(pod.share)) for _, pod in pairs)

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
            if conflict == BROKEN:
                self._give_up(now_ms, part)
            else:
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
                if conflict := self._find_change(part, bind):
                    for one in judged:
                        self.nodes.keep_unbound(one.pod, one.node)
                    return part, conflict
                self.nodes.may_bind(bind.pod, bind.node)
                judged.append(bind)
        return None

    def _find_change(self, part: Bundle, bind: Bind) -> str:
        try:
            return self.nodes.find_change(bind.pod, bind.node)
        except Exception:  # about these pods alone
            self._note_fault(part)
            return BROKEN

    def _wait_for_parts(self, now_ms: int, bundle: Bundle, run: Run, reason: str = NO_PLACE) -> None:
        """Other parts of its convoy have found no places in time, or not beside it: it rests, and tries again."""
        self._give_back(now_ms, bundle, run, StopCause.MIGRATED, reason)
        self._rest(bundle, now_ms + min(REST_FIRST_MS << min(bundle.rested, 16), REST_MAX_MS))
        bundle.rested += 1
        self._events.append(JobHeld(now_ms, run.job, reason if reason == NO_PLACE else RESTING + reason))

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
        is_broken = obstacle == BROKEN
        is_innocent = bundle.conflicts > 0 or is_broken  # of what others hold there by now no node is to blame
        cause = StopCause.MIGRATED if is_innocent else StopCause.START_FAILED
        self._events.append(JobStopped(now_ms, run.job, run.generation, cause, reason=obstacle))
        if bundle.own is not None:
            return
        if is_broken:
            self._give_up(now_ms, bundle)
            return
        try:
            self._tell_anew(now_ms, bundle, run, obstacle)
        except Exception:  # about these pods alone
            self._note_fault(bundle)
            self._give_up(now_ms, bundle)

    def _tell_anew(self, now_ms: int, bundle: Bundle, run: Run, obstacle: str) -> None:
        """Where the engine does not know what is in the way, the job is taken back, to be offered as it is now."""
        pods = self.waiting(bundle)[: bundle.size]
        is_other = bundle.wants is not None or bundle.conflicts > 0 or any(pod.claims for pod in pods)
        if is_other and bundle.wants != self.nodes.note_wants(pods):
            # What is demanded, or who else speaks of these pods, is not what the engine knows: it is told anew.
            self._events.append(JobCancelled(now_ms, run.job))
            self._forget(bundle)
            bundle.is_again = True
        elif bundle.conflicts >= CONFLICTS_MAX:
            self._rest(bundle, now_ms + REST_MS)
            self._events.append(JobHeld(now_ms, run.job, RESTING + obstacle))

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
            self.nodes.ours.pop(slot.pod, None)
        bundle.run = None
        self._dirty[bundle.group.key] = None

    def _forget(self, bundle: Bundle) -> None:
        """The job is over; what pods are left may be another one."""
        if bundle.job is not None:
            self.jobs.pop(bundle.job, None)
            self._generations.pop(bundle.job, None)
            self.disruptions.forget(bundle.job)
            self._bounds.pop(bundle.job, None)
        bundle.job, bundle.key, bundle.is_held, bundle.refused = None, "", False, ""
        if bundle.own is None:
            self._dirty[bundle.group.key] = None
        else:
            self.bundles.pop(bundle.group.key, None)

    def _is_well(self, slot: Slot) -> bool:
        """Whether a slot's pod is there, lies where it should, and has not failed."""
        pod = self.pods.get(slot.pod)
        if pod is None or pod.phase is PodPhase.FAILED or self._is_lost(pod):
            return False
        place = self._places.get(slot.pod, "")
        if place and place != real_name(slot.node):  # somebody else bound it: it holds what the engine does not count
            self.nodes.ours.pop(slot.pod, None)
            self.nodes.touch(place)
        return pod.is_over or bool(place)

    def _is_lost(self, pod: PodFacts) -> bool:
        """Whether it was told to go and lies where no kubelet will say that it went."""
        entry = self.nodes.entries.get(pod.node)
        return pod.is_leaving and (entry is None or entry.is_gone or not entry.facts.is_ready)

    def _note_saved(self, bundle: Bundle, run: Run) -> None:
        """What a submitted job that saves had done is safe; where it was killed, up to its last regular checkpoint."""
        own = bundle.own
        if own is None or not own.interval_ms or run.started_ms is None:
            return
        ran_ms = max(run.since_ms - run.started_ms, 0)
        if run.is_killed:
            ran_ms = ran_ms // own.interval_ms * own.interval_ms
        bundle.saved_ms += ran_ms * min(len(run.slots), own.replicas) // own.replicas
