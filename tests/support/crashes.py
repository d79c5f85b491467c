"""Control planes that die at any point, one after the other, over machines and a store that live on.

A fuse burns down at every step that matters: before and after a write, before and after each command, when reports are
taken, and as each answer is given. When it has burnt down the control plane dies there (`Death`), and the next takes
over. Clients try again under the same key until they are answered.

Checked after every turn: books kept from the journal alone (`ShadowCluster`, `StateChecker`); that rows, state box and
cluster view tell the same; and by the backend, that no device and no job is used twice.
"""

from dataclasses import replace

import numpy as np

from clearway.engine.tables import (
    PHASE_BLOCKED,
    PHASE_PENDING,
    PHASE_RUNNING,
    PHASE_STARTING,
    PHASE_STOPPING,
    PHASE_SUSPENDED,
)
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.controller import Controller
from clearway.live.replay import replay_journal
from clearway.model.errors import InputError
from clearway.model.events import (
    Batch,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeUp,
    PlanAccepted,
)
from clearway.model.plan import Reserve
from clearway.model.runs import RunSpec
from clearway.model.units import FOREVER_MS
from clearway.ports.control import PROVISIONAL_ID, Submission
from clearway.ports.storage import StorageError
from clearway.ports.views import JobState
from clearway.sim.checkers import ShadowCluster, StateChecker
from clearway.sim.shadow_rules import make_queue_rule, make_quota_rule
from clearway.sim.twin import missing_queues, missing_tenants
from support.fake_backend import FakeBackend
from support.manual_clock import ManualClock
from support.memory_store import MemoryStore
from support.worlds import without_later

TURNS_MAX = 50_000
DOWNTIME_MS = 30_000
IDLE_TIMERS_MAX = 200
"""Timers in a row, with nothing else to come, after which the waiting jobs will never start."""

STATES = {
    PHASE_PENDING: (JobState.PENDING, JobState.SUSPENDED),
    PHASE_BLOCKED: (JobState.PENDING, JobState.SUSPENDED, JobState.REQUEUE_HOLD, JobState.COMPLETING),
    PHASE_STARTING: (JobState.CONFIGURING, JobState.RUNNING),
    PHASE_RUNNING: (JobState.RUNNING, JobState.CONFIGURING),
    PHASE_STOPPING: (JobState.COMPLETING, JobState.RUNNING, JobState.CONFIGURING),
    PHASE_SUSPENDED: (JobState.SUSPENDED,),
}
"""What a row may say of a job in each phase of the state box."""


class Death(BaseException):
    """The control plane is killed here."""


class Fuse:
    """Raises `Death` at the step that a number drawn from `draw` says; burnt is how often it did."""

    def __init__(self, draw, steps_max, deaths_max):
        self._draw = draw
        self._steps_max = steps_max
        self.deaths_left = deaths_max
        self.left = FOREVER_MS
        self.steps = []

    def renew(self):
        """For the next control plane."""
        self.left = int(self._draw.integers(1, self._steps_max)) if self.deaths_left else FOREVER_MS

    def burn(self, step):
        self.left -= 1
        if self.left == 0:
            self.deaths_left -= 1
            self.steps.append(step)
            raise Death(step)


class FusedStore(MemoryStore):
    """Dies before, in and after a write. Storage that fails, fails for everybody."""

    def __init__(self, fuse):
        super().__init__(encodes=False)
        self._fuse = fuse

    def append(self, changes):
        self._fuse.burn("append begins")
        if self.error is not None:
            raise StorageError(self.error)
        self._fuse.burn("append in the middle")
        number = super().append(changes)
        self._fuse.burn("append ends")
        return number


