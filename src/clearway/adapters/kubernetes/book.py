"""Pods and jobs as they were last seen, and what follows: events for the engine, calls for the API server. No I/O.

Level-triggered: whatever changed marks its group, and `settle` looks at what is, not at how it came to be. So a
restart, a list after a cut watch and a watch that never broke lead to the same.

- A group is told to the control plane once it is whole: as many pods as it must have, none gated, none unsupported.
- A start is looked at once more, pod by pod, against what is known of the nodes now; if one pod must not lie where it
  was put, nothing is bound, and the job waits again.
- A run holds one slot per replica. A pod that replaces one that is gone takes its slot. Where the slot's node cannot
  take it, the whole run is stopped.
- A job that was submitted to Clearway has no pods while it waits: its Job makes them for each start. They are bound
  once all are there; if one fails the job has failed, and if one is taken away the whole job leaves and starts again.
- A run that is stopped ends when none of its pods holds anything. Its job waits on, held until its pods are there
  again, where a controller makes them anew; else it ends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from clearway.adapters.kubernetes.allowing import REFUSED
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.convoys import gang_key, is_mixed
from clearway.adapters.kubernetes.entries import Wants
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.facts import PodFacts, PodPhase
from clearway.adapters.kubernetes.gangs import NOTHING_SAID, Said, group_of, single_of
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.jobs import make_arrival
from clearway.adapters.kubernetes.manifests import OwnJob
from clearway.adapters.kubernetes.orphans import Orphans
from clearway.adapters.kubernetes.recovering import NOT_WHOLE
from clearway.adapters.kubernetes.runs import (
    KILLED,
    Arrival,
    Bundle,
    End,
    Ending,
    Evict,
    Follow,
    Launch,
    Place,
    Run,
    RunPhase,
    Scale,
    Slot,
    Unclaim,
    finished,
)
from clearway.model.events import (
    Event,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobResized,
    JobStarted,
    JobStopped,
)
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome, Request, StopCause

NOT_MADE = "its Job did not make all of its pods in time; `kubectl describe job` says why"
TAKEN_AWAY = "a pod of it was taken away"

WRITERS = (PodPhase.RUNNING, PodPhase.SUCCEEDED, PodPhase.FAILED)
"""Phases of pods that may have written something."""


class Book(Orphans):
    """All pods, groups and runs. Not safe for several threads: its owner holds a lock."""

    def __init__(self, config: KubernetesConfig) -> None:
        super().__init__(config)
        self._models_seen = 0

    def set_queues(self, names: tuple[str, ...], default: str) -> None:
        """Queues that jobs of groups from now on may name, and the one of all others."""
        self._config = replace(self._config, queues=names, queue_default=default)

    # --- the control plane ----------------------------------------------------------------------------------------

    def take_arrivals(self) -> tuple[Arrival, ...]:
        """Groups that became whole, to be submitted; `accept` or `reject` answers each."""
        arrivals, self._arrivals = tuple(self._arrivals), []
        return arrivals

    def accept(self, now_ms: int, arrival: Arrival, job: JobId) -> None:
        """The job of the group has this number; where its pods are gone by now, it is taken back."""
        bundle = self.bundles.get(arrival.group)
        if bundle is not None and bundle.key == arrival.key and bundle.job is None:
            bundle.job = job
            self.jobs[job] = bundle
            self._dirty[arrival.group] = None
        elif bundle is None or bundle.job != job:
            self._events.append(JobCancelled(now_ms, job))

    def reject(self, arrival: Arrival, reason: str) -> None:
        """The control plane does not take the job; its pods are told why."""
        bundle = self.bundles.get(arrival.group)
        if bundle is not None and bundle.job is None:
            self._refuse(bundle, self._live(bundle), reason)

    def retry(self, arrival: Arrival) -> None:
        """The control plane could not take the job now; it is offered again."""
        if arrival.group in self.bundles:
            self._arrivals.append(arrival)

    def start(
        self,
        now_ms: int,
        job: JobId,
        generation: int,
        places: Sequence[Place],
        origin: str,
        limit_ms: int | None = None,
        own: OwnJob | None = None,
        request: Request | None = None,
    ) -> None:
        """Bind the pods of a job to these places, one per replica; idempotent by generation. own: the Job of one that
        was submitted, whose pods are still to be made. request: see `Run`."""
        if generation <= self._generations.get(job, 0):
            return
        self._generations[job] = generation
        bundle = self.jobs.get(job)
        if bundle is None:
            bundle = self._find(job, origin, len(places)) if own is None else self._open(own)
        if bundle is None:
            self._events.append(JobFinished(now_ms, job, generation, Outcome.CANCELLED))
            return
        pods = self.waiting(bundle)[: len(places)]
        if own is not None:
            bundle.own, bundle.size, pods = own, len(places), []
            if self._is_refused(now_ms, bundle, own, len(places)):
                return
            self._actions.append(Launch(own, len(places)))
        elif self._is_elastic(bundle) and pods:
            pods = self._scale(bundle, job, pods, len(places))
        elif len(pods) < len(places):
            self._hold(now_ms, bundle, JobStopped(now_ms, job, generation, StopCause.MIGRATED, reason=NOT_WHOLE))
            return
        bundle.run = Run(
            job, generation, [Slot(*place) for place in places], now_ms, limit_ms=limit_ms, request=request
        )
        if obstacle := self._fill(list(zip(bundle.run.slots, pods, strict=False)), bundle, bundle.run):
            self._abandon(now_ms, bundle, obstacle)
            return
        bundle.conflicts = 0
        for slot in bundle.run.slots:
            self.nodes.hold(job, slot.node, slot.devices, bundle.run.crowds)
        if limit_ms is not None or own is not None:
            self._limited[job] = None
        self._release(now_ms, bundle)

    def refuse_scale(self, now_ms: int, job: JobId, reason: str) -> None:
        """The API server does not let its Job have as many pods."""
        bundle = self.jobs.get(job)
        if bundle is not None and bundle.run is not None and bundle.run.phase is RunPhase.STARTING:
            self._stop(now_ms, bundle, StopCause.START_FAILED, reason)

    def stop(
        self, now_ms: int, job: JobId, generation: int, cause: StopCause | None, beneficiary: JobId | None = None
    ) -> None:
        """Ask the pods of a run to leave; idempotent. What is gone already is reported as gone."""
        bundle = self.jobs.get(job)
        if bundle is None or bundle.run is None or bundle.run.generation != generation:
            return
        bundle.run.beneficiary = beneficiary
        if bundle.run.next_slots is not None:
            bundle.run.next_slots, bundle.run.cause = None, cause
            self._end_own(bundle, bundle.run)
        elif bundle.run.phase is not RunPhase.STOPPING:
            self._stop(now_ms, bundle, cause, "")

    def resize(self, now_ms: int, job: JobId, generation: int, places: Sequence[Place]) -> None:
        """Have a submitted job leave where it is and go on in these places; idempotent by generation."""
        bundle = self.jobs.get(job)
        run = None if bundle is None else bundle.run
        if bundle is None or run is None or generation <= self._generations.get(job, 0):
            return
        self._generations[job] = run.generation = generation
        is_elastic = self._is_elastic(bundle)
        if (bundle.own is None and not is_elastic) or run.phase is RunPhase.STOPPING:
            self.stop(now_ms, job, generation, StopCause.MIGRATED)
            return
        run.next_slots, run.is_parked = [Slot(*place) for place in places], bundle.own is None
        for slot in run.next_slots:
            self.nodes.hold(job, slot.node, slot.devices)
        self._stop(now_ms, bundle, StopCause.MIGRATED, "")

    def note_ended(self, job: JobId, *, is_there: bool) -> None:
        """The Job of a submitted job lets its pods go; or it is gone, and then its user has taken it back."""
        bundle = self.jobs.get(job)
        if bundle is None or bundle.run is None or bundle.run.phase is not RunPhase.STOPPING:
            return
        bundle.run.is_ended = True
        if not is_there and bundle.run.cause is not None:
            bundle.run.cause, bundle.run.next_slots = None, None
        self._dirty[bundle.group.key] = None

    def forget_own(self, job: JobId) -> None:
        """A submitted job has ended without running: what its Job waits for does not come."""
        bundle = self.jobs.get(job)
        if bundle is not None and bundle.own is not None and bundle.run is None:
            self._actions.append(End(bundle.own, Ending.REMOVE))
            self._forget(bundle)

    def refuse_own(self, now_ms: int, job: JobId, reason: str, *, is_for_now: bool = False) -> None:
        """The API server does not take the Job of a submitted job: it is not tried again as it is. is_for_now: what is
        in the way is not in the Job; it waits, and is tried again."""
        bundle = self.jobs.get(job)
        if bundle is None or bundle.run is None:
            return
        run = bundle.run
        self._let_go(bundle, run)
        cause = StopCause.MIGRATED if is_for_now else StopCause.UNSTARTABLE
        self._events.append(JobStopped(now_ms, job, run.generation, cause, bundle.saved_ms, reason))
        if is_for_now:
            self._hold_refused(now_ms, bundle, job, REFUSED + reason)

    def settle(self, now_ms: int, *, is_first: bool = False) -> list[Event]:
        """Look at every group that changed; returns what happened, nodes first. is_first: see `Nodes.tell`."""
        self._find_overdue(now_ms)
        if self._models_seen != self.nodes.models.version:
            self._models_seen = self.nodes.models.version
            self.touch_all()
        self._regard_quotas(now_ms)
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            bundle = self.bundles.get(key)
            if bundle is not None:
                self._judge(now_ms, bundle, self._settle)
                self._note_disruptions(bundle)
                self._judge(now_ms, bundle, self._bound_elastic)
        self.nodes.sweep(self._find_wanted)
        early, self._events = self._events, []
        return [*self.nodes.tell(now_ms, is_first=is_first), *early, *self.disruptions.tell(now_ms)]

    def _note_disruptions(self, bundle: Bundle) -> None:
        """Which pods of the group would have to be evicted."""
        if bundle.job is not None and bundle.own is None:
            slots = [] if bundle.run is None else bundle.run.slots
            self.disruptions.note(bundle.job, [self.pods[slot.pod] for slot in slots if slot.pod in self.pods])

    def look_at_new(self, now_ms: int) -> None:
        """Look at groups that are no jobs yet: those that became whole are offered without waiting for `settle`."""
        for key in list(self._dirty):
            bundle = self.bundles.get(key)
            if bundle is not None and bundle.run is None and bundle.job is None:
                del self._dirty[key]
                self._judge(now_ms, bundle, self._settle)

    def _find_wanted(self) -> Iterable[Wants]:
        for bundle in self.bundles.values():
            yield from (wants for wants in (bundle.wants, bundle.noted) if wants is not None)

    def _find_overdue(self, now_ms: int) -> None:
        """Stop the runs whose time limit is over, for good, and those whose pods are not made; wake those that rest."""
        self._wake_rested(now_ms)
        self._look_at_empty(now_ms)
        for job in list(self._limited):
            bundle = self.jobs.get(job)
            run = None if bundle is None else bundle.run
            if bundle is None or run is None or (run.limit_ms is None and run.phase is not RunPhase.STARTING):
                del self._limited[job]
            elif run.phase is RunPhase.STARTING:
                self._inquire(now_ms, bundle, run)
                if (
                    (bundle.own or run.is_known)
                    and now_ms > run.since_ms + self._config.replace_ms
                    and not all(s.pod for s in run.slots)
                ):
                    self._stop(now_ms, bundle, StopCause.START_FAILED, NOT_MADE)
            elif run.limit_ms is not None and run.phase is RunPhase.RUNNING and now_ms >= run.since_ms + run.limit_ms:
                run.outcome = Outcome.TIMEOUT
                self._stop(now_ms, bundle, None, "its time limit is over")

    # --- settling -------------------------------------------------------------------------------------------------

    def _settle(self, now_ms: int, bundle: Bundle) -> None:
        if bundle.run is not None and bundle.run.pending and now_ms >= bundle.rests_until_ms:
            self._wait_for_parts(now_ms, bundle, bundle.run)
        if bundle.run is not None:
            self._settle_run(now_ms, bundle, bundle.run)
        if bundle.run is None:
            self._settle_waiting(now_ms, bundle)
        for uid in [uid for uid in bundle.members if uid not in self.pods and not self._is_slotted(bundle, uid)]:
            del bundle.members[uid]
            self._bundle_of.pop(uid, None)
        if not bundle.members and bundle.run is None and bundle.job is None:
            self.bundles.pop(bundle.group.key, None)
            self._leave_convoy(bundle)
            self._forget_size(bundle)

    def _is_slotted(self, bundle: Bundle, uid: str) -> bool:
        return bundle.run is not None and any(slot.pod == uid for slot in bundle.run.slots)

    def _settle_waiting(self, now_ms: int, bundle: Bundle) -> None:
        pods = self.waiting(bundle)
        if bundle.own is not None:
            self._try_again(now_ms, bundle)
            return
        if any(pod.devices or pod.device_claims for pod in pods) and self._await_devices(now_ms, bundle, pods):
            return
        if bundle.job is None:
            if not bundle.size and bundle.group.source is None:
                self._refuse(bundle, pods, "no job of Clearway has this number")
            if bundle.size and len(pods) >= bundle.size and not bundle.key:
                self._offer(now_ms, bundle, pods[: bundle.size])
            return
        if pods and bundle.wants is None and bundle.noted is None:  # submitted by an earlier process
            bundle.noted = self.nodes.note_wants(pods)
        self._note_empty(now_ms, bundle)
        is_whole = len(pods) >= (1 if self._is_elastic(bundle) else bundle.size)
        if is_whole and bundle.is_held and now_ms < bundle.rests_until_ms:
            return
        if is_whole and bundle.is_held:
            bundle.is_held = False
            self._events.append(JobReleased(now_ms, bundle.job))
        elif not is_whole and not bundle.group.returns and len(self._live(bundle)) < bundle.size:
            self._events.append(JobCancelled(now_ms, bundle.job))
            self._forget(bundle)
        elif not is_whole and not bundle.is_held:
            bundle.is_held = True
            self._events.append(JobHeld(now_ms, bundle.job, NOT_WHOLE))

    def _await_devices(self, now_ms: int, bundle: Bundle, pods: Sequence[PodFacts]) -> bool:
        """Whether claims of pods that lie nowhere have devices, which are taken back first. A job whose claims, or the
        devices for them, are not what the engine knows is told anew."""
        idle = [Unclaim(pod, keys) for pod in pods if (keys := self.nodes.claims.idle_of(pod))]
        self._actions += idle
        if not idle and bundle.job is not None and bundle.wants is not None:
            known = bundle.wants.devices, bundle.wants.models
            is_other = bool(pods[0].device_claims) and bundle.wants.label != self.nodes.add_demand(
                self.nodes.demand_of(*pods)
            )
            share = pods[0].share
            is_other = is_other or (share is not None and bool(self.nodes.find_share_fault(share)))
            if is_other or known != self.nodes.devices_of(pods):
                self._events.append(JobCancelled(now_ms, bundle.job))
                self._forget(bundle)
                bundle.is_again = True
        return bool(idle)

    def _offer(self, now_ms: int, bundle: Bundle, pods: Sequence[PodFacts]) -> None:
        by_place = self._is_scattered(pods)
        if (by_place or is_mixed(pods)) and not gang_key(bundle.group.key):
            for part in self._split(bundle, pods, by_place=by_place):
                self._judge(now_ms, part, self._settle)
            return
        try:
            said = self._said_of(pods[0])
            rank = self.classes.find_rank(pods, said)
            arrival = make_arrival(now_ms, bundle, pods, self.nodes, self._config, said.queue, rank)
        except UnreadableError as error:
            self._refuse(bundle, pods, str(error))
            return
        bundle.key = arrival.key
        self._arrivals.append(arrival)

    def _said_of(self, pod: PodFacts) -> Said:
        """What the object says which made the pod, or says how many there are."""
        source = group_of(pod).source
        return NOTHING_SAID if source is None else self._said.get(source, NOTHING_SAID)

    def describe_rank(self, pods: Sequence[PodFacts]) -> str:
        """The priority of pods that are one job, in words; "" = there is nothing to say of it."""
        try:
            return self.classes.find_rank(pods, self._said_of(pods[0])).in_words()
        except UnreadableError:  # its class is gone since
            return ""

    def _settle_run(self, now_ms: int, bundle: Bundle, run: Run) -> None:
        lying = [self.pods.get(slot.pod) for slot in run.slots]
        holding = [pod for pod in lying if pod is not None and not pod.is_over]
        if bundle.own is not None:
            self._follow(run, lying)
        if run.phase is RunPhase.STOPPING:
            run.is_killed = run.is_killed or any(pod is not None and pod.exit_code == KILLED for pod in lying)
            if bundle.own is None and not run.is_parked:
                self._ask_to_leave(run, [pod for pod in holding if pod.node or not run.is_refused])
            has_left = run.is_ended and not run.writing if bundle.own is not None else True
            if has_left and all(self._is_lost(pod) for pod in holding):
                self._end_stopped(now_ms, bundle, run)
            return
        if bundle.own is not None and self._find_fault(now_ms, bundle, run):
            return
        if not holding and all(slot.pod for slot in run.slots) and not run.writing:
            self._finish(now_ms, bundle, run, lying)
        elif not holding and not self.waiting(bundle) and bundle.own is None and not run.is_known:
            self._stop(now_ms, bundle, StopCause.MIGRATED, NOT_WHOLE)
            self._end_stopped(now_ms, bundle, run)
        elif self._refill(now_ms, bundle, run) and run.phase is RunPhase.STARTING:
            phases = [self.pods[slot.pod].phase for slot in run.slots if slot.pod in self.pods]
            if len(phases) == len(run.slots) and not {PodPhase.PENDING, PodPhase.UNKNOWN, PodPhase.FAILED} & set(
                phases
            ):
                run.phase, run.since_ms, run.started_ms = RunPhase.RUNNING, now_ms, now_ms
                if not run.is_known:
                    self._events.append(JobStarted(now_ms, run.job, run.generation))

    def _follow(self, run: Run, pods: Sequence[PodFacts | None]) -> None:
        """Have the output of pods that run, or did, collected."""
        if not self._config.log_folder:
            return
        for pod in pods:
            if pod is not None and pod.uid not in run.followed and pod.phase in WRITERS:
                run.followed.add(pod.uid)
                run.writing.add(pod.uid)
                self._actions.append(Follow(run.job, pod))

    def note_followed(self, job: JobId, uid: str) -> None:
        """All that the pod wrote is collected."""
        bundle = self.jobs.get(job)
        if bundle is not None and bundle.run is not None:
            bundle.run.writing.discard(uid)
            self._dirty[bundle.group.key] = None

    def _find_fault(self, now_ms: int, bundle: Bundle, run: Run) -> bool:
        """Stop a submitted job's run of which a pod has failed, or is not where it was put any more."""
        for slot in run.slots:
            pod = self.pods.get(slot.pod)
            if not slot.pod or (pod is not None and pod.phase is PodPhase.SUCCEEDED):
                continue
            if pod is None or pod.is_leaving:
                self._stop(now_ms, bundle, StopCause.MIGRATED, TAKEN_AWAY)
                return True
            if pod.phase is PodPhase.FAILED:
                entry = self.nodes.entries.get(pod.node)
                is_lost = entry is None or entry.is_gone or not entry.facts.is_ready
                run.outcome, run.exit_code = Outcome.FAILED, pod.exit_code
                self._stop(now_ms, bundle, StopCause.NODE_FAILED if is_lost else None, f"pod {pod.name} failed")
                return True
        return False

    def _refill(self, now_ms: int, bundle: Bundle, run: Run) -> bool:
        """Give slots whose pods are gone or failed to pods that replace them; False = the run is stopped instead."""
        empty = [slot for slot in run.slots if not self._is_well(slot)]
        spare = self.waiting(bundle)
        pairs = list(zip(empty, spare, strict=False))
        is_elastic = self._is_elastic(bundle)
        if (bundle.own is not None or (is_elastic and run.phase is RunPhase.STARTING)) and len(spare) < len(empty):
            return True
        if not pairs:
            if spare and not is_elastic and run.phase is RunPhase.RUNNING and len(self._live(bundle)) > bundle.size:
                self._part(bundle, spare)
            return True
        for slot, _ in pairs:
            self.nodes.ours.pop(slot.pod, None)
        obstacle = self._fill(pairs, bundle, run)
        if not obstacle:
            self._release(now_ms, bundle)
        if obstacle:
            cause = StopCause.NODE_FAILED if bundle.own is None else StopCause.START_FAILED
            if obstacle == BROKEN or self._lacks_binder(pairs):
                cause = StopCause.MIGRATED  # no node is to blame
            self._stop(now_ms, bundle, cause, obstacle)
        return not obstacle

    def _part(self, bundle: Bundle, pods: Sequence[PodFacts]) -> None:
        """Pods beyond the size of a gang that runs are jobs of their own."""
        for pod in pods:
            del bundle.members[pod.uid]
            self._enter(pod.uid, single_of(pod))

    def _ask_to_leave(self, run: Run, holding: Sequence[PodFacts]) -> None:
        why = self._name_beneficiary(run, holding)
        for pod in holding:
            if pod.uid not in run.asked and not pod.is_leaving:
                run.asked.add(pod.uid)
                self._actions.append(Evict(pod, why))

    def _name_beneficiary(self, run: Run, holding: Sequence[PodFacts]) -> str:
        """For whom a job leaves; who asked from another namespace is not named there. "" = it leaves for nobody."""
        other = None if run.beneficiary is None else self.jobs.get(run.beneficiary)
        if other is None or run.cause is not StopCause.PREEMPTED or not holding:
            return ""
        pods = self.waiting(other)  # of a submitted job they are made when it starts
        namespace = pods[0].namespace if pods else other.own.namespace if other.own is not None else ""
        if not namespace:
            return "Preempted by another job"
        if namespace != holding[0].namespace:
            return "Preempted by a job of another namespace"
        about = [f"pod {pods[0].name}", self.describe_rank(pods)] if pods else []
        return ", ".join(filter(None, [f"Preempted by job {other.job}", *about]))

    def _end_stopped(self, now_ms: int, bundle: Bundle, run: Run) -> None:
        self._let_go(bundle, run)
        if run.is_parked and run.next_slots is None and bundle.group.source is not None:
            self._actions.append(Scale(bundle.group.source, bundle.size, run.job))
        if run.cause is None or not (bundle.group.returns or run.is_refused):
            self._events.append(finished(now_ms, run, run.outcome, run.exit_code))
            self._forget(bundle)
            return
        self._note_saved(bundle, run)
        if run.next_slots is not None:
            self._go_on(now_ms, bundle, run, run.next_slots)
            return
        stopped = JobStopped(now_ms, run.job, run.generation, run.cause, bundle.saved_ms, run.reason)
        if run.is_refused:
            self._events.append(stopped)
            self._hold_refused(now_ms, bundle, run.job, run.reason)
        elif bundle.own is not None:
            self._events.append(stopped)
        elif len(self.waiting(bundle)) < bundle.size:
            self._hold(now_ms, bundle, stopped)
        else:
            self._events.append(stopped)

    def _go_on(self, now_ms: int, bundle: Bundle, run: Run, slots: list[Slot]) -> None:
        """A job that was resized has left its devices: its Job makes the pods of its next run."""
        limit_ms = run.limit_ms
        if limit_ms is not None and run.started_ms is not None:
            limit_ms = max(limit_ms - (now_ms - run.started_ms), 1)
        bundle.size = len(slots)
        bundle.run = Run(run.job, run.generation, slots, now_ms, limit_ms=limit_ms, is_known=True, request=run.request)
        for slot in slots:
            self.nodes.let_go(run.job, slot.node)  # held since it was told to move, and counted in no crowd yet
        for slot in slots:
            self.nodes.hold(run.job, slot.node, slot.devices, run.crowds)
        self._limited[run.job] = None
        if bundle.own is not None:
            self._actions.append(Launch(bundle.own, len(slots)))
        elif bundle.group.source is not None:
            self._sizes[bundle.group.source] = len(slots)
            self._actions.append(Scale(bundle.group.source, len(slots), run.job))
        self._events.append(JobResized(now_ms, run.job, run.generation))

    def _hold(self, now_ms: int, bundle: Bundle, stopped: JobStopped) -> None:
        self._events += [stopped, JobHeld(now_ms, stopped.job, NOT_WHOLE)]
        bundle.is_held = True
        self._dirty[bundle.group.key] = None

    def _finish(self, now_ms: int, bundle: Bundle, run: Run, lying: Sequence[PodFacts | None]) -> None:
        outcome = Outcome.COMPLETED
        if any(pod is not None and pod.phase is PodPhase.FAILED for pod in lying):
            outcome = Outcome.FAILED
        elif any(pod is None for pod in lying):
            outcome = Outcome.CANCELLED
        self._let_go(bundle, run)
        code = next((pod.exit_code for pod in lying if pod is not None and pod.exit_code), 0)
        self._events.append(finished(now_ms, run, outcome, code))
        self._forget(bundle)
