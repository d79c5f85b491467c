"""The life of one generation of a job, from its first process to the end of its last one.

    queued → (setup →) launching → running → draining → ended
                                   running ⇄ frozen

A run has ended only when its group is empty: what outlives the main processes gets SIGTERM, a wait, then SIGKILL. What
even that does not end is reported by name, and its devices with it, until it is gone.

Its processes outlive their keeper; `adopted` is where the next one takes over.
"""

import contextlib
import os
import signal
from dataclasses import dataclass, field

from clearway.adapters.local.keeper import contract, processes
from clearway.adapters.local.keeper.cgroups import Group
from clearway.adapters.local.keeper.children import make_child, setup_ranks, truncates
from clearway.adapters.local.keeper.daemon import Removal
from clearway.adapters.local.keeper.hearing import find_hearing, find_limited, list_own
from clearway.adapters.local.keeper.host import (
    ANSWER_MS,
    MOVED,
    NEVER,
    POLL_FIRST_MS,
    POLL_MAX_MS,
    STUCK_MS,
    UNKNOWN_STATUS,
    Host,
    Leave,
    Purpose,
    look_ms,
    now_ms,
    render_status,
    tick_ms,
)
from clearway.adapters.local.keeper.messages import Launch, Report
from clearway.adapters.local.keeper.notes import describe_end, describe_start, describe_traces
from clearway.adapters.local.keeper.records import Asked
from clearway.adapters.local.keeper.runners import GONE, LieError
from clearway.adapters.local.keeper.spawn import Child, explain_failure, is_own_failure, make_script, spawn
from clearway.adapters.local.keeper.verdict import judge, tell_end, tell_stuck
from clearway.adapters.local.keeper.warm_links import TOLD_MAX, WarmLinks, explain, hear


