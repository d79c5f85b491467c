"""A random world that breaks an invariant, made smaller while it still does: fewer jobs, faults, events and nodes.

Parts are left out in halves, quarters, eighths and so on, as in Zeller and Hildebrandt's "Simplifying and isolating
failure-inducing input" (2002). What spoke of a part that is gone goes with it: each smaller world is a sound one.
"""

from dataclasses import dataclass, fields, is_dataclass, replace

from clearway.model.events import NodeDrained, NodeUp

TRIES_MAX = 300
"""Worlds that are tried: some seconds for most, and the smallest so far is always known."""


@dataclass(frozen=True)
class Parts:
    """What is left of a world: numbers of jobs, names of nodes, and places of faults and of events in the whole one."""

    jobs: tuple
    nodes: tuple
    faults: tuple
    events: tuple

    def __len__(self):
        return len(self.all())

    def without(self, dropped):
        """dropped: pairs of the name of a field and one of what is in it."""
        left = {name: tuple(one for one in getattr(self, name) if (name, one) not in dropped) for name in self.names()}
        return Parts(**left)

    @classmethod
    def names(cls):
        """Of the fields."""
        return [field.name for field in fields(cls)]

    def all(self):
        """Every part as such a pair."""
        return [(name, one) for name in self.names() for one in getattr(self, name)]


def parts_of(world):
    """All of a world."""
    return Parts(
        jobs=tuple(job.spec.id for job in world.workload.jobs),
        nodes=tuple(node.name for node in world.cluster.nodes),
        faults=tuple(range(len(world.faults))),
        events=tuple(range(len(world.extra_events))),
    )


def keep(world, parts):
    """The world with these parts alone. Faults, drains and cancels of what is gone are gone; so are dependencies."""
    nodes = [node for node in world.cluster.nodes if node.name in parts.nodes]
    rows = {row: nodes.index(node) for row, node in enumerate(world.cluster.nodes) if node in nodes}
    faults = [world.faults[place] for place in parts.faults if world.faults[place].node_index in rows]
    events = [world.extra_events[place] for place in parts.events]
    jobs = [job for job in world.workload.jobs if job.spec.id in parts.jobs]
    known = {job.spec.id for job in jobs} | {job.spec.array.array for job in jobs if job.spec.array is not None}
    jobs = [_without_lost(job, known) for job in jobs]
    return replace(
        world,
        workload=replace(world.workload, jobs=jobs),
        cluster=replace(world.cluster, nodes=tuple(nodes)),
        faults=tuple(replace(fault, node_index=rows[fault.node_index]) for fault in faults),
        extra_events=tuple(event for event in events if _is_about(event, parts)),
    )


def shrink_world(world, fails, tries_max=TRIES_MAX):
    """The smallest parts found of a world for which `fails` is true, which it is for all of them."""
    best, tries, chunks = parts_of(world), 0, 2
    while tries < tries_max:
        everything = best.all()
        size = -(-len(everything) // chunks)
        for begin in range(0, len(everything), size):
            smaller = best.without(set(everything[begin : begin + size]))
            tries += 1
            if smaller.jobs and smaller.nodes and fails(keep(world, smaller)):
                best, chunks = smaller, max(chunks - 1, 2)
                break
            if tries >= tries_max:
                break
        else:
            if size == 1:
                break
            chunks = min(2 * chunks, len(everything))
    return best


def tell_smallest(error, make, seed, fails):
    """Add to the error of the world `make(seed)` the smallest world found that fails alike, to be run alone."""
    world = make(seed)
    whole, best = parts_of(world), shrink_world(world, fails)
    small = keep(world, best)
    counts = ", ".join(f"{len(getattr(best, name))} of {len(getattr(whole, name))} {name}" for name in Parts.names())
    things = (*small.cluster.nodes, *small.queues, *small.tenants, *small.workload.jobs, *small.faults)
    lines = (
        f"seed {seed}; the smallest world found has {counts}:",
        *(f"  {_told(thing)}" for thing in (*things, *small.extra_events)),
        f"  which is keep({make.__name__}({seed}), {best})",
    )
    error.add_note("\n".join(lines))


def _told(thing):
    """The thing in words of Python, without what is as by default."""
    if not is_dataclass(thing):
        return f"({', '.join(map(_told, thing))},)" if isinstance(thing, tuple) and thing else repr(thing)
    given = {field.name: getattr(thing, field.name) for field in fields(thing)}
    told = [f"{field.name}={_told(given[field.name])}" for field in fields(thing) if given[field.name] != field.default]
    return f"{type(thing).__name__}({', '.join(told)})"


def _without_lost(job, known):
    kept = tuple(one for one in job.spec.dependencies if one.job is None or one.job in known)
    return replace(job, spec=replace(job.spec, dependencies=kept))


def _is_about(event, parts):
    """Whether all that the event names is still there."""
    if isinstance(event, NodeDrained | NodeUp):
        return event.node in parts.nodes
    return getattr(event, "job", None) is None or event.job in parts.jobs
