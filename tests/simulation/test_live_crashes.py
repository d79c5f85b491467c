"""Control planes that die at every kind of step, in random worlds: nothing is lost, given twice or run twice."""

from collections import Counter
from dataclasses import replace

from clearway.engine.policy import Elasticity, Preemption, PreemptMode, RuntimeSource
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.sim.random_world import make_world
from support.crashes import Mortal

DEATHS_PER_WORLD = 25
WORLDS_MAX = 100
"""Worlds of a block; most see some dozen deaths before they come to an end."""

KINDS_MIN = 5
"""Kinds of step, of eight, at which a block of fifty deaths has died at least: the fuse must not always burn alike."""

RESTLESS = replace(
    named_policy("easy"),
    name="restless",
    preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=5_000),
    elasticity=Elasticity(enabled=True, interval_ms=1_000),
)
NAMED = [policy for policy in map(named_policy, POLICY_NAMES) if policy.runtime is not RuntimeSource.ORACLE]
POLICIES = [RESTLESS, *NAMED, RESTLESS]


def test_nothing_is_lost_or_done_twice_wherever_the_control_plane_dies(crash_points):
    steps = Counter()
    first = crash_points.start * WORLDS_MAX
    for seed in range(first, first + WORLDS_MAX):
        deaths = min(DEATHS_PER_WORLD, len(crash_points) - steps.total())
        steps.update(Mortal(make_world(seed), POLICIES[seed % len(POLICIES)], deaths=deaths).run().fuse.steps)
        if steps.total() == len(crash_points):
            break
    assert steps.total() == len(crash_points)
    assert len(crash_points) < 50 or len(steps) >= KINDS_MIN