@dataclass(slots=True, eq=False)
class Run:
    """One generation at a time; a frozen run that goes on, and only that, takes the number of the next."""

    host: Host
    launch: Launch
    mark: str
    report: Report
    stage: str = "queued"
    group: Group | None = None
    successor: Launch | None = None
    mains: dict[int, int] = field(default_factory=dict)
    ticks: dict[int, int] = field(default_factory=dict)
    pipes: dict[int, bytearray] = field(default_factory=dict)
    warm: WarmLinks = field(default_factory=WarmLinks)
    is_in_setup: bool = False
    removal: Removal = field(default_factory=Removal)
    bad_status: int = 0
    has_unknown_end: bool = False
    was_signalled: bool = False
    purpose: Purpose | None = None
    leave: Leave | None = None
    request: str = ""
    began_ms: int = 0
    began_tick: int = 0
    done_ms: int = 0
    limit_tick: int = NEVER
    signal_tick: int = NEVER
    progress_tick: int = NEVER
    kill_tick: int = NEVER
    killed_tick: int = NEVER
    carried_limit_tick: int = NEVER
    due_tick: int = NEVER
    poll_ms: int = POLL_FIRST_MS

    # --- beginning ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the first processes. What fails here is a failed start."""
        launch = self.launch
        try:
            self.group = self.host.groups.make(self.mark, launch)
            contract.make_job_dir(launch.job_dir, launch.uid, launch.gid, is_new=launch.generation == 1)
        except OSError as error:
            self._fail_start(f"prepare {error.filename or launch.job_dir}: {error.strerror}")
            return
        if launch.docker and not self.group.path:
            self._fail_start("Docker needs control groups, and none can be made here", by_job=True)
            return
        contract.remove_request(launch.job_dir)
        self.is_in_setup = bool(launch.setup)
        self.stage = "setup" if launch.setup else "launching"
        self._spawn_all()

    def _spawn_all(self) -> None:
        is_setup = self.stage == "setup"
        ranks = setup_ranks(self.launch) if is_setup else list(range(len(self.launch.replicas)))
        script = gate = opener = -1
        try:
            script = make_script(self.launch.setup if is_setup else self.launch.script)
            if len(ranks) > 1:
                gate, opener = os.pipe2(os.O_CLOEXEC)
            for index in ranks:
                if self.launch.warm and not is_setup:
                    self._start_warm(index)
                    continue
                pid, pipe = spawn(self._child(index, script, gate, is_setup=is_setup))
                if index == ranks[0] and opener >= 0:
                    os.close(opener)
                    opener = -1
                self._own(pid, index)
                self._watch(pipe)
        except OSError as error:
            self._fail_start(f"start a process: {error.strerror}")
        finally:
            for descriptor in (script, gate, opener):
                if descriptor >= 0:
                    os.close(descriptor)
        self._note()

    def _own(self, pid: int, index: int) -> None:
        self.mains[pid] = index
        self.ticks[pid] = processes.read_start_ticks(pid)
        self.host.own(pid, self)

    def _watch(self, pipe: int) -> None:
        self.pipes[pipe] = bytearray()
        self.host.watch(pipe, lambda: self._read_pipe(pipe))

    def _start_warm(self, index: int) -> None:
        """Have a warm runner fork this replica, or start it cold."""
        if self.purpose is not None:
            return
        is_first = truncates(self.launch, index, is_setup=False)
        link = self.host.runners.start(self.launch, index, truncates=is_first)
        if link is None:
            self.warm.after_first(lambda: self._start_cold(index))
            return
        self._watch(link)
        self.warm.expect(link, index)

    def _start_cold(self, index: int) -> None:
        """There is no warm runner, or it ended before it could start this replica."""
        if self.purpose is not None:
            return
        try:
            script = make_script(self.launch.script)
            try:
                pid, pipe = spawn(self._child(index, script, -1, is_setup=False))
            finally:
                os.close(script)
        except OSError as error:
            self._fail_start(f"start a process: {error.strerror}")
        else:
            self._own(pid, index)
            self._watch(pipe)
            self.warm.expect_cold(pipe, index)
            self._note_all()

    def _take_warm(self, link: int, told: bytes) -> None:
        """A runner says that it has forked our process, which waits until it is in its group."""
        assert self.group is not None
        try:
            pid = self.host.runners.take(link, told, self.group)
        except LieError as lie:
            self._unwatch(link)
            self._fail_start(str(lie), by_job=True)
            return
        if pid == GONE:
            self._start_is_over(link)
            return
        self._own(pid, self.warm.tell(link))
        self.host.runners.go_on()
        self.warm.after_first(lambda: self._let_go(link), link)

    def _let_go(self, link: int) -> None:
        self.host.runners.let_go(link)
        self._note_all()

    def _note_all(self) -> None:
        """Only when each replica has its process, and was let go: else another keeper would take the run for begun."""
        if self.warm.is_all_begun:
            self._note()

    def _unwatch(self, pipe: int) -> int | None:
        """Hear no more of a start. Returns the replica of which a warm runner has forked no process."""
        self.host.unwatch(pipe)
        self.pipes.pop(pipe, None)
        self.host.runners.release(pipe)
        return self.warm.drop(pipe)

    def _child(self, index: int, script: int, gate: int, *, is_setup: bool) -> Child:
        assert self.group is not None
        files_max = self.host.settings.files_max
        return make_child(self.launch, index, self.group, script, gate, is_setup=is_setup, files_max=files_max)

    def _read_pipe(self, pipe: int) -> None:
        try:
            told = hear(pipe)
        except BlockingIOError:
            return
        if told and pipe in self.warm.untold:
            self._take_warm(pipe, told)
            return
        self.pipes[pipe].extend(told)
        if not told or len(self.pipes[pipe]) > TOLD_MAX:
            self._start_is_over(pipe)

    def _start_is_over(self, pipe: int) -> None:
        failure, is_warm = bytes(self.pipes[pipe]), pipe in self.warm.told
        index = self._unwatch(pipe)
        if index is not None:
            self.warm.after_first(lambda: self._start_cold(index))
        if not failure:
            self.warm.go_on()
        if failure and is_warm:
            self._fail_start(explain(failure), by_job=True)
        elif failure:
            self._fail_start(explain_failure(failure), by_job=is_own_failure(failure))
        elif self.stage == "setup":
            if not self.pipes and not self.report.prepared_ms:
                self.report.prepared_ms = now_ms()
                self.host.announce(self.report)
            self._launch_after_setup()
        elif not self.pipes and self.stage == "launching" and self.purpose is None:
            self._run()
        self.advance()

    def _run(self) -> None:
        """All replicas have been executed."""
        launch, tick = self.launch, tick_ms()
        self.stage = "running"
        self.began_ms, self.began_tick = now_ms(), tick
        self.report.phase = "running"
        self.report.started_ms = self.began_ms
        if self.limit_tick == NEVER and launch.limit_ms is not None:
            self.limit_tick = tick + launch.limit_ms
        if launch.limit_signal and self.limit_tick != NEVER:
            self.signal_tick = max(self.limit_tick - launch.limit_signal_before_ms, tick)
        self.progress_tick = tick + look_ms(saves=launch.saves)
        self._note()
        self.host.announce(self.report)
        if self.mains and self.bad_status and self.purpose is None:  # one failed before the last was executed
            self._end_gang()

    def _fail_start(self, reason: str, *, by_job: bool = False) -> None:
        if self.purpose is None or self.purpose == MOVED:
            self.end(Purpose("stopped", "unstartable" if by_job else "start_failed", reason), 0)
        else:
            self.advance()

    def _note(self) -> None:
        self.host.records.note_started(self.report.job, self.launch.generation, describe_start(self))

    # --- what the controller asks ------------------------------------------------------------------------------------

    def end(self, purpose: Purpose, wait_ms: int) -> None:
        """SIGTERM now, SIGKILL after `wait_ms`. A run whose main processes have ended keeps its own outcome."""
        if self.stage == "ended":
            return
        is_over = self.stage == "draining" and not self.mains and self.purpose is None
        if not is_over:
            self.purpose = purpose
        self.leave = None
        self.was_signalled = True
        self.kill_tick = min(self.kill_tick, tick_ms() + wait_ms)
        if self.purpose is not None and (self.mains or self.warm.untold):
            self._note_asked(self.purpose, self.kill_tick)
        self.stage = "draining"
        self.warm.held.clear()
        for link in self.warm.all():  # of which nobody knows when it would end; who has forked none hears of it
            self._unwatch(link)
        self.progress_tick = self.signal_tick = self.limit_tick = NEVER
        if self.group is not None:
            # One that was just forked is not in its group yet. A client without a container has nothing to wait for.
            pids = self._list_own() or list(self.mains)
            if wait_ms > 0:
                self.group.send(signal.SIGTERM, pids)
            self.group.send(signal.SIGCONT, pids)
            self.group.thaw()
        self.advance()

    def _note_asked(self, purpose: Purpose, by_tick: int) -> None:
        self.host.records.note_asked(self.report.job, self.launch.generation, describe_end(self, purpose, by_tick))

    def was_asked(self, asked: Asked) -> None:
        """Another keeper has begun to end it."""
        self.purpose = Purpose(asked.end, asked.value, asked.reason)
        self.request, self.was_signalled = asked.request, asked.was_signalled
        if asked.is_leave:
            self.leave = Leave(self.purpose, asked.request, asked.by_tick_ms)
        else:
            self.stage, self.kill_tick = "draining", asked.by_tick_ms

    def _list_own(self) -> list[int]:
        return list_own(self.launch, self.group, self.mains, is_in_setup=self.is_in_setup)

    def ask_to_leave(self, purpose: Purpose, action: str, grace_ms: int, replicas: int = 0) -> None:
        """Let the job save within `grace_ms`, then end it; at once, if it cannot save."""
        if self.stage != "running":
            self.end(purpose, 0)
            return
        assert self.group is not None
        launch, tick = self.launch, tick_ms()
        self.request = name = f"{self.report.job}.{self.report.generation}.{action}"
        request = contract.make_request(name, action, now_ms() + grace_ms, replicas or launch.world)
        number, hearing = find_hearing(self._list_own() if launch.saves_on_signal else [], launch.preempt_signal)
        has_spoken = os.path.lexists(f"{launch.job_dir}/{contract.PROGRESS}")
        self.was_signalled = bool(hearing)  # a handler that ends the process well has not completed the work
        can_save = self.was_signalled or (has_spoken and launch.saves_on_signal)
        if can_save:
            self.purpose, self.leave = purpose, Leave(purpose, name, tick + grace_ms)
            self._note_asked(purpose, self.leave.by_tick)
        contract.write_request(launch.job_dir, request, launch.uid, launch.gid)
        if not can_save:
            self.end(purpose, grace_ms)
            return
        self.group.send(number, hearing)
        self.progress_tick = tick + ANSWER_MS
        self.advance()

    def leave_for(self, purpose: Purpose, grace_ms: int) -> None:
        """As `ask_to_leave`, of a run that may have been asked already, to move."""
        self.successor = None
        if self.leave is not None:
            self.purpose = self.leave.purpose = purpose
            self.leave.by_tick = min(self.leave.by_tick, tick_ms() + grace_ms)
            self._note_asked(purpose, self.leave.by_tick)
            self.advance()
        elif self.stage == "draining" and self.purpose == MOVED:
            self.purpose = purpose
            self._note_asked(purpose, self.kill_tick)
        elif self.purpose is None:
            self.ask_to_leave(purpose, "leave", grace_ms)

    def adopted(self) -> None:
        """Go on with what another keeper began; `mains` are those of its processes that still run."""
        if self.stage == "running" and not self.began_ms:
            self._run()
        elif self.stage == "running":
            self.progress_tick = tick_ms()
            if self.launch.limit_signal and self.limit_tick != NEVER:
                self.signal_tick = max(self.limit_tick - self.launch.limit_signal_before_ms, tick_ms())
        self.advance()

    def freeze(self) -> None:
        """Stop every process where it is. A run that has not begun to work is ended instead, to begin anew later."""
        if self.stage != "running" or self.group is None:
            self.end(Purpose("suspended"), 0)
            return
        self.leave = self.purpose = None
        self.stage = "freezing"
        self.group.freeze()
        self.advance()

    def go_on(self, launch: Launch) -> None:
        """Thaw, as the generation of `launch`."""
        assert self.group is not None
        self.host.records.forget(self.report.job, self.launch.generation)
        contract.remove_request(launch.job_dir)
        self.launch = launch
        self.report = self.report.to_go_on(launch.generation)
        self.limit_tick = NEVER
        self.group.thaw()
        self._run()
        self.advance()

    def can_go_on(self, launch: Launch) -> bool:
        """Whether thawing is all that a start of `launch` needs."""
        if self.stage != "frozen" or launch.world != self.launch.world:
            return False
        return launch.is_movable or launch.devices == self.launch.devices

    # --- what happens ------------------------------------------------------------------------------------------------

    def child_ended(self, pid: int, status: int) -> None:
        """A main process is over, or what asked for the removal. status: as of waitpid, or UNKNOWN_STATUS."""
        if pid == self.removal.pid:
            self.removal.end(status, tick_ms(), self.report.job)
            self.advance()
            return
        self.mains.pop(pid, None)
        if self.mains:
            self._note_exit(pid, status)
        if status == UNKNOWN_STATUS:
            self.has_unknown_end = True
        elif status and not self.bad_status:
            self.bad_status = status
        if self.stage == "setup" and self.purpose is None:
            self._setup_ended(status)
        elif self.mains and status and self.stage == "running" and self.purpose is None:
            self._end_gang()
        self.advance()
        if not self.mains and self.stage == "draining":  # what is left behind may outlive this keeper
            self._note_exit(pid, status)

    def _note_exit(self, pid: int, status: int) -> None:
        """The run goes on without it: another keeper would not find how it ended."""
        if status != UNKNOWN_STATUS and pid in self.ticks:
            self.host.records.note_exit(self.report.job, self.launch.generation, pid, self.ticks[pid], status)

    def children_ended(self, statuses: list[int | None]) -> None:
        """Main processes were over when the run was adopted. statuses: as of waitpid; None = not known."""
        self.has_unknown_end = None in statuses
        self.bad_status = next((status for status in statuses if status), 0)
        if self.purpose is not None:
            return
        if self.stage == "setup" and statuses and not self.mains and not self.has_unknown_end:
            self._setup_ended(self.bad_status)
        elif self.mains and self.bad_status and self.stage == "running":
            self._end_gang()

    def _end_gang(self) -> None:
        """A gang without one member is no gang."""
        self.kill_tick = tick_ms() + self.host.settings.kill_wait_ms
        if self.group is not None:
            self.group.send(signal.SIGTERM, self._list_own())

    def _setup_ended(self, status: int) -> None:
        if status:
            said = "ended unseen" if status == UNKNOWN_STATUS else f"ended with {render_status(status)}"
            self._fail_start(f"the setup step {said}; see the job's output", by_job=status != UNKNOWN_STATUS)
        else:
            self._launch_after_setup()

    def _launch_after_setup(self) -> None:
        if self.purpose is None and not self.mains and not self.pipes:
            self.stage, self.is_in_setup = "launching", False
            self._spawn_all()

    def advance(self) -> None:
        """Do what is due, and say when to look again."""
        tick = tick_ms()
        if self.stage == "running":
            self._advance_running(tick)
        if self.stage == "freezing":
            self._advance_freezing()
        if self.stage in ("running", "launching", "setup", "frozen") and not self.mains and not self.pipes:
            self._drain(tick)
        if self.stage == "draining":
            self._advance_draining(tick)
        self.host.schedule(self, self._next_tick(tick))

    def _advance_running(self, tick: int) -> None:
        settings = self.host.settings
        if not self.mains:
            return
        if tick >= self.progress_tick:
            self.progress_tick = tick + (look_ms(saves=self.launch.saves) if self.leave is None else ANSWER_MS)
            self._look_at_progress()
        if self.leave is not None and self.stage == "running" and tick >= self.leave.by_tick:
            self.end(self.leave.purpose, 0)
        elif tick >= self.limit_tick:
            self.end(Purpose("finished", "TIMEOUT"), settings.kill_wait_ms)
        elif tick >= self.signal_tick:
            self.signal_tick = NEVER
            assert self.group is not None
            targets = find_limited(self.launch, self.group, self.mains, self._list_own())
            self.group.send(self.launch.limit_signal, targets)
        elif tick >= self.kill_tick and self.group is not None:
            self.kill_tick = NEVER
            self.group.kill()

    def _look_at_progress(self) -> None:
        said = contract.read_progress(self.launch.job_dir)
        if self.launch.saves:
            self._take_checkpoint(said)
        progress = -1 if said.progress is None else int(said.progress * 1000)
        if progress != self.report.progress:
            self.report.progress = progress
            self.host.announce(self.report)
        if self.leave is not None and said.answers == self.leave.request:
            # It has saved, and may need a moment to end as it should.
            self.leave.by_tick = min(self.leave.by_tick, tick_ms() + self.host.settings.leftover_wait_ms)
            self.progress_tick = NEVER

    def _take_checkpoint(self, said: contract.Progress) -> None:
        at_ms = min(said.checkpoint_at_ms, now_ms())
        if self.began_ms and at_ms >= self.began_ms and at_ms > self.report.saved_at_ms:
            self.report.saved_at_ms = at_ms
            self.report.saved_ms = max(self._done_ms(at_ms), self.report.saved_ms)
            self.host.records.note_saved(self.report.job, self.report.saved_ms)
            if self.stage != "draining":
                self.host.announce(self.report)

    def _done_ms(self, at_ms: int) -> int:
        """Work done up to a moment of this stretch, in time of the job as submitted, whatever the wall clock says."""
        passed_ms = min(max(at_ms - self.began_ms, 0), tick_ms() - self.began_tick)
        return self.done_ms + passed_ms * self.launch.work_milli // 1000

    def _advance_freezing(self) -> None:
        assert self.group is not None
        if not self.mains:
            self.group.thaw()
            self.stage = "running"
        elif self.group.is_frozen():
            self.stage = "frozen"
            self.done_ms, self.began_ms = self._done_ms(now_ms()), 0
            self.tell_suspended()

    def tell_suspended(self) -> None:
        """It stands still, or is as good as that."""
        self.report.phase, self.report.suspended_ms = "suspended", now_ms()
        self._note()
        self.host.announce(self.report)

    def _drain(self, tick: int) -> None:
        """The main processes are over; see what they left behind."""
        self.stage = "draining"
        self.leave = None
        if self.group is not None and not self.group.is_empty():
            self.group.thaw()
            self.group.send(signal.SIGTERM)
            self.kill_tick = min(self.kill_tick, tick + self.host.settings.leftover_wait_ms)

    def _advance_draining(self, tick: int) -> None:
        if not self.mains and not self.pipes and (self.group is None or self.group.is_empty()):
            if self._is_removed(tick):
                self._finish()
                return
            if self.launch.remover:  # nothing of it lives
                return
            self.kill_tick = min(self.kill_tick, tick)
        if self.group is not None and tick >= self.kill_tick:
            self.group.kill()
            if self.killed_tick == NEVER:
                self.killed_tick = tick
            if tick >= self.killed_tick + self.host.settings.quarantine_ms and not self.report.ended_ms:
                self._report_stuck()

    def _is_removed(self, tick: int) -> bool:
        """Whether no daemon will start anything of it any more, and no tool has left anything behind."""
        return self.group is None or self.removal.advance(self, self.group, tick)

    def _next_tick(self, tick: int) -> int:
        if self.stage == "ended":
            return NEVER
        if self.stage == "draining":
            if self.report.ended_ms:
                return tick + STUCK_MS
            self.poll_ms = min(self.poll_ms * 2, POLL_MAX_MS)
            return min(tick + self.poll_ms, max(self.kill_tick, tick + 1))
        if self.stage == "freezing":
            return tick + POLL_FIRST_MS
        if self.stage != "running":
            return NEVER
        due = [self.progress_tick, self.limit_tick, self.signal_tick, self.kill_tick]
        return min(*due, self.leave.by_tick if self.leave else NEVER)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _report_stuck(self) -> None:
        """Some process does not end. Tell what became of the run, and that its devices are not free."""
        assert self.group is not None
        pids = [*self.mains, *(pid for pid in self.group.pids() if pid not in self.mains)]
        names = [processes.read_name(pid) for pid in pids[:3]]
        tell_stuck(self.report, self.launch.devices, names, is_docker=bool(self.launch.docker))
        self._settle()

    def _finish(self) -> None:
        self.stage = "ended"
        if self.report.ended_ms:
            self.report.stuck = []
            self.host.announce(self.report)
        else:
            self._settle()
        with contextlib.suppress(OSError):
            if self.group is not None:
                self.group.remove()
        self.host.ended(self)

    def _settle(self) -> None:
        """Write down how the run ended, and tell."""
        said = contract.read_progress(self.launch.job_dir) if self.launch.saves else contract.NOTHING_SAID
        self._take_checkpoint(said)
        purpose = judge(describe_traces(self, said), said)
        report = self.report
        report.ended_ms = now_ms()
        if purpose.end in ("dropped", "moved", "suspended"):
            self._settle_quietly(purpose)
            return
        tell_end(report, purpose, self.bad_status)
        self.host.records.note_result(report)
        if report.generation != self.launch.generation:  # it was to move, and its end is that of the new generation
            self.host.records.forget(report.job, self.launch.generation)
        self.host.announce(report)

    def _settle_quietly(self, purpose: Purpose) -> None:
        """The generation is over, but not the job, or nobody asks."""
        if purpose.end == "suspended":
            self.report.phase, self.report.suspended_ms = "suspended", self.report.ended_ms
            self.host.announce(self.report)
        self.host.records.forget(self.report.job, self.launch.generation)
