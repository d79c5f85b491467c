"""Events in, commands out. Whoever drives the kernel owns threads, sockets and clocks; the kernel owns none."""

from collections.abc import Mapping, Sequence
from typing import Any

from clearway.engine.adoption import adopt_policy, begin_reading
from clearway.engine.agenda import OVER, RESTLESS
from clearway.engine.audit import audit_devices
from clearway.engine.check import Checker
from clearway.engine.cycle import Planner
from clearway.engine.explain import explain
from clearway.engine.policy import Policy, RunTimes
from clearway.engine.settle import Agenda, may_stretch
from clearway.engine.state import ClusterState
from clearway.engine.stranded import stranded_entry
from clearway.engine.stretch import ROUNDS_MAX
from clearway.engine.tables import JOB_CLASS
from clearway.model.commands import Command, WakeAt
from clearway.model.errors import InternalError
from clearway.model.events import Event, PlanAccepted
from clearway.model.ids import JobId
from clearway.model.jobs import Outcome
from clearway.model.plan import Explanation, Plan, Reserve


class Kernel:
    """One decision engine over one state box.

    policy: all settings. state: for reading only. plan: the last plan that was made. cycles: plans made so far.
    accepted: the plans that the last call of `handle` accepted, in order, for who keeps a journal.
    """

    def __init__(self, policy: Policy, run_times: RunTimes | None = None) -> None:
        self.policy = policy
        self.state = ClusterState(policy, run_times)
        self.plan = Plan(0)
        self.cycles = 0
        self.accepted: list[PlanAccepted] = []
        self._planner = Planner(self.state)
        self._checker = Checker(self.state)
        self._wake_ms: int | None = None
        self._is_reading = False

    def handle(self, event: Event) -> tuple[Command, ...]:
        """Take in what happened, decide, and return what is to be done, in order.

        Raises InternalError when the checker refuses the plan: nothing of it is applied, and the state is as before.
        """
        if self._is_reading:
            self.finish_reading()
        state, decide_plan = self.state, self._planner.decide_plan
        self.accepted = []
        state.apply(event)
        commands: list[Command] = []
        for _ in range(ROUNDS_MAX):  # a start may let another job be considered (`after`, arrays), or block a singleton
            plan = decide_plan()
            self.cycles += 1
            if plan.moves:
                self._accept(plan, commands)
            if not (state.fresh or state.waiting_changed):
                break
        wake_ms = plan.wake_ms
        if wake_ms != self._wake_ms:
            self._wake_ms = wake_ms
            if wake_ms is not None:
                commands.append(WakeAt(wake_ms))
        return tuple(commands)

    def _accept(self, plan: Plan, commands: list[Command]) -> None:
        """Apply a plan that the checker finds good, and add its moves that the world must carry out to `commands`."""
        notes = self._checker.check_plan(plan)
        if notes:
            raise InternalError("the checker refused a plan: " + "; ".join(notes))
        self.plan = plan
        event = PlanAccepted(self.state.now_ms, plan)
        self.accepted.append(event)
        self.state.apply(event)
        commands += [move for move in plan.moves if not isinstance(move, Reserve)]

    @property
    def may_stretch(self) -> bool:
        """Whether the next moments may be handled by `handle_stretch`, if all that comes is in an agenda."""
        return self._wake_ms is None and not self._is_reading and may_stretch(self.state, self._planner)

    def handle_stretch(
        self, agenda: Agenda, until_ms: int, outcomes: Sequence[Outcome], untold: Sequence[JobId]
    ) -> None:
        """`handle`, at once, what comes before `until_ms`, moment by moment, as far as the agenda foresees it: what is
        decided is the same, and so is the state behind it. Only where `may_stretch` says so.

        outcomes: by place in the agenda, how each job ends. untold: jobs that were started, of which it is still to be
        told that they run. What was made of it is in the agenda; no records for a journal are kept. Raises
        InternalError when the checker refuses a start, or when behind it all the books of devices disagree.
        """
        state, version = self.state, self.state.version
        rows = [state.jobs[job].row for job in untold]
        agenda.note_rows(state)
        agenda.prepare(state)
        agenda.open(state, self._planner, self._checker, rows, until_ms)
        status = self._planner.stretch(agenda, self._checker)
        if status not in (OVER, RESTLESS):
            raise InternalError(agenda.fault(state))
        agenda.settle(state, self._planner, outcomes, rows)
        faults = audit_devices(state)
        if faults:
            raise InternalError(f"the books disagree after {state.now_ms} ms: " + "; ".join(faults))
        self.accepted = []
        self.cycles += agenda.plans
        moves = agenda.last_moves(self._planner)
        if moves:
            self.plan = Plan(version + agenda.last_parent, moves)

    @property
    def was_cut_short(self) -> bool:
        """Whether the last cycle ended before every waiting job was looked at; a `WakeAt` was sent, to go on."""
        return self._planner.was_cut or self._planner.has_more

    def begin_reading(self) -> None:
        """A journal is to be taken in by a kernel that has seen nothing yet: until `finish_reading` the state does not
        depend on the policy, so that it may be kept for others."""
        if not self._is_reading:
            assert self.state.version == 0, "a journal is taken in before anything else"
            self._is_reading = True
            begin_reading(self.state)

    def recover(self, event: Event) -> None:
        """Take in a record of a journal, plans that were accepted included, without deciding anything."""
        self.begin_reading()
        if isinstance(event, PlanAccepted):
            self._planner.place_fresh()
            self.plan = event.plan
        self.state.apply(event)

    def resume(self, state: Mapping[str, Any], run_times: RunTimes | None) -> None:
        """Go on reading where another kernel, `begin_reading` behind it, had a state of these `attributes`."""
        self.begin_reading()
        self.state.resume(state, run_times)

    def finish_reading(self) -> None:
        """After the last record: `handle` decides by the state that the journal tells of. What follows from the policy
        and what the planner only remembers is made anew."""
        self.begin_reading()
        self._is_reading = False
        adopt_policy(self.state, self.policy)
        self._planner = Planner(self.state)
        self._checker = Checker(self.state)

    def become(self, other: "Kernel") -> "Kernel":
        """Be what the other is, which is not used any more; for whoever knows this one. Returns this one."""
        vars(self).update(vars(other))
        return self

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing to decide until something happens. That a job started as it was told to is nothing:
        it may be told together with what comes next."""
        return not self._planner.has_work() and self._planner.wake_ms() == self._wake_ms

    def check(self, plan: Plan) -> tuple[str, ...]:
        """Why the checker would refuse a plan now, one sentence each; empty when it is good. Changes nothing."""
        return self._checker.check_plan(plan)

    def explain(self, job: JobId, now_ms: int | None = None) -> Explanation:
        """All the reasons why a job waits, worked out now; now_ms: as seen then, when nothing has happened since the
        last event. Raises InputError when no job of this id waits or runs."""
        state = self.state
        decided_ms = state.now_ms
        state.now_ms = max(decided_ms, now_ms or decided_ms)
        try:
            return explain(state, job)
        finally:
            state.now_ms = decided_ms

    def stranded_milli(self) -> int:
        """Free device thousandths that the job first in the order cannot use where they are; 0 when nothing waits.

        That is: what is free on usable nodes, whole devices and remainders of shared ones, less what replicas of that
        job would take if they were put wherever one fits, as many as fit. Reservations and quotas do not count; a job
        that waits for CPUs, for one domain or for its quota strands only what no replica of it could use.
        """
        state = self.state
        if state.order.count == 0:
            return 0
        row = int(state.order.rows[0])
        cls = int(state.rows.table[JOB_CLASS, row])
        return int(stranded_entry(cls, state.door))
