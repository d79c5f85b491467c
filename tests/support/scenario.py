"""Scenarios: a script of events goes through a real kernel with a manual clock, and becomes a transcript.

One command a line; `#` begins a comment; `at TIME` before a command moves the clock first. Words are `key=value`.

    policy easy depth=2 preempt=priority        first line; see `make_policy`
    nodes 4x8:H100 leaf=2 nvlink=4 cpus=64      nodes n1.., two to a leaf; see `_nodes`
    queue debug priority=10 running=2           also devices= and job-devices=
    tenant a quota=8 borrow=4 lend=0 parent=b
    submit 1 gpus=8 replicas=2 limit=1h         see `make_job`; ids may be a range, all at once: submit 5-20
    sbatch 1 -t 30:00 --gpus=8                  a batch script with these options, and what was understood or is wrong
    finish 1 [FAILED]                           a running job ends
    stop 1 [node_failed] [saved=10m]            it leaves its devices and waits again; a cancelled one ends
    suspended 1                                 it is frozen, in a slow world
    cancel 1, hold 1, release 1, checkpoint 1
    node-down n1, node-up n1, drain n1, device-down n1 3, device-up n1 3
    forecast 8 until=1h
    power 5kW                                   the budget of all devices; `power none` lifts it
    wait 1h                                     the clock moves, timers fire
    world slow                                  stops are confirmed by `stop`, not at once (`world prompt`)
    show, why 1                                 what holds what; why a job waits

Starts are confirmed at once. After each command nothing waits without a reason, and deciding again moves nothing.
"""

from collections.abc import Callable

from clearway.engine.explain import check_reasons
from clearway.engine.lifecycle import HOLDING
from clearway.engine.scene import present_scene
from clearway.engine.tables import POOL_NODE
from clearway.kernel import Kernel
from clearway.model.allocation import Allocation
from clearway.model.cluster import DeviceGroup, NodeSpec, QueueSpec, Quota, TenantSpec
from clearway.model.commands import Command, WakeAt
from clearway.model.errors import InputError
from clearway.model.events import (
    Batch,
    CheckpointSaved,
    DemandForecast,
    DeviceDown,
    DeviceUp,
    Event,
    JobCancelled,
    JobFinished,
    JobHeld,
    JobReleased,
    JobResized,
    JobStarted,
    JobStopped,
    JobSubmitted,
    JobSuspended,
    NodeAdded,
    NodeDown,
    NodeDrained,
    NodeUp,
    PowerBudgetSet,
    QueueSet,
    TenantSet,
    TimerFired,
)
from clearway.model.ids import JobId, NodeName, QueueName, TenantName
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend
from clearway.wire.sbatch import parse_sbatch
from clearway.wire.units import parse_duration, parse_memory, parse_power
from support.scenario_jobs import make_job, make_policy, options_of, whole_milli

TURNS_MAX = 100
"""Commands and confirmations that one line may cause in turn: an endless exchange is a failure, not a hang."""


def run_scenario(script: str) -> str:
    """The transcript of a script."""
    world = World()
    for number, line in enumerate(script.splitlines(), start=1):
        text = line.split("#")[0].strip()
        if not text:
            if line.strip():
                world.out.append(line.rstrip())
            continue
        try:
            world.run(text)
        except Exception as error:
            error.add_note(f"line {number}: {line}\n" + "\n".join(world.out[-20:]))
            raise
    return "\n".join(world.out)


