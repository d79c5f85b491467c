"""The local backend: carries out commands by the keeper, and turns its reports into events.

Implements `clearway.ports.backend.LastingBackend`. On top of its rules:

- Nothing here decides or remembers for long: what runs is the keeper's, what should run is the journal's. A keeper that
  was lost is replaced, told again what it may not have heard, and reports what it finds.
- A run's devices are free when the last of its processes is gone. Where SIGKILL does not end one, `DeviceDown` with its
  pid comes before the end of the run, and `DeviceUp` once it is gone.
- A device that fails is told together with the end of the jobs on it, which is when their processes are gone.
- A keeper that does not answer is no reason to give up its jobs: its nodes are down until it answers, nothing new
  starts, what runs goes on, and what is asked meanwhile is done when it has come to itself, once.
"""

import logging
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final

import numpy as np

from clearway.adapters.local.accounts import Account, AccountError, find_account
from clearway.adapters.local.client import LOST, KeeperClient, KeeperError, KeeperSilentError, group_name
from clearway.adapters.local.config import LocalConfig
from clearway.adapters.local.containers import ContainerError
from clearway.adapters.local.devices import DeviceSource, Health
from clearway.adapters.local.docker import Docker, DockerSilentError
from clearway.adapters.local.keeper.messages import Message, Report
from clearway.adapters.local.launching import Task, choose_port, make_launch
from clearway.adapters.local.notes import Device, Failure, JobNote
from clearway.adapters.local.pulse import SILENT, Pulse
from clearway.adapters.local.words import make_end, make_fail, make_stop, not_after
from clearway.model.allocation import Allocation
from clearway.model.cluster import NodeSpec
from clearway.model.events import (
    CheckpointSaved,
    DeviceDown,
    DeviceUp,
    Event,
    JobFinished,
    JobPreparing,
    JobResized,
    JobStarted,
    JobStopped,
    JobSuspended,
    NodeDown,
    NodeUp,
)
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.ports.backend import BackendCommand, Holding, World

