"""Rules about neighbours over random histories: never broken, counted exactly, and undone exactly."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.engine.crowds import BY_NODE, EXTRA
from clearway.engine.neighbours import NOWHERE
from clearway.engine.tables import NONE, TALLY_AT_LEAST, TALLY_DOMAINS, TALLY_LEAST, TALLY_TOTAL
from clearway.kernel import Kernel
from clearway.model.events import NodeChanged
from clearway.model.neighbours import NeighbourKind, NeighbourRule
from clearway.policies.named import named_policy
from clearway.sim.random_world import make_world
from support.worlds import run_checked

CROWDS = ("a", "b")
KEYS = ("host", "room")


def with_labels(spec, number, rng):
    """The node in a room, or in none, with replicas of others on it now and then."""
    labels = [("host", spec.name), ("liking", str(rng.integers(0, 101)))]
    if rng.random() < 0.9:
        labels.append(("room", f"r{number % 3}"))
    others = (("a", int(rng.integers(1, 3))),) if rng.random() < 0.1 else ()
    extras = (("hca", sum(map(ord, spec.name)) % 9),)
    return replace(spec, labels=(*spec.labels, *labels), crowds=others, extras=extras)


def with_rules(job, rng):
    if rng.random() < 0.3:
        return job
    crowds = tuple(crowd for crowd in CROWDS if rng.random() < 0.6)
    rules = tuple(
        NeighbourRule(
            kind=list(NeighbourKind)[rng.integers(0, 3)],
            crowd=CROWDS[rng.integers(0, 2)],
            domain=KEYS[rng.integers(0, 2)],
            skew=int(rng.integers(1, 3)),
            domains_min=int(rng.integers(1, 4)),
            weight=int(rng.choice([0, 0, 50])),
        )
        for _ in range(rng.integers(0, 3))
    )
    liked = "liking" if rng.random() < 0.3 else ""
    extras = (("hca", int(rng.integers(1, 4))),) if rng.random() < 0.3 else ()
    return replace(job, request=replace(job.request, crowds=crowds, neighbours=rules, liked=liked, extras=extras))


def make_social_world(seed):
    """A random world whose nodes have rooms and whose jobs have rules; now and then a node's room changes."""
    world, rng = make_world(seed), np.random.default_rng(seed)
    nodes = tuple(with_labels(spec, number, rng) for number, spec in enumerate(world.cluster.nodes))
    jobs = [replace(one, spec=with_rules(one.spec, rng)) for one in world.workload.jobs]
    last_ms = max((job.submit_ms for job in jobs), default=0)
    changes = tuple(
        NodeChanged(
            int(rng.integers(0, last_ms + 1)), with_labels(replace(world.cluster.nodes[number]), number + 1, rng)
        )
        for number in rng.integers(0, len(nodes), size=4).tolist()
    )
    extra = tuple(sorted((*world.extra_events, *changes), key=lambda event: event.at_ms))
    return replace(
        world,
        cluster=replace(world.cluster, nodes=nodes),
        workload=replace(world.workload, jobs=jobs),
        extra_events=extra,
    )


def counted_anew(state, crowd, key):
    """Replicas of a crowd in each domain, from what jobs hold and what is kept for them."""
    inventory, counts = state.inventory, {}
    held = [(record.spec.request, record.allocation) for record in state.jobs.values() if record.allocation is not None]
    held += [(state.by_row[row].spec.request, claim.allocation) for row, claim in state.claims.items()]
    for node, spec in enumerate(inventory.specs):
        domain = node if key == BY_NODE else dict(spec.labels).get(key)
        if domain is None:
            continue
        there = dict(spec.crowds).get(crowd, 0) - dict(spec.extras).get(crowd.removeprefix(EXTRA), 0)
        there += sum(int((allocation.nodes == node).sum()) * weight(request, crowd) for request, allocation in held)
        counts[domain] = counts.get(domain, 0) + there
    return sorted(counts.values())


def weight(request, crowd):
    """By how much a replica counts in a crowd."""
    return int(crowd in request.crowds) + dict(request.extras).get(crowd.removeprefix(EXTRA), 0)


class CountsAnew:
    """After each event, every tally says what lies there."""

    def __init__(self, state):
        self.state = state

    def watch(self, _event, _commands):
        crowds = self.state.inventory.crowds
        for (crowd, key), tally in crowds.numbers.items():
            line = crowds.counts[tally]
            there = sorted(line[line < NOWHERE].tolist())
            anew = counted_anew(self.state, crowd, key)
            assert there == anew, (crowd, key, there, anew, str(_event)[:300])
            figures = crowds.tallies[[TALLY_TOTAL, TALLY_DOMAINS, TALLY_LEAST, TALLY_AT_LEAST], tally].tolist()
            if there:
                assert figures == [sum(there), len(there), there[0], there.count(there[0])]
            assert (crowds.domains[tally, self.state.inventory.node_count :] == NONE).all()

    def check_end(self):
        pass


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 50_000), name=st.sampled_from(("clearway", "easy", "fifo", "conservative")))
def test_rules_about_neighbours_are_never_broken_and_crowds_are_counted_exactly(seed, name):
    kernel = Kernel(named_policy(name))
    run_checked(make_social_world(seed), kernel, CountsAnew(kernel.state))
    used = {crowd for record in kernel.state.jobs.values() for crowd in record.spec.request.crowds}
    used |= {rule.crowd for record in kernel.state.jobs.values() for rule in record.spec.request.neighbours}
    used |= {EXTRA + name for record in kernel.state.jobs.values() for name, _ in record.spec.request.extras}
    assert {crowd for crowd, _ in kernel.state.inventory.crowds.numbers} == used
