"""The keeper's loop: one socket, its children, their pipes, and what is due."""

import json
import os
import resource
import selectors
import signal
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Final

from clearway.adapters.local.keeper import contract, processes
from clearway.adapters.local.keeper.cgroups import Groups
from clearway.adapters.local.keeper.home import Home, take_home
from clearway.adapters.local.keeper.host import (
    DROPPED,
    FIRST_VISIT_MS,
    MOVED,
    NEVER,
    UNKNOWN_STATUS,
    Purpose,
    Settings,
    now_ms,
    tick_ms,
)
from clearway.adapters.local.keeper.log import complain
from clearway.adapters.local.keeper.messages import Launch, Message, Report
from clearway.adapters.local.keeper.notes import is_partial
from clearway.adapters.local.keeper.records import Record, Records, Started
from clearway.adapters.local.keeper.runners import Runners
from clearway.adapters.local.keeper.runs import Run
from clearway.adapters.local.keeper.spawn import HANDLED
from clearway.adapters.local.keeper.warden import find_family, fork_keeper
from clearway.adapters.local.keeper.wire import Wire

LINE: Final = "line"
"""What a request has beside its own: itself, as it came."""
RESULTS_MAX: Final = 20_000
RESULTS_MS: Final = 3_600_000
"""Results that were told are kept so many and so long, for a controller that died before it wrote them down."""
STALE_MAX: Final = 1_000
"""Entries of runs that are over, or due at another time, that may stand in the heap before it is cleared of them."""
IDLE_CHECK_MS: Final = 1_000
PAY_MS: Final = 1_000
"""How often it is tried again to write what could not be written."""
UNTIDY_MAX: Final = 5_000
"""Runs that were told and whose files are still there. They are taken away when there is nothing else to do: it takes
the disk as long as a start, and starts go first."""


