"""Random clusters, jobs, people, faults and power budgets under every policy, with checkers after every event."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Backfill, Elasticity, Placement, Preemption, PreemptMode, Qos
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.errors import InternalError
from clearway.model.plan import Start
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.sim.random_world import make_linked_world, make_power_world, make_world
from support.shrink import Parts, keep, parts_of, shrink_world, tell_smallest
from support.worlds import run_checked

EASY = named_policy("easy")
POLICIES = (
    *(named_policy(name) for name in POLICY_NAMES),
    replace(EASY, name="spread", placement=Placement(pack=0.0, spread=1.0, topology=False)),
    replace(EASY, name="fragmentation", placement=Placement(pack=0.1, fragmentation=1.0)),
    replace(EASY, name="first-fit", backfill=Backfill(reservation_depth=0, bypass_max=3)),
    replace(EASY, name="short-sighted", scan_max=3),
    replace(
        EASY,
        name="restless",
        preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=5_000),
        elasticity=Elasticity(enabled=True, interval_ms=1_000),
    ),
)
MAKERS = (make_power_world, make_world, make_world, make_linked_world, make_world)
QOS = (Qos(name="high", priority=100), Qos(name="normal", priority=10))


def world_of(seed):
    """Maker, seed and policy: every policy meets power budgets, and links, QOS and priorities below 0."""
    policy = POLICIES[seed % len(POLICIES)]
    make = MAKERS[seed // len(POLICIES) % len(MAKERS)]
    return make, seed, replace(policy, qos=QOS) if make is make_linked_world else policy


def check_world(make, seed, policy, *more_checkers):
    """Replay a world with every checker on; a failure tells the smallest part of it found that fails alike."""

    def failure_of(world):
        try:
            run_checked(world, Kernel(policy, RuntimeHistory()), *more_checkers)
        except Exception as error:
            error.add_note(f"policy {policy.name}")
            return error
        return None

    error = failure_of(make(seed))
    if error is not None:
        tell_smallest(error, make, seed, lambda world: type(failure_of(world)) is type(error))
        raise error


@pytest.mark.slow
def test_random_worlds_keep_every_invariant_under_every_policy(seeds):
    for seed in seeds:
        check_world(*world_of(seed))


KEPT = (
    # A claimant and a singleton of its name in one plan; room made for a singleton while another of its name starts; a
    # job that held devices after the last end; a claimant that the power budget refuses, on a device that is shared.
    (6_963, "las", make_world),
    (9_946, "gittins", make_world),
    (3_526, "first-fit", make_world),
    (10_015, "las", make_power_world),
    # A cut cycle went on at the front for ever, every millisecond; two jobs claimed less than they then held, in turns.
    (838, "short-sighted", make_world),
    (17_224, "srpt", make_world),
    # A reservation of CPUs on a node without devices, under a power budget.
    (55_315, "spread", make_power_world),
    # Orders within tenants and quotas between them contradicted one another: five jobs were turned out in a circle.
    (48_604, "srpt", make_world),
    # An array grew after a job that waits for it was told that all of it had ended.
    (52_157, "conservative", make_world),
    # Devices lay idle for jobs that could not start on them: others kept too much of the CPUs, held as much elsewhere,
    # or came back while more was left; and one that the power budget refused.
    (289, "clearway", make_world),
    (73, "restless", make_world),
    (511, "restless", make_world),
    (314, "restless", make_world),
    (740, "restless", make_power_world),
    # Jobs moved to where others were leaving still; claims fell twice, or after they were used up; a device was kept
    # for two by one plan; limits counted twice what a job gives up for two; caps stood for moves that were not made.
    (17_709, "clearway", make_power_world),
    (34_534, "srpt", make_world),
    (4_039, "srpt", make_world),
    (64_029, "clearway", make_linked_world),
    (10_364, "restless", make_power_world),
    (9_884, "restless", make_linked_world),
    (15_169, "srpt", make_world),
    (27_134, "restless", make_linked_world),
    (29_744, "restless", make_world),
    (66_664, "srpt", make_world),
    (74_074, "srpt", make_linked_world),
)
"""Worlds that once broke an invariant."""


@pytest.mark.parametrize(("seed", "name", "make"), KEPT)
def test_worlds_that_once_broke_an_invariant_keep_it(seed, name, make):
    policy = next(policy for policy in POLICIES if policy.name == name)
    check_world(make, seed, policy)


class NoSecondStart:
    """A checker that is wrong: it takes offence at every job that starts again."""

    def watch(self, _, commands):
        if any(isinstance(command, Start) and command.generation > 1 for command in commands):
            raise InternalError("a job starts again")


def test_a_failing_world_is_shrunk_to_a_job_a_fault_and_a_node_that_can_be_run_alone():
    with pytest.raises(InternalError) as failure:
        check_world(make_world, 55, EASY, NoSecondStart())
    policy, smallest = failure.value.__notes__
    parts = Parts(jobs=(22,), nodes=("node-3",), faults=(0,), events=())
    assert policy == "policy easy"
    assert "the smallest world found has 1 of 37 jobs, 1 of 6 nodes, 1 of 6 faults, 0 of 8 events" in smallest
    assert smallest.endswith(f"which is keep(make_world(55), {parts})")
    with pytest.raises(InternalError, match="a job starts again"):
        run_checked(keep(make_world(55), parts), Kernel(EASY, RuntimeHistory()), NoSecondStart())


def test_shrinking_ends_after_so_many_tries_with_the_smallest_world_so_far():
    world, tries = make_world(55), []
    best = shrink_world(world, lambda smaller: tries.append(smaller) or len(tries) % 3 == 0, tries_max=20)
    assert len(tries) <= 20
    assert 0 < len(best) < len(parts_of(world))


def test_worlds_with_links_differ_from_their_worlds_in_links_qos_and_priority_only():
    plain, linked = make_world(55), make_linked_world(55)
    jobs = [
        replace(job, spec=replace(job.spec, qos="", priority=was.spec.priority))
        for job, was in zip(linked.workload.jobs, plain.workload.jobs, strict=True)
    ]
    unlinked = replace(linked.cluster, links=())
    assert replace(linked, workload=replace(linked.workload, jobs=jobs), cluster=unlinked) == plain
    assert linked.cluster.links
    assert min(job.spec.priority for job in linked.workload.jobs) < 0
