"""A rule-based machine over the lives of jobs: people, nodes and a backend do anything in any order.

The machine is the world: it keeps which commands it has been told and not yet carried out. Independent books
(`ShadowCluster`) judge every command, and the state must agree with them after every rule.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clearway.kernel import Kernel
from clearway.model.events import (
    Batch,
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
    NodeUp,
)
from clearway.model.jobs import Checkpoint, Elastic, JobSpec, Outcome, Request, StopCause
from clearway.model.plan import Migrate, Resize, Start, Stop, Suspend
from clearway.policies.named import named_policy
from clearway.sim.checkers import ShadowCluster, StateChecker
from support.worlds import make_cluster

REQUESTS = st.sampled_from(
    [Request(devices=1), Request(devices=2), Request(devices=4), Request(devices=1, share_milli=400)]
)
PICK = st.integers(0, 10_000)


class JobLives(RuleBasedStateMachine):
    """The world around one kernel. told: commands in flight by job. running: job → (generation, nodes)."""

    @initialize(policy=st.sampled_from(["fifo", "easy", "las", "clearway"]))
    def begin(self, policy):
        self.kernel = Kernel(named_policy(policy))
        self.shadow = ShadowCluster()
        self.checkers = [self.shadow, StateChecker(self.shadow, self.kernel.state)]
        self.now_ms, self.jobs, self.told, self.running, self.down = 0, 0, {}, {}, set()
        cluster = make_cluster(3, 4)
        self.nodes = [node.name for node in cluster.nodes]
        self.handle(Batch(0, tuple(NodeAdded(0, node) for node in cluster.nodes)))

    def handle(self, event):
        commands = self.kernel.handle(event)
        for checker in self.checkers:
            checker.watch(event, commands)
        for command in commands:
            if isinstance(command, Start):
                self.running[command.job] = (command.generation, set(command.allocation.nodes.tolist()))
            elif isinstance(command, Resize | Migrate):
                nodes = self.running[command.job][1] | set(command.allocation.nodes.tolist())
                self.running[command.job] = (command.generation, nodes)
            if isinstance(command, Start | Stop | Suspend | Resize | Migrate):
                self.told[command.job] = command

    def pick(self, things, number):
        return sorted(things)[number % len(things)]

    @rule(
        request=REQUESTS,
        replicas=st.integers(1, 3),
        priority=st.integers(0, 2),
        is_elastic=st.booleans(),
        saves=st.booleans(),
        held=st.booleans(),
    )
    def submit(self, request, replicas, priority, is_elastic, saves, held):
        self.jobs += 1
        spec = JobSpec(
            id=self.jobs,
            request=request,
            replicas=replicas,
            priority=priority,
            limit_ms=60_000,
            elastic=Elastic(replicas_min=1, replicas_max=replicas + 1) if is_elastic else None,
            checkpoint=Checkpoint(interval_ms=5_000) if saves else None,
            held=held,
        )
        self.handle(JobSubmitted(self.now_ms, spec))

    @rule(step=st.integers(1, 20 * 60_000))
    def pass_time(self, step):
        self.now_ms += step

    @precondition(lambda self: self.told)
    @rule(number=PICK)
    def carry_out(self, number):
        job = self.pick(self.told, number)
        command = self.told.pop(job)
        if job not in self.running:
            return
        generation, _ = self.running[job]
        if isinstance(command, Start):
            self.handle(JobStarted(self.now_ms, job, generation))
        elif isinstance(command, Resize | Migrate):
            self.running[job] = (generation, set(command.allocation.nodes.tolist()))
            self.handle(JobResized(self.now_ms, job, generation))
        elif isinstance(command, Suspend):
            del self.running[job]
            self.handle(JobSuspended(self.now_ms, job, generation))
        elif command.cause is None:
            del self.running[job]
            self.handle(JobFinished(self.now_ms, job, generation, Outcome.CANCELLED))
        else:
            del self.running[job]
            self.handle(JobStopped(self.now_ms, job, generation, command.cause, 0))

    @precondition(lambda self: self.running)
    @rule(number=PICK, outcome=st.sampled_from([Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMEOUT]))
    def finish(self, number, outcome):
        job = self.pick(self.running, number)
        generation, _ = self.running.pop(job)
        self.told.pop(job, None)
        self.handle(JobFinished(self.now_ms, job, generation, outcome))

    @precondition(lambda self: self.jobs)
    @rule(number=PICK, event=st.sampled_from([JobCancelled, JobHeld, JobReleased]))
    def ask(self, number, event):
        self.handle(event(self.now_ms, 1 + number % self.jobs))

    @precondition(lambda self: len(self.down) < 3)
    @rule(number=PICK)
    def lose_node(self, number):
        node = self.pick(set(range(3)) - self.down, number)
        self.down.add(node)
        events = [NodeDown(self.now_ms, self.nodes[node])]
        for job in sorted(job for job, (_, nodes) in self.running.items() if node in nodes):
            generation, _ = self.running.pop(job)
            self.told.pop(job, None)
            events.append(JobStopped(self.now_ms, job, generation, StopCause.NODE_FAILED, 0))
        self.handle(Batch(self.now_ms, tuple(events)))

    @precondition(lambda self: self.down)
    @rule(number=PICK)
    def mend_node(self, number):
        node = self.pick(self.down, number)
        self.down.remove(node)
        self.handle(NodeUp(self.now_ms, self.nodes[node]))

    @invariant()
    def the_running_are_those_that_hold_devices(self):
        if not hasattr(self, "kernel"):
            return
        holding = {job for job, record in self.kernel.state.jobs.items() if record.allocation is not None}
        assert holding == set(self.running)


JobLives.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_lives_of_jobs = JobLives.TestCase