class Keeper:
    """Implements `host.Host`. home: the state directory. warden: pid of its parent."""

    def __init__(self, home: Home, name: str, settings: Settings, warden: int) -> None:
        self.settings = settings
        self._home = home
        self._warden = warden
        self.boot = processes.read_boot_id()
        self.records = Records(home.state)
        self.groups = Groups(name, is_forbidden=settings.is_without_cgroups)
        self._runs: dict[int, Run] = {}
        self._behind: dict[int, Run] = {}
        self._generations: dict[int, int] = {}
        self._results: dict[tuple[int, int], tuple[int, Report]] = {}
        self._owners: dict[int, Run] = {}
        self.runners = Runners(self.groups, settings, self._await_runner, self._owners)
        self._readers: dict[int, Callable[[], None]] = {}
        self._due: list[tuple[int, int, Run]] = []
        self._sequence = 0
        self._untidy: deque[tuple[tuple[int, int], Report]] = deque()
        self._busy_tick = self._pay_tick = tick_ms()
        self._patience_ms = max(settings.idle_exit_ms, FIRST_VISIT_MS)
        self._selector = selectors.EpollSelector()
        self._wire = Wire(self._selector, self._readers, lambda line: self._guard(lambda: self._obey(line)))
        self._is_over = False
        self._operations: dict[str, Callable[[Message], None]] = {
            "connect": self._connect,
            "start": self._start,
            "stop": self._stop,
            "suspend": self._suspend,
            "fail": self._fail,
            "told": self._told,
            "ping": self._ping,
            "shutdown": self._shutdown,
        }

    # --- the loop ----------------------------------------------------------------------------------------------------

    def serve(self, listener: socket.socket) -> None:
        """Until there is nothing to keep for a while, or a controller asks for the end."""
        wake_reader, wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in HANDLED[1:]:
            signal.signal(number, signal.SIG_IGN)  # who wants to end it ends its jobs first: `shutdown`
        self.watch(wake_reader, lambda: self._reap(wake_reader))
        self.watch(listener.fileno(), lambda: self._accept(listener))
        self._adopt()
        while not self._is_over:
            self._wait()
            self._advance_due()
        self.records.pay()
        if self._home.is_here:
            self._tidy(len(self._untidy))
        self.runners.end_all()
        self.groups.leave(*find_family(self._warden))

    def _wait(self) -> None:
        due = self._due[0][0] if self._due else tick_ms() + IDLE_CHECK_MS
        wait_s = 0 if self._untidy else min(max(due - tick_ms(), 0), IDLE_CHECK_MS) / 1000
        ready = self._selector.select(wait_s)
        if not ready or len(self._untidy) > UNTIDY_MAX:
            self._tidy(1)
        for key, mask, take in [(key, mask, self._readers.get(key.fd)) for key, mask in ready]:
            # One that came before may have closed it, and opened another of that number, which is not ready.
            if take is not None and mask & selectors.EVENT_READ and self._readers.get(key.fd) is take:
                self._guard(take)
            if self._wire.is_of(key.fd) and mask & selectors.EVENT_WRITE:
                self._wire.flush()
        self._pay()
        self.runners.look()
        if self._home.is_newly_lost(tick_ms()):
            self._give_up()
        if not self._due or not self._runs:  # what is due of a run that has ended, such as its time limit, stays there
            self._exit_if_idle()

    def _pay(self) -> None:
        """Write what could not be written, once in a while."""
        if self.records.obstacle and tick_ms() >= self._pay_tick:
            self._pay_tick = tick_ms() + PAY_MS
            self.records.pay()

    def _give_up(self) -> None:
        """The state was removed: nobody finds the runs again, and another keeper may give their devices away."""
        self._wire.hang_up()
        self._untidy.clear()
        self._behind.clear()
        self._patience_ms = 0
        for run in list(self._runs.values()):
            run.successor = None
            self._guard(lambda run=run: run.end(DROPPED, self.settings.kill_wait_ms))  # type: ignore[misc]

    def _guard(self, take: Callable[[], None]) -> None:
        """A fault of ours with one run must not end the others."""
        try:
            take()
        except Exception:
            complain(traceback.format_exc())

    def _advance_due(self) -> None:
        tick = tick_ms()
        while self._due and self._due[0][0] <= tick:
            due, _, run = heappop(self._due)
            if run.due_tick == due:
                run.due_tick = NEVER
                self._guard(run.advance)

    def _exit_if_idle(self) -> None:
        if self._runs or self._behind or self._wire.is_open or self.records.owes_lines:
            self._busy_tick = tick_ms()
        elif tick_ms() - max(self._busy_tick, self._wire.left_tick) > self._patience_ms:
            self._is_over = True

    # --- what runs need ----------------------------------------------------------------------------------------------

    def announce(self, report: Report) -> None:
        """See `Host.announce`."""
        if report.phase == "ended":
            self._keep(report)
        self._wire.send({"op": "report", "run": report.to_message()})

    def _keep(self, report: Report) -> None:
        tick = tick_ms()
        self._results[report.job, report.generation] = (tick, report)
        while self._results:
            key, (at, oldest) = next(iter(self._results.items()))
            if oldest.stuck or (len(self._results) <= RESULTS_MAX and tick - at <= RESULTS_MS):
                break
            self._forget(key)

    def own(self, pid: int, run: Run) -> None:
        """See `Host.own`."""
        self._owners[pid] = run

    def watch(self, descriptor: int, take: Callable[[], None]) -> None:
        """See `Host.watch`."""
        self._readers[descriptor] = take
        self._selector.register(descriptor, selectors.EVENT_READ)

    def unwatch(self, descriptor: int) -> None:
        """See `Host.unwatch`."""
        del self._readers[descriptor]
        self._selector.unregister(descriptor)
        os.close(descriptor)

    def _await_runner(self, pipe: int) -> None:
        """A runner that cannot be executed is found when a task is handed to it."""

        def read() -> None:
            if not os.read(pipe, 4096):
                self.unwatch(pipe)

        self.watch(pipe, read)

    def schedule(self, run: Run, due_tick: int) -> None:
        """See `Host.schedule`."""
        if due_tick != run.due_tick:
            run.due_tick = due_tick
            if due_tick != NEVER:
                self._sequence += 1
                heappush(self._due, (due_tick, self._sequence, run))
                if len(self._due) > STALE_MAX + 4 * len(self._runs):
                    self._due = [entry for entry in self._due if entry[2].due_tick == entry[0]]
                    heapify(self._due)

    def ended(self, run: Run) -> None:
        """See `Host.ended`."""
        job = run.report.job
        for runs in (self._runs, self._behind):  # one that waited has ended before it began
            if runs.get(job) is run:
                del runs[job]
        successor = run.successor
        if successor is not None and run.report.end == "":
            self._take_over(run, successor)
        behind = self._behind.pop(job, None) if job not in self._runs else None
        if behind is not None:
            self._begin(behind)

    def _take_over(self, run: Run, launch: Launch) -> None:
        """The old processes of a job that moves are gone: start the new ones."""
        new = self._make_run(launch)
        new.report.resized_ms = max(run.report.ended_ms, 1)
        new.limit_tick = run.carried_limit_tick
        self.announce(new.report)
        self._begin(new)

    def _reap(self, wake_reader: int) -> None:
        os.read(wake_reader, 65536)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            run = self._owners.pop(pid, None)
            if run is not None:
                self._guard(lambda run=run, pid=pid, status=status: run.child_ended(pid, status))  # type: ignore[misc]

    # --- requests ----------------------------------------------------------------------------------------------------

    def _start(self, message: Message) -> None:
        launch = Launch.of_message(message["launch"])
        job = launch.job
        if launch.generation <= self._generations.get(job, 0):
            return
        try:
            is_new = self.records.begin(launch, message[LINE])
        except OSError as error:
            self._refuse(launch, f"write down its start: {error.strerror}")
            return
        if not is_new:
            return
        self._generations[job] = launch.generation
        old = self._runs.get(job)
        if launch.is_move:
            self._move(launch, old)
        elif old is not None and old.can_go_on(launch):
            old.go_on(launch)
        elif old is not None and not old.report.ended_ms:
            self._behind[job] = self._make_run(launch)
            old.successor = None
            old.end(DROPPED, 0)
        else:
            self._begin(self._make_run(launch))

    def _refuse(self, launch: Launch, reason: str) -> None:
        """A start that fails before there is anything of it. What the job has of before ends too: its place is the
        controller's again when it hears of this."""
        self._generations[launch.job] = launch.generation  # else it might be started once that was told
        self._behind.pop(launch.job, None)
        purpose, old = Purpose("stopped", "start_failed", reason), self._runs.get(launch.job)
        if old is None or old.report.ended_ms:
            self._make_run(launch).end(purpose, 0)
        elif launch.is_move:  # it saves first, as for the move
            old.leave_for(purpose, launch.grace_ms)
        else:
            old.successor = None
            old.report.generation = launch.generation
            old.end(purpose, 0)

    def _make_run(self, launch: Launch) -> Run:
        saved_ms = self.records.read_saved(launch.job) if launch.generation > 1 else 0
        report = Report(job=launch.job, generation=launch.generation, saved_ms=saved_ms, job_dir=launch.job_dir)
        return Run(self, launch, f"{launch.job}.{launch.generation}", report, done_ms=saved_ms)

    def _begin(self, run: Run) -> None:
        self._runs[run.report.job] = run
        run.begin()

    def _move(self, launch: Launch, old: Run | None) -> None:
        if old is None or old.report.ended_ms:
            self._move_nothing(launch)
            return
        old.successor = launch
        old.carried_limit_tick = old.limit_tick
        old.report.generation = launch.generation
        action = "migrate" if launch.world == old.launch.world else "resize"
        old.ask_to_leave(MOVED, action, launch.grace_ms, launch.world)

    def _move_nothing(self, launch: Launch) -> None:
        """The job ended while it was being told to move: its end counts for the new generation too."""
        known = [report for (job, _), (_, report) in self._results.items() if job == launch.job]
        reason = "it had ended before it could move, and how is not known"
        lost = Report(job=launch.job, generation=0, end="stopped", cause="node_failed", reason=reason)
        message = (known[-1] if known else lost).to_message()
        report = Report.of_message({**message, "generation": launch.generation, "phase": "ended", "stuck": []})
        report.ended_ms = report.ended_ms or 1
        self.records.note_result(report)
        self.announce(report)

    def _find(self, message: Message) -> Run | None:
        """The run that a command means; None = it is gone, or the command is of an older generation."""
        run = self._behind.get(message["job"]) or self._runs.get(message["job"])
        if run is None or message["generation"] < run.report.generation or run.report.ended_ms:
            return None
        return run

    def _stop(self, message: Message) -> None:
        run, job, cause = self._find(message), message["job"], message["cause"]
        if run is None:
            if cause is None and job not in self._runs:
                self._stop_nothing(job, message["generation"])
            return
        grace_ms = message["grace_ms"]
        if cause is None:
            run.successor = None
            is_inactive = run.stage in ("queued", "frozen", "freezing")
            wait_ms = 0 if is_inactive else max(grace_ms, self.settings.kill_wait_ms)
            run.end(Purpose("finished", "CANCELLED"), wait_ms)
        elif run.stage not in ("frozen", "freezing"):
            run.leave_for(Purpose("stopped", cause), grace_ms)

    def _stop_nothing(self, job: int, generation: int) -> None:
        """A frozen job was taken back of which nothing is left. Who knows of a better end has told it already."""
        if (job, generation) not in self._results:
            ended = Report(job=job, generation=generation, phase="ended", end="finished", outcome="CANCELLED")
            ended.ended_ms = now_ms()
            self._wire.send({"op": "report", "run": ended.to_message()})

    def _suspend(self, message: Message) -> None:
        run = self._find(message)
        if run is not None and run.stage in ("queued", "setup", "launching", "running") and run.leave is None:
            run.freeze()

    def _fail(self, message: Message) -> None:
        run = self._find(message)
        if run is None:
            return
        run.successor = None
        if run.stage in ("frozen", "freezing"):
            if run.report.phase != "suspended":  # else nobody would ever hear of it again
                run.tell_suspended()
            run.end(DROPPED, 0)
        else:
            run.end(Purpose("stopped", message["cause"], message["reason"]), 0)

    def _ping(self, _message: Message) -> None:
        """Whether we are alive is asked by somebody who waits for the answer."""
        self._wire.send({"op": "pong"})

    def _shutdown(self, _message: Message) -> None:
        """End, if nothing runs."""
        self._is_over = not self._runs and not self._behind

    # --- finding again -----------------------------------------------------------------------------------------------

    def _connect(self, message: Message) -> None:
        wait_ms = message.get("kill_wait_ms", self.settings.kill_wait_ms)  # configured anew, perhaps
        self.settings = replace(self.settings, kill_wait_ms=wait_ms)
        held = {(job, generation) for job, *generations in message["holdings"] for generation in generations}
        for key in list(self._results):
            if key not in held:
                self._forget(key)
        self._tidy(len(self._untidy))  # one that has lost its memory gives the same numbers again
        for job, run in list(self._runs.items()):
            if (job, run.report.generation) not in held and job not in self._behind:
                run.successor = None
                run.end(DROPPED, self.settings.leftover_wait_ms)
        for job, run in list(self._behind.items()):
            if (job, run.report.generation) not in held:
                del self._behind[job]
        reports = [report for _, report in self._results.values()]
        for run in (*self._runs.values(), *self._behind.values()):
            report = run.report
            if report.stuck or ((report.job, report.generation) in held and not report.ended_ms):
                reports += [report]
        known = [report.to_message() for report in reports]
        self._wire.is_greeted = True
        self._wire.send(
            {"op": "connected", "runs": known, "notes": self.groups.notes, "devices": self.groups.device_obstacle}
        )

    def _told(self, message: Message) -> None:
        """The controller has written down that these ended."""
        for job, generation in message["ended"]:
            if (job, generation) in self._results:
                self._forget((job, generation))

    def _forget(self, key: tuple[int, int]) -> None:
        """Nobody will ask for this result again. One whose processes do not end is kept, to be told to all who come."""
        _, report = self._results[key]
        if report.stuck:
            return
        del self._results[key]
        if report.end == "finished":
            self._generations.pop(report.job, None)
        self._untidy.append((key, report))

    def _tidy(self, most: int) -> None:
        """Take away the files of the first of those that are forgotten."""
        for _ in range(min(most, len(self._untidy))):
            key, report = self._untidy.popleft()
            if report.end == "finished":
                if report.saved_ms:
                    self.records.forget_saved(report.job)
                if report.job_dir:
                    contract.remove_job_dir(report.job_dir)
            self.records.forget(*key)

    def _adopt(self) -> None:
        """Take over what an earlier keeper left."""
        self.runners.end_earlier()
        for job, generation in self.records.list():
            self._generations[job] = generation
            record = self.records.read(job, generation)
            if record.result is not None:
                self._results[job, generation] = (tick_ms(), record.result)
                if record.result.stuck and record.launch is not None and record.started is not None:
                    self._adopt_stuck(record.launch, record.started, record.result)
            elif record.launch is None:
                self._generations.pop(job)
                self.records.forget(job, generation)
            else:
                launch = record.launch
                self._guard(lambda launch=launch, record=record: self._adopt_run(launch, record))  # type: ignore[misc]
        for run in list(self._runs.values()):  # all is known of each by now, also where it is to move
            self._guard(run.adopted)

    def _adopt_run(self, launch: Launch, record: Record) -> None:
        job, before, started = launch.job, self._runs.get(launch.job), record.started
        if started is None and launch.is_move and before is not None:
            self._adopt_move(launch, before)
            return
        if before is not None:  # the older one was being ended so that this could start
            before.end(DROPPED, 0)
        run = self._make_run(launch)
        self._runs[job] = run
        if started is None or (started.boot == self.boot and is_partial(launch, started) and record.asked is None):
            run.group = self.groups.open(run.mark)
            # Some of its processes may have run: it is not a start that failed, which is as if it had never been.
            run.end(Purpose("stopped", "node_failed", "the keeper was ended while it started the job"), 0)
        elif started.boot != self.boot:
            run.end(Purpose("stopped", "node_failed", "the machine restarted"), 0)
        else:
            self._adopt_processes(run, started, record)

    def _adopt_move(self, launch: Launch, old: Run) -> None:
        """What it is to take over from may have been asked already, or have ended: then its end is that of `launch`."""
        if old.purpose is None and old.mains:
            old.adopted()
            self._move(launch, old)
            return
        old.report.generation = launch.generation
        if old.purpose == MOVED:
            old.successor, old.carried_limit_tick = launch, old.limit_tick

    def _adopt_stuck(self, launch: Launch, started: Started, report: Report) -> None:
        """How the run ended was told, but some of its processes did not."""
        run = Run(self, launch, started.mark, report, stage="draining", kill_tick=0, killed_tick=0)
        if started.boot == self.boot:
            run.group = self.groups.open(started.mark)
        run.advance()

    def _adopt_processes(self, run: Run, started: Started, record: Record) -> None:
        run.mark = started.mark
        run.group = self.groups.open(started.mark)
        run.report.started_ms, run.report.resized_ms = started.started_ms, started.resized_ms
        run.report.prepared_ms = now_ms() if started.is_setup else 0
        run.began_ms, run.done_ms = started.began_ms, started.done_ms
        run.began_tick = tick_ms() - max(now_ms() - started.began_ms, 0)
        run.limit_tick = started.limit_tick_ms or NEVER
        is_frozen = started.suspended_ms > 0
        run.is_in_setup = started.is_setup
        run.stage = "setup" if started.is_setup else "frozen" if is_frozen else "running"
        run.report.suspended_ms = started.suspended_ms
        run.report.phase = "suspended" if is_frozen else "running"
        run.report.goes_on = started.mark != f"{run.report.job}.{run.report.generation}"
        gone = [each for each in started.processes if not self._follow(run, *each)]
        if record.asked is not None:
            run.was_asked(record.asked)
        gone_statuses = [self._find_exit(run, pid, ticks) for pid, ticks, _ in gone]
        run.children_ended([*record.list_earlier_exits(), *gone_statuses])

    def _find_exit(self, run: Run, pid: int, ticks: int) -> int | None:
        """How a process ended that is not our child, by the kernel while its parent has not waited for it, then by the
        parent, if that is a warden of ours."""
        status = processes.read_zombie(pid, ticks)
        if status is None:
            status = self.records.find_exit(run.report.job, pid, ticks)
        return status

    def _follow(self, run: Run, pid: int, ticks: int, rank: int) -> bool:
        """Be told of the end of a process that is not our child; False = it has ended."""
        if not processes.is_same_alive(pid, ticks):
            return False
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            return False
        run.mains[pid], run.ticks[pid] = rank, ticks

        def over() -> None:
            status = processes.read_exit_status(descriptor, pid)
            if status is None:
                status = self._find_exit(run, pid, ticks)
            self.unwatch(descriptor)
            run.child_ended(pid, UNKNOWN_STATUS if status is None else status)

        self.watch(descriptor, over)
        return True

    # --- the socket --------------------------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        if self._wire.accept(listener, is_refused=self._home.is_lost):
            self._patience_ms = self.settings.idle_exit_ms

    def _obey(self, line: bytes) -> None:
        message = json.loads(line)
        message[LINE] = line + b"\n"
        self._operations[message["op"]](message)


def main() -> None:
    """Arguments: the state directory, a name for control groups, settings as JSON. Returns at once in the process that
    was called, when the keeper listens in another; exit status 0 also where one listens already."""
    state, name, settings = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    os.umask(0o077)
    home = take_home(state)
    if home is None:
        return
    listener = home.listen()
    if os.fork():
        return
    os.setsid()
    os.chdir("/")
    warden = fork_keeper(state, home.lock, listener.fileno())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    processes.become_subreaper()
    keeper = Keeper(home, name, Settings(**settings, files_max=soft), warden)
    keeper.groups.shelter(*find_family(warden))
    try:
        keeper.serve(listener)
    finally:
        home.leave()
