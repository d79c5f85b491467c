"""Random clusters, jobs, people, faults and power budgets under every policy, with checkers after every event."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Backfill, Elasticity, Placement, Preemption, PreemptMode
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.sim.random_world import make_power_world, make_world
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


@pytest.mark.slow
def test_random_worlds_keep_every_invariant_under_every_policy(seeds):
    for seed in seeds:
        policy = POLICIES[seed % len(POLICIES)]
        make = make_power_world if seed % 5 == 0 else make_world
        run_checked(make(seed), Kernel(policy, RuntimeHistory()))


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
)
"""Worlds that once broke an invariant."""


@pytest.mark.parametrize(("seed", "name", "make"), KEPT)
def test_worlds_that_once_broke_an_invariant_keep_it(seed, name, make):
    policy = next(policy for policy in POLICIES if policy.name == name)
    run_checked(make(seed), Kernel(policy, RuntimeHistory()))