class FusedBackend(FakeBackend):
    """Dies before and after each command, and when reports were taken and not yet kept."""

    def __init__(self, nodes, fuse, fails_start):
        super().__init__(nodes, fails_start)
        self._fuse = fuse

    def connect(self, now_ms, holdings, world):
        reports = super().connect(now_ms, holdings, world)
        self._fuse.burn("connected")
        return reports

    def perform(self, now_ms, command):
        self._fuse.burn("perform begins")
        super().perform(now_ms, command)
        self._fuse.burn("perform ends")

    def observe(self, now_ms):
        events = super().observe(now_ms)
        if events:
            self._fuse.burn("observed")
        return events


class Mortal:
    """A world of `clearway.sim.random_world`, and the control planes that come and go in it."""

    def __init__(self, world, policy, *, deaths, steps_max=60):
        self.world = world
        self.policy = policy
        self.draw = np.random.default_rng([world.seed, 0xDEAD])
        self.fuse = Fuse(self.draw, steps_max, deaths)
        self.store = FusedStore(self.fuse)
        self.backend = FusedBackend(world.cluster.nodes, self.fuse, self._fails_start)
        self.clock = ManualClock()
        jobs = world.workload.jobs
        self.queues = tuple(
            replace(queue, job_devices_max_milli=None) for queue in (*world.queues, *missing_queues(jobs, world.queues))
        )
        self.tenants = (*world.tenants, *missing_tenants(jobs, world.tenants))
        self.shadow = ShadowCluster(world.seed, [make_queue_rule(self.queues), make_quota_rule(world.tenants)])
        self.looked_at = 0
        self.numbers = {}  # number in the trace → number that was answered
        arrays = [(job.spec.array, job.spec.id) for job in jobs if job.spec.array is not None]
        self.members = {(array.array, array.index): number for array, number in arrays}
        self.asked = []  # (intent, future) of the present control plane
        self.intents = self._make_intents()
        self.faults = self._make_faults()
        self.control = self.kernel = self.checker = None

    # --- what people and machines do --------------------------------------------------------------------------------

    def _make_intents(self):
        """(time, what) in order: jobs of the trace, and what people do besides."""
        people = JobCancelled | JobHeld | JobReleased | NodeDrained
        intents = [(job.submit_ms, without_later(job, self.members)) for job in self.world.workload.jobs]
        intents += [(event.at_ms, event) for event in self.world.extra_events if isinstance(event, people | NodeUp)]
        return sorted(intents, key=lambda intent: intent[0])

    def _make_faults(self):
        steps = []
        names = [node.name for node in self.world.cluster.nodes]
        for fault in self.world.faults:
            name, device = names[fault.node_index], fault.device
            if device is None:
                steps.append((fault.at_ms, lambda at_ms, name=name: self.backend.break_node(at_ms, name)))
                steps.append((fault.until_ms, lambda at_ms, name=name: self.backend.mend_node(at_ms, name)))
            else:
                place = (name, device)
                steps.append((fault.at_ms, lambda at_ms, place=place: self.backend.break_device(at_ms, *place)))
                steps.append((fault.until_ms, lambda at_ms, place=place: self.backend.mend_device(at_ms, *place)))
        return sorted(steps, key=lambda step: step[0])

    def _fails_start(self, job, _nodes):
        return (job * 2_654_435_761 + self.world.seed) % 11 == 0 and self.draw.random() < 0.6

    def _is_ready(self, intent):
        """Whether all jobs that it names have been answered."""
        if hasattr(intent, "spec"):
            spec = intent.spec
            named = [dependency.job for dependency in spec.dependencies if dependency.job is not None]
            tasks = [(one.job, one.task) for one in spec.dependencies if one.task is not None]
            named += [self.members[task] for task in tasks]  # an array comes task by task here
            named += [spec.array.array] if spec.array is not None and spec.array.array != spec.id else []
        else:
            named = [intent.job] if hasattr(intent, "job") else []
        return all(number in self.numbers for number in named)

    def _ask(self, intent):
        control = self.control
        if hasattr(intent, "spec"):
            return control.submit(self._submission(intent))
        if isinstance(intent, NodeDrained):
            return control.drain(intent.node, reason="to be mended", actor="ada")
        if isinstance(intent, NodeUp):
            return control.undrain(intent.node, actor="ada")
        asks = {JobCancelled: control.cancel, JobHeld: control.hold, JobReleased: control.release}
        return asks[type(intent)]((self.numbers[intent.job],), actor="ada")

    def _submission(self, job):
        spec = job.spec
        dependencies = tuple(
            dependency if dependency.job is None else replace(dependency, job=self.numbers[dependency.job])
            for dependency in spec.dependencies
        )
        array = spec.array
        if array is not None:
            own = array.array == spec.id
            array = replace(array, array=PROVISIONAL_ID if own else self.numbers[array.array])
        saves = spec.checkpoint is not None and spec.checkpoint.on_signal
        save_ms = spec.checkpoint.cost_ms if saves else "never"
        start_ms = (spec.id * 7_919) % 3_000
        script = f"run_ms={job.run_ms} outcome={job.outcome.value} start_ms={start_ms} save_ms={save_ms}"
        spec = replace(spec, id=PROVISIONAL_ID, dependencies=dependencies, array=array)
        is_patient, key = job.spec.id % 3 == 0, f"job {job.spec.id}"
        run = RunSpec(script=script)
        return Submission(jobs=(spec,), runs=(run,), actor=spec.user, key=key, is_patient=is_patient)

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(self):
        """Until nothing happens any more. Afterwards everything has ended or waits for what will not come."""
        self.fuse.renew()
        self._take_over()
        idle = 0
        for _ in range(TURNS_MAX):
            at_ms = self._next_ms()
            if at_ms == FOREVER_MS or idle > IDLE_TIMERS_MAX:
                break
            idle = idle + 1 if self._only_timers_are_left() else 0
            self.clock.set(max(at_ms, self.clock.now_ms()))
            self._happen()
            try:
                self.control.turn(self.clock.now_ms())
                self._collect()
                self._check()
            except Death:
                self._collect()
                if self.draw.random() < 0.3:
                    self.clock.set(self.clock.now_ms() + int(self.draw.integers(DOWNTIME_MS)))
                self.fuse.renew()
                self._take_over()
        else:
            raise AssertionError(f"seed {self.world.seed}: it does not come to an end")
        self._check_end()
        return self

    def _take_over(self):
        """Control planes start until one has started."""
        while True:
            self.kernel = Kernel(self.policy, RuntimeHistory())
            self.control = Controller(
                self.kernel, self.backend, self.store, self.clock, queues=self.queues, tenants=self.tenants
            )
            self.checker = StateChecker(self.shadow, self.kernel.state)
            try:
                self.control.start()
            except Death:
                self.fuse.renew()
                continue
            self._check()
            return

    def _next_ms(self):
        now_ms = self.clock.now_ms()
        times = [self.control.next_due_ms()]
        if not self.control.cluster().storage_error:  # else it is not asked
            times.append(self.backend.next_ms())
        times += [at_ms for at_ms, intent in self.intents if self._is_ready(intent)][:1]
        times += [at_ms for at_ms, _ in self.faults[:1]]
        if self.store.error is not None:
            times.append(self.store_back_ms)
        return min((max(at_ms, now_ms) if at_ms < FOREVER_MS else at_ms for at_ms in times), default=FOREVER_MS)

    def _only_timers_are_left(self):
        return not (self.intents or self.faults or self.backend.runs) and self.store.error is None

    def _happen(self):
        """What machines and people do by now; and now and then the storage fails for a while."""
        now_ms = self.clock.now_ms()
        while self.faults and self.faults[0][0] <= now_ms:
            self.faults.pop(0)[1](now_ms)
        if self.store.error is not None and now_ms >= self.store_back_ms:
            self.store.error = None
        elif self.store.error is None and self.draw.random() < 0.01:
            self.store.error = "disk full"
            self.store_back_ms = now_ms + int(self.draw.integers(1, DOWNTIME_MS))
        due = [intent for at_ms, intent in self.intents if at_ms <= now_ms and self._is_ready(intent)]
        if due:
            self.intents = [one for one in self.intents if not any(one[1] is intent for intent in due)]
        for intent in due:
            future = self._ask(intent)
            self.asked.append((intent, future))
            future.add_done_callback(lambda _: self.fuse.burn("answer"))

    def _collect(self):
        """Answers; who got none, or was told to try again, tries again."""
        again = []
        for intent, future in self.asked:
            error = future.exception() if future.done() else Death("no answer")
            if isinstance(error, InputError):
                raise error
            if error is not None:
                again.append((self.clock.now_ms() + 1_000, intent))
            elif hasattr(intent, "spec"):
                (number,) = future.result()
                assert number not in self.numbers.values(), f"job number {number} was given twice"
                self.numbers[intent.spec.id] = number
        self.asked.clear()
        self.intents = sorted([*again, *self.intents], key=lambda intent: intent[0])

    # --- what must be true ------------------------------------------------------------------------------------------

    def _check(self):
        """The journal by itself, and what everybody makes of it."""
        for event in self.store.events[self.looked_at :]:
            self._watch(event)
        self.looked_at = len(self.store.events)
        lost = [number for number in self.numbers.values() if number not in self.store.rows]
        assert not lost, f"jobs {lost} were acknowledged and are lost"
        if not self.control.cluster().storage_error:  # else the state box is ahead of the journal
            self.checker.watch(None, ())
            self._check_rows()

    def _watch(self, event):
        if isinstance(event, PlanAccepted):
            moves = [move for move in event.plan.moves if not isinstance(move, Reserve)]
            self.shadow.watch(Batch(event.at_ms, ()), moves)
        else:
            parts = event.events if isinstance(event, Batch) else (event,)
            # Reports are of the time at which something was; what counts is when it was told.
            self.shadow.watch(Batch(event.at_ms, tuple(replace(part, at_ms=event.at_ms) for part in parts)), ())

    def _check_rows(self):
        jobs = self.kernel.state.jobs
        alive = {row.id for row in self.store.rows.values() if not row.state.is_final}
        assert alive == set(jobs)
        running = 0
        for number, record in jobs.items():
            row = self.control.job(number)
            assert row.state in STATES[record.phase], f"job {number} is {row.state} in phase {record.phase}"
            assert row.generation == record.generation
            running += record.allocation is not None
        cluster = self.control.cluster()
        assert cluster.running == running
        assert cluster.pending == len(jobs) - running
        owned = sum(milli for node in cluster.nodes for device in node.devices for _, milli in device.owners)
        free = self.kernel.state.device_shares_free()
        assert owned == 1_000 * len(free) - int(free.sum())

    def _check_end(self):
        self.shadow.check_end()
        assert not self.backend.orphans
        assert not [run for run in self.backend.runs.values() if run.phase != "frozen"]
        assert len(self.numbers) == len(self.world.workload.jobs)
        submitted = [part.job.id for event in self.store.events for part in _parts(event) if _is_submit(part)]
        assert len(submitted) == len(set(submitted)) == len(self.numbers)
        assert sorted(submitted) == sorted(self.numbers.values())
        replayed = replay_journal(self.store.read_journal(), lambda _: Kernel(self.policy, RuntimeHistory()))
        assert replayed.difference is None, f"seed {self.world.seed}: {replayed}"
        before = len(self.store.events)
        self._take_over()
        moves = [event for event in self.store.events[before:] if isinstance(event, PlanAccepted)]
        assert not moves, f"a control plane that starts anew finds something to do: {moves}"


def _parts(event):
    return event.events if isinstance(event, Batch) else (event,)


def _is_submit(event):
    return isinstance(event, JobSubmitted)
