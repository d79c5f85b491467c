"""A lasting backend for tests: it simulates run times, keeps the port's rules, and fails what a script says.

Its time is that of the calls: `next_ms` says when it will have something to tell. A job's script says how it runs:
`run_ms=5000 outcome=FAILED start_ms=100 save_ms=50` (or `save_ms=never`), each with a default; `setup_ms=100` is a
start that takes as long and says at once that its setup step runs.
It checks what no driver may do: one device twice, one job twice. It forgets what it told only when it is asked again
(`connect` may come in between, from the next driver).
"""

from dataclasses import dataclass

import numpy as np

from clearway.model.allocation import Allocation
from clearway.model.events import (
    DeviceDown,
    DeviceUp,
    JobFinished,
    JobPreparing,
    JobResized,
    JobStarted,
    JobStopped,
    JobSuspended,
    NodeChanged,
    NodeDown,
    NodeUp,
)
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.model.units import FOREVER_MS

STARTING, WORKING, SAVING, MOVING, FROZEN = "starting", "working", "saving", "moving", "frozen"


@dataclass
class Run:
    """One job on its devices, or frozen. due_ms: when its phase ends."""

    job: int
    generation: int
    allocation: Allocation
    left_ms: int
    outcome: Outcome
    save_ms: int | None
    run_ms: int
    limit_ms: int | None
    share_milli: int
    phase: str = STARTING
    since_ms: int = 0
    due_ms: int = FOREVER_MS
    limit_at_ms: int = FOREVER_MS
    cause: StopCause | None = None
    target: Allocation | None = None
    has_begun: bool = False
    saved_ms: int = 0

    def devices(self):
        """What it holds: while it moves, of old and new each device once."""
        if self.phase == FROZEN:
            return np.zeros(0, dtype=np.int64)
        held = self.allocation.devices
        return held if self.target is None else np.concatenate([held, np.setdiff1d(self.target.devices, held)])