def in_words(now_ms: int) -> str:
    """A time as `1:02:03`."""
    seconds = now_ms // 1000
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class World:
    """One kernel, a clock, and a backend that does at once what it is told."""

    def __init__(self) -> None:
        self.kernel: Kernel | None = None
        self.now_ms = 0
        self.wake_ms: int | None = None
        self.is_prompt = True
        self.out: list[str] = []
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "policy": self._policy,
            "nodes": self._nodes,
            "queue": self._queue,
            "tenant": self._tenant,
            "submit": self._submit,
            "sbatch": self._sbatch,
            "finish": self._finish,
            "stop": self._stop,
            "suspended": self._suspended,
            "cancel": lambda words: self.feed(JobCancelled(self.now_ms, JobId(int(words[0])))),
            "hold": lambda words: self.feed(JobHeld(self.now_ms, JobId(int(words[0])))),
            "release": lambda words: self.feed(JobReleased(self.now_ms, JobId(int(words[0])))),
            "checkpoint": lambda words: self.feed(CheckpointSaved(self.now_ms, JobId(int(words[0])), 0)),
            "node-down": lambda words: self.feed(NodeDown(self.now_ms, NodeName(words[0]))),
            "node-up": lambda words: self.feed(NodeUp(self.now_ms, NodeName(words[0]))),
            "drain": lambda words: self.feed(NodeDrained(self.now_ms, NodeName(words[0]))),
            "device-down": lambda words: self.feed(DeviceDown(self.now_ms, NodeName(words[0]), int(words[1]))),
            "device-up": lambda words: self.feed(DeviceUp(self.now_ms, NodeName(words[0]), int(words[1]))),
            "forecast": self._forecast,
            "power": lambda words: self.feed(PowerBudgetSet(self.now_ms, _watts(words[0]))),
            "wait": lambda words: self._move_clock(self.now_ms + parse_duration(words[0])),
            "world": self._set_world,
            "show": self._show,
            "why": self._why,
        }

    def run(self, text: str) -> None:
        """One line of a script."""
        words = text.split()
        if words[0] == "at":
            self._move_clock(parse_duration(words[1]))
            words = words[2:]
        self.out.append(f"{in_words(self.now_ms)} > {' '.join(words)}")
        self._commands[words[0]](words[1:])

    # --- the exchange with the kernel -----------------------------------------------------------------------------

    @property
    def decided(self) -> Kernel:
        """The kernel, which the first line must have made."""
        assert self.kernel is not None, "a script begins with a policy"
        return self.kernel

    def feed(self, event: Event) -> None:
        """Give the kernel an event, write down what it asks, do it, and check what must always hold."""
        waiting = [event]
        for _ in range(TURNS_MAX):
            if not waiting:
                break
            for command in self.decided.handle(waiting.pop(0)):
                answer = self._carry_out(command)
                if answer is not None:
                    waiting.append(answer)
        assert not waiting, f"more than {TURNS_MAX} turns"
        if not self.decided.was_cut_short:
            again = self.decided.handle(TimerFired(self.now_ms))
            assert [one for one in again if not isinstance(one, WakeAt)] == [], "a second plan moves something"
        assert check_reasons(self.decided.state) == ()

    def _carry_out(self, command: Command) -> Event | None:
        if isinstance(command, WakeAt):
            self.wake_ms = command.at_ms
            return None
        self.out.append(f"    {self._in_words(command)}")
        if isinstance(command, Start):
            return JobStarted(self.now_ms, command.job, command.generation)
        if not self.is_prompt or isinstance(command, Cap):
            return None
        if isinstance(command, Suspend):
            return JobSuspended(self.now_ms, command.job, command.generation)
        if isinstance(command, Stop):
            return self._left(command.job, command.cause, self._done_ms(command.job))
        return JobResized(self.now_ms, command.job, command.generation)

    def _left(self, job: JobId, cause: StopCause | None, saved_ms: int) -> Event:
        generation = self.decided.state.jobs[job].generation
        if cause is None:
            return JobFinished(self.now_ms, job, generation, Outcome.CANCELLED)
        return JobStopped(self.now_ms, job, generation, cause, saved_ms)

    def _done_ms(self, job: JobId) -> int:
        """Run time that is safe when the job is told to stop now: all of it if it saves on a signal."""
        checkpoint = self.decided.state.jobs[job].spec.checkpoint
        return 0 if checkpoint is None else self.now_ms

    def _in_words(self, command: Command) -> str:
        if isinstance(command, Start):
            return f"start {command.job} on {self._where(command.allocation)}"
        if isinstance(command, Resize | Migrate):
            word = "resize" if isinstance(command, Resize) else "migrate"
            return f"{word} {command.job} to {self._where(command.allocation)}{_for(command.beneficiary)}"
        if isinstance(command, Stop):
            cause = "for good" if command.cause is None else command.cause.value
            return f"stop {command.job} ({cause}){_for(command.beneficiary)}"
        if isinstance(command, Suspend):
            return f"suspend {command.job}{_for(command.beneficiary)}"
        assert isinstance(command, Cap)
        return f"cap node {command.node} at {command.watts} W"

    def _where(self, allocation: Allocation) -> str:
        """`n1[0-7] n2[0,3]`: devices by their number within the node."""
        state = self.decided.state
        each = len(allocation.devices) // max(allocation.replicas, 1)
        by_node: dict[int, list[int]] = {}
        for replica, node in enumerate(allocation.nodes.tolist()):
            first = state.inventory.device_index(state.node_name(node), 0) if each else 0
            named = allocation.devices[replica * each : (replica + 1) * each].tolist()
            by_node.setdefault(node, []).extend(device - first for device in named)
        return " ".join(f"{state.node_name(node)}[{ranges(sorted(named))}]" for node, named in by_node.items())

    # --- commands -------------------------------------------------------------------------------------------------

    def _move_clock(self, to_ms: int) -> None:
        while self.wake_ms is not None and self.wake_ms <= to_ms:
            self.now_ms, self.wake_ms = max(self.now_ms, self.wake_ms), None
            self.out.append(f"{in_words(self.now_ms)} . timer")
            self.feed(TimerFired(self.now_ms))
        self.now_ms = to_ms

    def _policy(self, words: list[str]) -> None:
        self.kernel = Kernel(make_policy(words[0], options_of(words[1:])))

    def _nodes(self, words: list[str]) -> None:
        """`4x8:H100 leaf=2 block=4 rack=2 nvlink=4 cpus=64 ram=512G memory=80G fabric=ib name=a`.

        leaf, block, rack: so many nodes to a leaf, block, rack-scale NVLink domain. nvlink: devices of one NVLink
        domain inside a node. memory, watts, speed: of a device. fabric: a label. name: prefix of the names.
        """
        size, _, model = words[0].partition(":")
        nodes, _, devices = size.partition("x")
        options = options_of(words[1:])
        group = DeviceGroup(
            model=model or "GPU",
            count=max(int(devices), 1),
            memory_bytes=parse_memory(options.get("memory", "0B")),
            nvlink_size=int(options.get("nvlink", 0)),
            watts_max=parse_power(options.get("watts", "0")),
            speed=float(options.get("speed", 1.0)),
        )
        for index in range(int(nodes)):
            spec = NodeSpec(
                name=NodeName(f"{options.get('name', 'n')}{index + 1}"),
                groups=(group,) if int(devices) else (),
                cpu_milli=whole_milli(options.get("cpus")),
                memory_bytes=parse_memory(options["ram"]) if "ram" in options else None,
                nvlink=_domain("rack", options, index),
                leaf=_domain("leaf", options, index),
                block=_domain("block", options, index),
                labels=(("fabric", options["fabric"]),) if "fabric" in options else (),
            )
            self.feed(NodeAdded(self.now_ms, spec))

    def _queue(self, words: list[str]) -> None:
        options = options_of(words[1:])
        spec = QueueSpec(
            name=QueueName(words[0]),
            priority=int(options.get("priority", 0)),
            devices_max_milli=whole_milli(options.get("devices")),
            job_devices_max_milli=whole_milli(options.get("job-devices")),
            running_max=int(options["running"]) if "running" in options else None,
        )
        self.feed(QueueSet(self.now_ms, spec))

    def _tenant(self, words: list[str]) -> None:
        options = options_of(words[1:])
        quota = None
        if "quota" in options:
            quota = Quota(
                guaranteed_milli=whole_milli(options["quota"]) or 0,
                borrow_max_milli=whole_milli(options.get("borrow")),
                lend_max_milli=whole_milli(options.get("lend")),
            )
        parent = TenantName(options["parent"]) if "parent" in options else None
        self.feed(TenantSet(self.now_ms, TenantSpec(name=TenantName(words[0]), parent=parent, quota=quota)))

    def _submit(self, words: list[str]) -> None:
        first, _, last = words[0].partition("-")
        options, numbers = options_of(words[1:]), range(int(first), int(last or first) + 1)
        specs = [make_job(JobId(number), options, self.now_ms) for number in numbers]
        self.feed(Batch(self.now_ms, tuple(JobSubmitted(self.now_ms, spec) for spec in specs)))

    def _sbatch(self, words: list[str]) -> None:
        script = f"#!/bin/sh\n#SBATCH {' '.join(words[1:])}\n"
        try:
            read = parse_sbatch(script, source="job.sh", now_ms=self.now_ms, first_id=int(words[0]), user="ada")
        except InputError as error:
            self.out.append(f"    {error}")
            return
        self.out += [f"    {note}" for note in read.notes]
        self.feed(Batch(self.now_ms, tuple(JobSubmitted(self.now_ms, spec) for spec in read.jobs)))

    def _finish(self, words: list[str]) -> None:
        job = JobId(int(words[0]))
        outcome = Outcome(words[1]) if len(words) > 1 else Outcome.COMPLETED
        self.feed(JobFinished(self.now_ms, job, self.decided.state.jobs[job].generation, outcome))

    def _stop(self, words: list[str]) -> None:
        job = JobId(int(words[0]))
        options = options_of(words[1:])
        cause = StopCause(next((word for word in words[1:] if "=" not in word), "preempted"))
        final = self.decided.state.jobs[job].cancelled
        self.feed(self._left(job, None if final else cause, parse_duration(options.get("saved", "0s"))))

    def _suspended(self, words: list[str]) -> None:
        job = JobId(int(words[0]))
        self.feed(JobSuspended(self.now_ms, job, self.decided.state.jobs[job].generation))

    def _forecast(self, words: list[str]) -> None:
        until_ms = self.now_ms + parse_duration(options_of(words[1:])["until"])
        self.feed(DemandForecast(self.now_ms, int(words[0]), until_ms))

    def _set_world(self, words: list[str]) -> None:
        self.is_prompt = words[0] == "prompt"

    def _show(self, _: list[str]) -> None:
        state = self.decided.state
        held = [(job, record) for job, record in sorted(state.jobs.items()) if record.allocation is not None]
        for job, record in held:
            word = "runs" if record.phase in HOLDING[:2] else "is stopping"
            self.out.append(f"    {job} {word} on {self._where(record.allocation)}")
        for row in state.order.waiting().tolist():
            job = state.by_row[row].spec.id
            self.out.append(f"    {job} waits: {self.decided.explain(job).reasons[0].code.value}")
        for job, record in sorted(state.jobs.items()):
            if record.blocked is not None:
                self.out.append(f"    {job} is blocked: {record.blocked.value}")
        scene = present_scene(state)
        free_milli = scene.share[scene.is_usable[scene.pools[POOL_NODE][scene.device_pool]]].sum()
        self.out.append(f"    free: {free_milli / 1000:g} devices")

    def _why(self, words: list[str]) -> None:
        answer = self.decided.explain(JobId(int(words[0])))
        if not answer.reasons:
            self.out.append("    it does not wait")
        for reason in answer.reasons:
            self.out.append(f"    {reason.message}")
        if answer.blockers:
            self.out.append(f"    in the way: {', '.join(str(job) for job in answer.blockers)}")
        if answer.helped_by:
            self.out.append(f"    helped by: {', '.join(answer.helped_by)}")
        if answer.fix:
            self.out.append(f"    fix: {answer.fix}")
        if answer.start_ms is not None:
            self.out.append(f"    planned start: {in_words(answer.start_ms)}")


def _watts(word: str) -> int | None:
    return None if word == "none" else parse_power(word)


def _for(beneficiary: JobId | None) -> str:
    return "" if beneficiary is None else f" for {beneficiary}"


def _domain(key: str, options: dict[str, str], index: int) -> str:
    """The name of the domain of a node, "" when the script does not divide nodes so."""
    return f"{options.get('name', '')}{key}{index // int(options[key]) + 1}" if key in options else ""


def ranges(numbers: list[int]) -> str:
    """Sorted numbers as `0-3,7`; a number that occurs twice is shared by two replicas: `0x2`."""
    parts: list[list[int]] = []
    for number in dict.fromkeys(numbers):
        if parts and number == parts[-1][-1] + 1 and numbers.count(number) == numbers.count(parts[-1][0]):
            parts[-1].append(number)
        else:
            parts.append([number])
    texts = []
    for part in parts:
        times = numbers.count(part[0])
        text = str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}"
        texts.append(text if times == 1 else f"{text}x{times}")
    return ",".join(texts)