_LOG = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often the devices are looked at. A failed one is known so much later at most; NVML takes some milliseconds."""
CONNECTS_MAX: Final = 3
"""Keepers tried in a row; two can only end under our hands if somebody kills them."""
REOPEN_MS: Final = 1_000
"""How often it is tried to start a keeper where that fails."""
GENERATIONS_MAX: Final = 100_000
"""Jobs of which the last generation is known, so that a start is not repeated; those that ended longest ago are
forgotten, by drivers too."""
OLD_KEEPER: Final = "the keeper is of an older version; it ends where no job and no control plane has run for a while"
"""Of one whose answer does not say whether devices can be denied."""
FAIL_WAIT_NS: Final = 15_000_000_000
"""Longest wait for the end of jobs on what is down when a driver connects: more than until they are called stuck."""


class LocalBackend:
    """config: see LocalConfig. devices: what this machine has."""

    def __init__(self, config: LocalConfig, devices: DeviceSource) -> None:
        self._config = config
        self._devices = devices
        self._group = group_name(config.state)
        self._docker = Docker(config.docker_host, wake=self._wake)
        self._jobs_folder = config.jobs_folder.absolute()
        self._client: KeeperClient | None = None
        self._world: World | None = None
        self._jobs: dict[JobId, JobNote] = {}
        self._generations: dict[JobId, int] = {}
        self._reopen_ms = 0
        self._due: list[Event] = []
        self._told: list[list[int]] = []
        self._failures: list[Failure] = []
        self._down = Health()
        self._seen = Health()
        self._stuck: dict[Device, JobId] = {}
        self._avoided: set[Device] = set()
        self._accounts: dict[str, Account] = {}
        self._closing = threading.Event()
        self._watcher: threading.Thread | None = None
        self._pulse = Pulse()
        self._is_greeted = False
        self._said: dict[JobId, float] = {}
        self._obstacles: set[str] = set()
        self.notes: tuple[str, ...] = ()
        self.uuids = devices.uuids()
        self._performers: Mapping[type, Callable[..., None]] = {
            Start: self._start,
            Stop: self._stop,
            Suspend: self._suspend,
            Resize: self._move,
            Migrate: self._move,
            Cap: self._cap,
        }

    # --- the port ----------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[NodeSpec, ...]:
        """See `LastingBackend.nodes`."""
        return self._devices.nodes()

    def connect(self, now_ms: int, holdings: Sequence[Holding], world: World) -> Sequence[Event]:
        """See `LastingBackend.connect`. Raises KeeperError where no keeper can be started. `notes` says afterwards what
        this machine cannot do."""
        self._world = world
        for holding in holdings:
            note = self._note(holding.job, holding.generation, holding.allocation)
            note.is_started, note.is_suspended = holding.is_started, holding.is_suspended
            note.before, note.lost = holding.generation_before, holding.lost
        self._open(now_ms, world)
        self._seen = self._devices.look()
        self._notice_failures(now_ms)
        self._await_failures(now_ms)
        self._watcher = threading.Thread(target=self._watch, name="devices", daemon=True)
        self._watcher.start()
        return self._hand_over()

    def perform(self, now_ms: int, command: BackendCommand) -> None:
        """See `Backend.perform`."""
        self._performers[type(command)](now_ms, command)

    def observe(self, now_ms: int) -> Sequence[Event]:
        """See `Backend.observe`."""
        if self._told:
            self._send({"op": "told", "ended": self._told})
        self._receive(now_ms)
        self._launch_waiting(now_ms)
        self._listen(now_ms)
        self._notice_failures(now_ms)
        self._tell_failures()
        return self._hand_over()

    def progress(self) -> Mapping[JobId, float]:
        """See `LastingBackend.progress`."""
        said, self._said = self._said, {}
        return said

    def close(self) -> None:
        """See `LastingBackend.close`."""
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join()
        if self._client is not None:
            self._client.close()

    def _hand_over(self) -> Sequence[Event]:
        """All that is due. When the driver asks again, it has written down what it got now."""
        events, self._due = self._due, []
        self._told = [[event.job, event.generation] for event in events if isinstance(event, JobFinished | JobStopped)]
        return events

    # --- the keeper --------------------------------------------------------------------------------------------------

    def _open(self, now_ms: int, world: World) -> None:
        """Connect, and learn what became of every job that is known; later, if the keeper does not answer now."""
        self._client, answer = self._shake_hands(world)
        self._is_greeted = False
        if answer is None:
            self._pulse.give_up()
            self._listen(now_ms)
        else:
            self._find_again(now_ms, self._client, answer)

    def _find_again(self, now_ms: int, client: KeeperClient, answer: Message) -> None:
        """The keeper has said what it has. No other message of it comes before that."""
        self._is_greeted = True
        self._pulse.hear(is_answer=True)
        self.notes = (*answer["notes"], *self._devices.note_obstacle(answer.get("devices", OLD_KEEPER)))
        reports = [Report.of_message(message) for message in answer["runs"]]
        for report in sorted(reports, key=lambda report: (report.job, report.generation)):
            self._take(now_ms, report)
        for job in sorted(set(self._stuck.values()) - {report.job for report in reports if report.stuck}):
            self._free_stuck(now_ms, job)  # its processes ended while no keeper lived
        known = {(report.job, report.generation) for report in reports}
        for job, note in list(self._jobs.items()):
            if not known & {(job, note.generation), (job, note.before)}:
                self._tell_again(now_ms, job, note)
            elif note.before and note.start is not None:
                client.send(note.start)
        self._end_lost({report.job for report in reports})
        for note in self._jobs.values():
            if note.stop is not None and note.waiting is None:
                client.send(note.stop)

    def _end_lost(self, running: Container[int]) -> None:
        """Have those end that lie on what is not there any more; nothing is told before their processes are gone."""
        jobs = {job: note for job, note in self._jobs.items() if note.lost is not None and job in running}
        for job, note in jobs.items():
            assert note.lost is not None
            note.stop = make_fail(job, note.generation, note.lost.cause, note.lost.reason)
        if jobs:
            self._failures.append(Failure([], set(jobs)))

    def _shake_hands(self, world: World) -> tuple[KeeperClient, Message | None]:
        """A connection, and what the keeper answers; None = it is there and does not. One that is just ending hangs up,
        and another is started."""
        holdings = [[job, note.generation, note.before or note.generation] for job, note in self._jobs.items()]
        for tries_left in reversed(range(CONNECTS_MAX)):
            client = KeeperClient(self._config, world.wake)
            kill_wait_ms = self._config.settings.kill_wait_ms
            client.send({"op": "connect", "holdings": holdings, "kill_wait_ms": kill_wait_ms})
            try:
                return client, client.wait_for("connected")
            except KeeperSilentError:
                return client, None
            except KeeperError:
                client.close()
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    def _tell_again(self, now_ms: int, job: JobId, note: JobNote) -> None:
        """The keeper does not know this generation: it did not hear of it, or nothing of it is left."""
        if note.start is not None:
            self._send(note.start)
        elif note.is_started and not note.is_suspended:
            del self._jobs[job]
            reason = "no trace of its processes was found"
            self._tell_end(job, JobStopped(now_ms, job, note.generation, StopCause.NODE_FAILED, 0, reason))

    def _receive(self, now_ms: int) -> None:
        if self._client is None:
            self._reopen(now_ms)
        for message in self._client.take() if self._client is not None else ():
            if message["op"] == LOST:
                self._reopen(now_ms)
                break
            self._pulse.hear(is_answer=message["op"] == "pong")
            if message["op"] == "connected" and self._client is not None:
                self._find_again(now_ms, self._client, message)
            elif message["op"] == "report":
                self._take(now_ms, Report.of_message(message["run"]))

    def _listen(self, now_ms: int) -> None:
        """Ask the keeper for a sign of life, and tell when none comes, and when it does again."""
        pulse = self._pulse
        if self._client is not None and self._is_greeted and pulse.ask():
            self._send({"op": "ping"})
        if not pulse.take_turn():
            return
        names = [node.name for node in self._devices.nodes() if node.name not in self._down.nodes]
        if pulse.is_silent:
            _LOG.error("the keeper does not answer; its jobs are left alone, and nothing new starts")
            self._due += [NodeDown(now_ms, name, SILENT) for name in names]
        else:
            _LOG.warning("the keeper answers again")
            up = [NodeUp(now_ms, name) for name in names]
            (self._failures[-1].events if self._failures else self._due).extend(up)

    def _reopen(self, now_ms: int) -> None:
        """The keeper is gone: have another. Where that cannot be now (a full disk), jobs run on, what is performed is
        told later, and it is tried again each second."""
        assert self._world is not None
        if self._client is not None:
            self._client.close()
            self._client = None
        self._pulse.owes = True  # as long as there is none
        if now_ms < self._reopen_ms:
            return
        try:
            self._open(now_ms, self._world)
        except (KeeperError, OSError) as error:
            self._reopen_ms = now_ms + REOPEN_MS
            if self.notes != (str(error),):  # once, not each second
                _LOG.error("there is no keeper; jobs run on: %s", error)
            self.notes = (str(error),)

    def _send(self, message: Message) -> None:
        """Without a keeper nothing is sent: the next one is told by what `_jobs` has."""
        if self._client is not None:
            self._client.send(message)

    # --- commands ----------------------------------------------------------------------------------------------------

    def _note(self, job: JobId, generation: int, allocation: Allocation) -> JobNote:
        assert self._world is not None, "connect comes first"
        place = self._world.locate(allocation)
        note = JobNote(
            generation,
            devices=frozenset((node, index) for node, indices in place for index in indices),
            nodes=frozenset(node for node, _ in place),
        )
        self._jobs[job] = note
        self._generations.pop(job, None)
        self._generations[job] = generation
        if len(self._generations) > GENERATIONS_MAX:
            old = [each for each in list(self._generations)[: GENERATIONS_MAX // 2] if each not in self._jobs]
            for each in old:
                del self._generations[each]
        return note

    def _start(self, now_ms: int, command: Start) -> None:
        known = self._jobs.get(command.job)
        if command.generation <= self._generations.get(command.job, 0) and not _is_unheard(known, command.generation):
            return
        note = self._note(command.job, command.generation, command.allocation)
        if not self._fail_at_once(now_ms, command.job, note):
            self._launch(now_ms, command, is_move=False)

    def _fail_at_once(self, now_ms: int, job: JobId, note: JobNote) -> bool:
        """A start on what has failed, and is about to be told as such, ends with it."""
        nodes = [reason for node, reason in self._down.nodes.items() if node in note.nodes]
        devices = [reason for device, reason in self._down.devices.items() if device in note.devices]
        if not nodes and not devices:
            return False
        del self._jobs[job]
        cause = StopCause.NODE_FAILED if nodes else StopCause.DEVICE_FAILED
        event = JobStopped(now_ms, job, note.generation, cause, 0, (nodes + devices)[0])
        if self._failures:
            self._failures[-1].told[job] = event
        else:
            self._due.append(event)
        self._wake()
        return True

    def _launch(self, now_ms: int, command: Start | Resize | Migrate, *, is_move: bool) -> None:
        assert self._world is not None
        spec, run = self._world.launch(command.job)
        place = self._world.locate(command.allocation)
        try:
            task = Task(
                spec=spec,
                run=run,
                generation=command.generation,
                place=place,
                account=self._account(self._config.account or spec.user),
                job_dir=self._jobs_folder / str(command.job),
                now_ms=now_ms,
                group=self._group,
                port=choose_port(command.job, len(place)),
                is_move=is_move,
                is_movable=self._devices.is_virtual or spec.request.devices == 0,
            )
            launch = make_launch(task, self._devices, self._docker)
        except DockerSilentError:
            self._jobs[command.job].waiting = command
            return
        except (AccountError, ContainerError, ValueError) as error:
            self._refuse(now_ms, command.job, str(error))
            return
        message = {"op": "start", "launch": launch.to_message()}
        self._jobs[command.job].start = message
        self._send(message)

    def _launch_waiting(self, now_ms: int) -> None:
        """Docker's daemon has answered, or did not in time."""
        if self._docker.is_asked:
            return
        for job, note in list(self._jobs.items()):
            if (command := note.waiting) is not None:
                note.waiting = None
                self._launch(now_ms, command, is_move=note.before != 0)
                if note.stop is not None and self._jobs.get(job) is note:
                    self._tell(note, note.stop)

    def _refuse(self, now_ms: int, job: JobId, reason: str) -> None:
        note = self._jobs[job]
        if note.before:  # what it had until now runs, and has its devices
            self._tell(note, make_fail(job, note.generation, StopCause.UNSTARTABLE, reason))
            return
        del self._jobs[job]
        self._tell_end(job, JobStopped(now_ms, job, note.generation, StopCause.UNSTARTABLE, 0, reason))
        self._wake()

    def _tell(self, note: JobNote, stop: Message) -> None:
        """Have the keeper end or freeze a job, when it has heard of its start."""
        note.stop = stop
        if note.waiting is None:
            self._send(stop)

    def _wake(self) -> None:
        if self._world is not None:
            self._world.wake()

    def _account(self, name: str) -> Account:
        if name not in self._accounts:
            self._accounts[name] = find_account(name)
        return self._accounts[name]

    def _stop(self, _now_ms: int, command: Stop) -> None:
        note = self._jobs.get(command.job)
        if note is None or command.generation < note.generation:
            return
        cause = None if command.cause is None else command.cause.value
        self._tell(note, make_stop(command.job, note.generation, command.grace_ms, cause))

    def _suspend(self, _now_ms: int, command: Suspend) -> None:
        note = self._jobs.get(command.job)
        if note is not None and command.generation >= note.generation and not note.is_suspended:
            self._tell(note, {"op": "suspend", "job": command.job, "generation": note.generation})

    def _move(self, now_ms: int, command: Resize | Migrate) -> None:
        old = self._jobs.get(command.job)
        if command.generation <= self._generations.get(command.job, 0) and not _is_unheard(old, command.generation):
            return
        if old is None:
            return
        note = self._note(command.job, command.generation, command.allocation)
        note.devices |= old.devices
        note.nodes |= old.nodes
        note.is_started, note.saved_at_ms = old.is_started, old.saved_at_ms
        if isinstance(old.waiting, Start):  # the keeper has heard nothing of it: it begins there
            self._due.append(JobResized(now_ms, command.job, command.generation))
        else:
            note.before = old.before or old.generation
        self._launch(now_ms, command, is_move=note.before != 0)

    def _cap(self, _now_ms: int, command: Cap) -> None:
        """One that cannot be set is said once: then the budget only holds back what is not started yet."""
        assert self._world is not None
        none = np.zeros(0, dtype=np.int64)
        ((name, _),) = self._world.locate(Allocation(np.array([command.node], dtype=np.int64), none))
        obstacle = self._devices.cap(name, command.watts)
        if obstacle and obstacle not in self._obstacles:
            self._obstacles.add(obstacle)
            _LOG.warning("power of node %s stays as it is: %s", name, obstacle)

    # --- reports -----------------------------------------------------------------------------------------------------

    def _take(self, now_ms: int, report: Report) -> None:
        job = JobId(report.job)
        self._note_stuck(now_ms, report)
        note = self._jobs.get(job)
        if note is None:
            return
        if note.before and report.generation == note.before:
            self._take_before(note, report)
        if report.generation != note.generation:
            return
        note.start = None
        if report.progress >= 0:
            self._said[job] = report.progress / 1000
        if report.goes_on:  # what it had before it was frozen is not there any more
            note.before = 0
        if report.resized_ms and note.before:
            note.before = 0
            self._due.append(JobResized(not_after(report.resized_ms, now_ms), job, report.generation))
        if report.prepared_ms and not (note.is_prepared or note.is_started):
            note.is_prepared = True
            self._due.append(JobPreparing(not_after(report.prepared_ms, now_ms), job, report.generation))
        if report.started_ms and not note.is_started:
            note.is_started = True
            self._due.append(JobStarted(not_after(report.started_ms, now_ms), job, report.generation))
        if report.saved_at_ms > note.saved_at_ms:
            note.saved_at_ms = report.saved_at_ms
            self._due.append(CheckpointSaved(not_after(report.saved_at_ms, now_ms), job, report.saved_ms))
        if report.phase == "suspended" and not note.is_suspended:
            note.is_suspended = True
            for failure in self._failures:  # frozen, it holds nothing, and its end is not told
                failure.jobs.discard(job)
            self._due.append(JobSuspended(not_after(report.suspended_ms, now_ms), job, report.generation))
        if report.phase == "ended":
            del self._jobs[job]
            self._tell_end(job, make_end(now_ms, report))

    def _take_before(self, note: JobNote, report: Report) -> None:
        """A report of the generation that a job had before a move. Its end ends the new one; and where the keeper never
        heard of the move, the job is back under its old number until the driver asks again."""
        if report.phase == "ended":
            report.generation = note.generation
        elif note.start is None and note.stop is None and note.waiting is None:
            note.generation, note.before = note.before, 0
            self._generations[JobId(report.job)] = note.generation

    def _tell_end(self, job: JobId, event: Event) -> None:
        """At once, or with the failure that caused it."""
        for failure in self._failures:
            if job in failure.jobs:
                failure.told[job] = event
                return
        self._due.append(event)

    def _note_stuck(self, now_ms: int, report: Report) -> None:
        """Devices that processes of a run do not leave, and those that they have left at last."""
        job = JobId(report.job)
        for name, index, reason in report.stuck:
            device = (NodeName(name), index)
            if device not in self._stuck:
                self._stuck[device] = job
                self._due.append(DeviceDown(now_ms, *device, reason=reason))
        if not report.stuck:
            self._free_stuck(now_ms, job)

    def _free_stuck(self, now_ms: int, job: JobId) -> None:
        for device in sorted(each for each, holder in self._stuck.items() if holder == job):
            del self._stuck[device]
            if device not in self._down.devices and device not in self._avoided:
                self._due.append(DeviceUp(now_ms, *device))

    # --- failures ----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        assert self._world is not None
        while not self._closing.wait(LOOK_S):
            seen = self._devices.look()
            if self._pulse.look() or seen != self._seen or self._client is None:
                self._seen = seen
                self._world.wake()

    def _notice_failures(self, now_ms: int) -> None:
        seen, before = self._seen, self._down
        if seen != before:
            self._down = seen
            up = [device for device in before.devices if device not in seen.devices]
            down = [device for device in seen.devices if device not in before.devices]
            if not self._pulse.is_silent:
                self._due += [NodeUp(now_ms, node) for node in before.nodes if node not in seen.nodes]
            self._due += [DeviceUp(now_ms, *device) for device in up if not self._is_held_down(device)]
            events: list[Event] = [
                NodeDown(now_ms, node, reason) for node, reason in seen.nodes.items() if node not in before.nodes
            ]
            events += [
                DeviceDown(now_ms, *device, reason=seen.devices[device])
                for device in down
                if not self._is_held_down(device)
            ]
            if events:
                self._failures.append(Failure(events, self._fail_jobs(seen, before)))
        if seen.foreign or self._avoided:
            self._avoid_foreign(now_ms, seen)

    def _is_held_down(self, device: Device) -> bool:
        """Whether it is down for a reason of its own already, or still."""
        return device in self._stuck or device in self._avoided

    def _avoid_foreign(self, now_ms: int, seen: Health) -> None:
        """A device that others compute on is not to be given out; a job that has it already keeps it."""
        given = {device for note in self._jobs.values() for device in note.devices}
        for device, reason in seen.foreign.items():
            if device not in given and device not in self._avoided:
                self._avoided.add(device)
                if device not in self._stuck:
                    self._due.append(DeviceDown(now_ms, *device, reason=reason))
        for device in sorted(self._avoided - seen.foreign.keys()):
            self._avoided.discard(device)
            if device not in self._stuck and device not in seen.devices:
                self._due.append(DeviceUp(now_ms, *device))

    def _fail_jobs(self, seen: Health, before: Health) -> set[JobId]:
        """End the jobs on what has just failed; returns those whose end is to be told with it."""
        nodes = {node: reason for node, reason in seen.nodes.items() if node not in before.nodes}
        devices = {device: reason for device, reason in seen.devices.items() if device not in before.devices}
        jobs: set[JobId] = set()
        for job, note in self._jobs.items():
            down = [reason for node, reason in nodes.items() if node in note.nodes]
            cause = StopCause.NODE_FAILED if down else StopCause.DEVICE_FAILED
            down = down or [reason for device, reason in devices.items() if device in note.devices]
            if down:
                self._tell(note, make_fail(job, note.generation, cause, down[0]))
            if down and not note.is_suspended:
                jobs.add(job)
        return jobs

    def _await_failures(self, now_ms: int) -> None:
        """At the beginning the driver must hear at once what is down, and which jobs that has stopped."""
        until = time.monotonic_ns() + FAIL_WAIT_NS
        self._tell_failures()
        while self._failures and time.monotonic_ns() < until:
            time.sleep(0.005)
            self._receive(now_ms)
            self._tell_failures()

    def _tell_failures(self) -> None:
        while self._failures and self._failures[0].jobs <= self._failures[0].told.keys():
            failure = self._failures.pop(0)
            self._due += failure.events
            self._due += [event for _, event in sorted(failure.told.items())]


def _is_unheard(note: JobNote | None, generation: int) -> bool:
    """Whether a job of the journal has not begun: then its start is performed for the first time, or again."""
    return note is not None and note.generation == generation and not note.is_started and note.start is None