class FakeBackend:
    """`clearway.ports.backend.LastingBackend`. Outlives its controller: hand it to the next one.

    fails_start: called with (job, node names); True = this start fails. unstartable: jobs that
    are to blame where it does. ran: (job, generation, began at, ended at) of
    every stretch of running.
    """

    def __init__(self, nodes, fails_start=None):
        self.specs = tuple(nodes)
        self.fails_start = fails_start or (lambda _job, _nodes: False)
        self.unstartable = set()
        self.runs = {}
        self.ran = []
        self.performed = []
        self.orphans = []
        self.said = {}
        self.down_nodes = set()
        self.down_devices = set()
        self.now_ms = 0
        self.wakes = lambda: None
        self._world = None
        self._generations = {}
        self._saved = {}
        self._due = []
        self._told = []
        self._begin = {}
        count = 0
        for node in self.specs:
            self._begin[node.name] = count
            count += node.device_count
        self.used_milli = np.zeros(count, dtype=np.int64)

    # --- the port -------------------------------------------------------------------------------------------------

    def nodes(self):
        return self.specs

    def connect(self, now_ms, holdings, world):
        self._pass_time(now_ms)
        self._world = world
        self.wakes = world.wake
        events = [*self._told, *self._due]
        self._told, self._due = [], []
        held = {holding.job: holding for holding in holdings}
        for job in sorted(self.runs):
            run, holding = self.runs[job], held.get(job)
            if holding is None or holding.lost or run.generation < (holding.generation_before or holding.generation):
                self.orphans.append((job, run.generation))
                self._release(run)
                del self.runs[job]
        reports = [NodeDown(now_ms, name, "seen down") for name in sorted(self.down_nodes)]
        reports += [DeviceDown(now_ms, name, index, "seen down") for name, index in sorted(self.down_devices)]
        reports += [event for event in events if _is_news(event, held)]
        told = {event.job for event in reports if isinstance(event, JobFinished | JobStopped | JobSuspended)}
        for holding in holdings:
            is_here = holding.job in self.runs or holding.lost
            if holding.is_started and not is_here and holding.job not in told:
                lost = JobStopped(now_ms, holding.job, holding.generation, StopCause.NODE_FAILED, 0, "not found")
                reports.append(lost)
        self._told = list(reports)
        return reports

    def perform(self, now_ms, command):
        self._pass_time(now_ms)
        self.performed.append(command)
        if isinstance(command, Start):
            self._start(now_ms, command)
        elif isinstance(command, Stop):
            self._stop(now_ms, command)
        elif isinstance(command, Suspend):
            self._suspend(now_ms, command)
        elif isinstance(command, Resize | Migrate):
            self._move(now_ms, command)
        else:
            assert isinstance(command, Cap)

    def observe(self, now_ms):
        self._pass_time(now_ms)
        self._told, self._due = self._due, []
        return list(self._told)

    def progress(self):
        said, self.said = self.said, {}
        return said

    def close(self):
        """What runs goes on."""

    def next_ms(self):
        """When something will happen by itself; now, if something did."""
        if self._due:
            return self.now_ms
        return min((run.due_ms for run in self.runs.values()), default=FOREVER_MS)

    # --- what a script does -----------------------------------------------------------------------------------------

    def become(self, nodes):
        """Another control plane will find these nodes; the first devices of each are those that it had."""
        self.specs = tuple(nodes)
        more = sum(node.device_count for node in self.specs) - len(self.used_milli)
        self.used_milli = np.concatenate([self.used_milli, np.zeros(max(more, 0), dtype=np.int64)])

    def report(self, event):
        """Have the controller told this, whatever is so."""
        self._due.append(event)
        self.wakes()

    def break_node(self, now_ms, name):
        """The node fails, with all that runs there."""
        self._pass_time(now_ms)
        if name not in self.down_nodes:
            self.down_nodes.add(name)
            self._due.append(NodeDown(now_ms, name, "power lost"))
            index = [node.name for node in self.specs].index(name)
            self._fail_all(now_ms, lambda run: index in self._nodes_of(run), StopCause.NODE_FAILED)

    def change_node(self, now_ms, spec):
        """The node offers something else, or others have other replicas on it."""
        self.specs = tuple(spec if one.name == spec.name else one for one in self.specs)
        self._due.append(NodeChanged(now_ms, spec))

    def mend_node(self, now_ms, name):
        """The node is back."""
        self._pass_time(now_ms)
        if name in self.down_nodes:
            self.down_nodes.discard(name)
            self._due.append(NodeUp(now_ms, name))

    def break_device(self, now_ms, name, index):
        """One device fails."""
        self._pass_time(now_ms)
        if (name, index) not in self.down_devices:
            self.down_devices.add((name, index))
            self._due.append(DeviceDown(now_ms, name, index, "Xid 79"))
            device = self._begin[name] + index
            self._fail_all(now_ms, lambda run: device in run.devices(), StopCause.DEVICE_FAILED)

    def mend_device(self, now_ms, name, index):
        """The device is back."""
        self._pass_time(now_ms)
        if (name, index) in self.down_devices:
            self.down_devices.discard((name, index))
            self._due.append(DeviceUp(now_ms, name, index))

    def _fail_all(self, now_ms, is_hit, cause):
        for job in sorted(self.runs):
            run = self.runs[job]
            if run.phase != FROZEN and is_hit(run):
                self._leave(now_ms, run, cause, run.saved_ms, "its node or device failed")

    # --- time -----------------------------------------------------------------------------------------------------

    def _pass_time(self, now_ms):
        assert now_ms >= self.now_ms, "time does not run backwards"
        while True:
            run = min(self.runs.values(), key=lambda run: (run.due_ms, run.job), default=None)
            if run is None or run.due_ms > now_ms:
                break
            self._come_due(run.due_ms, run)
        self.now_ms = now_ms

    def _come_due(self, at_ms, run):
        if run.phase == STARTING:
            self._begin_work(at_ms, run)
        elif run.phase == WORKING:
            is_late = at_ms >= run.limit_at_ms and run.since_ms + run.left_ms > run.limit_at_ms
            self._finish(at_ms, run, Outcome.TIMEOUT if is_late else run.outcome)
        elif run.phase == SAVING:
            self._leave(at_ms, run, run.cause, run.saved_ms, "")
        else:
            self._release(run)
            run.allocation, run.target = run.target, None
            self._take(run)
            self._due.append(JobResized(at_ms, run.job, run.generation))
            if run.has_begun:
                self._work(at_ms, run)
            else:
                self._begin_work(at_ms, run)

    def _begin_work(self, at_ms, run):
        run.has_begun = True
        self.ran.append([run.job, run.generation, at_ms, None])
        if run.limit_ms is not None:
            run.limit_at_ms = at_ms + run.limit_ms
        self._due.append(JobStarted(at_ms, run.job, run.generation))
        self._work(at_ms, run)

    def _work(self, at_ms, run):
        run.phase, run.since_ms = WORKING, at_ms
        run.due_ms = min(at_ms + run.left_ms, run.limit_at_ms)

    def _pause(self, at_ms, run):
        """Stop working; what was done is not to be done again only if it is saved or kept in memory."""
        done_ms = at_ms - run.since_ms if run.phase == WORKING else 0
        run.left_ms -= done_ms
        return done_ms

    # --- commands -------------------------------------------------------------------------------------------------

    def _is_old(self, command):
        return command.generation <= self._generations.get(command.job, 0)

    def _start(self, now_ms, command):
        if self._is_old(command):
            return
        frozen = self.runs.pop(command.job, None)
        assert frozen is None or frozen.phase == FROZEN, f"job {command.job} runs already: {command}"
        self._generations[command.job] = command.generation
        spec, how = self._world.launch(command.job)
        words = dict(word.split("=") for word in how.script.split())
        run_ms = int(words.get("run_ms", 1_000))
        run = Run(
            job=command.job,
            generation=command.generation,
            allocation=command.allocation,
            left_ms=frozen.left_ms if frozen else max(run_ms - self._saved.get(command.job, 0), 0),
            outcome=Outcome(words.get("outcome", "COMPLETED")),
            save_ms=None if words.get("save_ms") == "never" else int(words.get("save_ms", 0)),
            run_ms=run_ms,
            limit_ms=spec.limit_ms,
            share_milli=spec.request.share_milli,
            saved_ms=self._saved.get(command.job, 0),
        )
        self.runs[command.job] = run
        self._take(run)
        names = [name for name, _ in self._world.locate(command.allocation)]
        places = {(name, index) for name, held in self._world.locate(command.allocation) for index in held}
        if self.down_nodes & set(names) or self.down_devices & places or self.fails_start(command.job, names):
            cause = StopCause.UNSTARTABLE if command.job in self.unstartable else StopCause.START_FAILED
            self._leave(now_ms, run, cause, run.saved_ms, "it would not start")
            return
        run.due_ms = now_ms + int(words.get("start_ms", words.get("setup_ms", 0)))
        if "setup_ms" in words:
            self._due.append(JobPreparing(now_ms, run.job, run.generation))
        if run.due_ms == now_ms:
            self._begin_work(now_ms, run)

    def _stop(self, now_ms, command):
        run = self.runs.get(command.job)
        if run is None or command.generation < run.generation:
            return
        if command.cause is None:
            self._finish(now_ms, run, Outcome.CANCELLED)
        elif run.phase not in (SAVING, FROZEN):
            done_ms = self._pause(now_ms, run)
            run.cause = command.cause
            if not run.has_begun or run.save_ms is None or run.save_ms > command.grace_ms:
                self._leave(now_ms, run, command.cause, run.saved_ms, "")
            else:
                run.saved_ms += done_ms
                run.phase, run.due_ms = SAVING, now_ms + run.save_ms
                if run.save_ms == 0:
                    self._leave(now_ms, run, command.cause, run.saved_ms, "")

    def _suspend(self, now_ms, command):
        run = self.runs.get(command.job)
        if run is None or command.generation < run.generation or run.phase in (SAVING, FROZEN):
            return
        self._pause(now_ms, run)
        self._release(run)
        self._close_stretch(now_ms, run)
        run.phase, run.due_ms, run.target = FROZEN, FOREVER_MS, None
        self._due.append(JobSuspended(now_ms, run.job, run.generation))

    def _move(self, now_ms, command):
        run = self.runs.get(command.job)
        if run is None or self._is_old(command) or run.phase in (SAVING, FROZEN):
            return
        self._pause(now_ms, run)
        self._generations[command.job] = run.generation = command.generation
        self._release(run)
        run.target = command.allocation
        self._take(run)
        if run.save_ms is None:
            run.left_ms = run.run_ms
        run.phase, run.due_ms = MOVING, now_ms + (run.save_ms or 0)

    # --- leaving --------------------------------------------------------------------------------------------------

    def _finish(self, at_ms, run, outcome):
        self._release(run)
        self._close_stretch(at_ms, run)
        del self.runs[run.job]
        code = 1 if outcome is Outcome.FAILED else 0
        self._due.append(JobFinished(at_ms, run.job, run.generation, outcome, exit_code=code))

    def _leave(self, at_ms, run, cause, saved_ms, reason):
        self._release(run)
        self._close_stretch(at_ms, run)
        del self.runs[run.job]
        self._saved[run.job] = saved_ms
        self._due.append(JobStopped(at_ms, run.job, run.generation, cause, saved_ms, reason))

    def _close_stretch(self, at_ms, run):
        for stretch in self.ran[::-1]:
            if stretch[0] == run.job:
                if stretch[3] is None:
                    stretch[3] = at_ms
                return

    # --- devices --------------------------------------------------------------------------------------------------

    def _nodes_of(self, run):
        targets = [] if run.target is None else run.target.nodes.tolist()
        return {*run.allocation.nodes.tolist(), *targets}

    def _take(self, run):
        np.add.at(self.used_milli, run.devices(), run.share_milli)
        over = np.flatnonzero(self.used_milli > 1_000)
        assert not len(over), f"devices {over} are given twice, the second time to job {run.job}"

    def _release(self, run):
        np.add.at(self.used_milli, run.devices(), -run.share_milli)


def _is_news(event, held):
    """Whether the journal does not know it already."""
    job = getattr(event, "job", None)
    if job is None:
        return True
    holding = held.get(job)
    if holding is None or event.generation < holding.generation:
        return False
    if isinstance(event, JobStarted):
        return not holding.is_started
    if isinstance(event, JobResized):
        return holding.generation_before != 0
    if isinstance(event, JobSuspended | JobStopped):
        return not holding.is_suspended
    return True
