"""Budgets of others: who is told to leave for whom stays within them, and who waits is told so."""

from dataclasses import replace

from clearway.engine.check import Checker
from clearway.engine.policy import Backfill, Policy, Preemption, PreemptMode
from clearway.engine.tables import PHASE_STOPPING
from clearway.model.events import BudgetsChanged, ControlStarted, JobStarted, JobStopped
from clearway.model.jobs import StopCause
from clearway.model.plan import Plan, Stop
from clearway.policies.orders import Fifo
from support.engine import add_nodes, finish, make_kernel, submit

POLICY = Policy(
    name="by priority",
    order=Fifo(),
    backfill=Backfill(reservation_depth=1),
    preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0),
)


def make_full(*devices, policy=POLICY):
    """One node of 8 devices for each of these, on which one job runs that holds so many."""
    kernel = make_kernel(policy)
    add_nodes(kernel, len(devices), 8)
    submit(kernel, *({"devices": count, "nodes": (f"n{place}",)} for place, count in enumerate(devices, start=1)))
    for job in range(1, len(devices) + 1):
        kernel.handle(JobStarted(0, job, 1))
    return kernel


def tell(kernel, jobs, **budgets):
    """Each of these jobs counts with one replica in the budget; so many of it may leave."""
    counts = tuple((job, ((name, 1),)) for name, members in jobs.items() for job in members)
    return kernel.handle(BudgetsChanged(0, tuple(budgets.items()), counts))


def stops(commands):
    return sorted(command.job for command in commands if isinstance(command, Stop))


def test_victim_is_taken_whom_its_budget_lets_leave():
    kernel = make_full(8, 8)
    tell(kernel, {"web": [2]}, web=0)
    assert stops(submit(kernel, {"devices": 8, "priority": 1})) == [1]


def test_nobody_is_told_to_leave_while_the_budget_lets_nobody_and_then_one():
    kernel = make_full(8)
    tell(kernel, {"web": [1]}, web=0)
    assert stops(submit(kernel, {"devices": 8, "priority": 1})) == []
    messages = [reason.message for reason in kernel.explain(2).reasons]
    wanted = "job 1 would be preempted for it, but may not be told to leave now by web (which lets 0 more leave)"
    assert any(wanted in message for message in messages), messages
    assert stops(kernel.handle(BudgetsChanged(1, (("web", 1),)))) == [1]


def test_who_waits_is_told_what_a_budget_lets_leave_beside_those_that_are_leaving():
    kernel = make_full(8, 8)
    tell(kernel, {"web": [1, 2]}, web=1)
    assert len(stops(submit(kernel, {"devices": 8, "priority": 1}))) == 1
    assert stops(submit(kernel, {"devices": 8, "priority": 1})) == []
    messages = [reason.message for reason in kernel.explain(4).reasons]
    assert any("now by web (which lets 0 more leave)" in message for message in messages), messages


def test_one_plan_makes_no_more_leave_than_a_budget_lets_together():
    kernel = make_full(8, 8, 8)
    tell(kernel, {"web": [1, 2, 3]}, web=1)
    commands = submit(kernel, *[{"devices": 8, "priority": 1}] * 3)
    assert len(stops(commands)) == 1
    (leaver,) = stops(commands)
    # It counts until the world says what is left without it; then the next may go.
    rest = tuple((job, (("web", 1),)) for job in (1, 2, 3) if job != leaver)
    assert len(stops(kernel.handle(BudgetsChanged(1, (("web", 1),), ((leaver, ()), *rest))))) == 1


def test_victims_that_are_needed_together_are_sought_within_their_budget():
    kernel = make_full(4, 4, 8)
    submit(kernel, {"devices": 4, "nodes": ("n1",)}, {"devices": 4, "nodes": ("n2",)})
    for job in (4, 5):
        kernel.handle(JobStarted(0, job, 1))
    tell(kernel, {"web": [1, 4], "db": [3]}, web=1, db=0)
    assert stops(submit(kernel, {"devices": 8, "priority": 1})) == [2, 5]


def test_gang_that_counts_with_more_replicas_than_may_leave_stays():
    kernel = make_full(8)
    kernel.handle(BudgetsChanged(0, (("web", 1),), ((1, (("web", 2),)),)))
    assert stops(submit(kernel, {"devices": 8, "priority": 1})) == []


def test_budget_that_is_gone_or_was_told_by_another_before_holds_nobody():
    for event in (BudgetsChanged(1, (("web", None),)), ControlStarted(1)):
        kernel = make_full(8)
        tell(kernel, {"web": [1]}, web=0)
        submit(kernel, {"devices": 8, "priority": 1})
        commands = [*kernel.handle(event), *submit(kernel, {"devices": 1, "priority": 1})]
        assert stops(commands) == [1]


def test_job_that_ended_counts_in_no_budget():
    kernel = make_full(8)
    tell(kernel, {"web": [1]}, web=0)
    finish(kernel, 1)
    assert kernel.state.budgeted == {}


def test_checker_refuses_a_plan_beyond_a_budget():
    kernel = make_full(8, 8)
    submit(kernel, {"devices": 8})
    tell(kernel, {"web": [1, 2]}, web=1)
    both = [Stop(job, 1, 0, StopCause.PREEMPTED, beneficiary=3) for job in (1, 2)]
    check = Checker(kernel.state).check_plan
    assert check(Plan(kernel.state.version, tuple(both))) == ("budget web: 1 replicas may leave, found 2 that are to",)
    assert check(Plan(kernel.state.version, tuple(both[:1]))) == ()
    theirs = tuple(replace(one, beneficiary=None) for one in both)  # their users wanted it
    assert check(Plan(kernel.state.version, theirs)) == ()


def test_job_that_left_is_paid_for_only_once():
    kernel = make_full(8, 8)
    tell(kernel, {"web": [1, 2]}, web=1)
    submit(kernel, {"devices": 8, "priority": 1})
    (leaver,) = [job for job, record in kernel.state.jobs.items() if record.phase == PHASE_STOPPING]
    kernel.handle(JobStopped(1, leaver, 1, StopCause.PREEMPTED))
    assert kernel.state.jobs[3].allocation is not None


def test_nobody_is_told_to_leave_for_a_job_that_preempts_nobody():
    kernel = make_full(8)
    assert stops(submit(kernel, {"devices": 8, "priority": 1}, at_ms=1)) == [1]
    kernel = make_full(8)
    assert stops(submit(kernel, {"devices": 8, "priority": 1, "preempts": False}, at_ms=1)) == []
    assert stops(submit(kernel, {"devices": 8, "priority": 1}, at_ms=2)) == [1]
