"""Why a job has no room: nothing would ever hold it, what would is down, or what would is in use, and how.

Each question is a what-if of `scene`: the job fits if this one thing were otherwise, so this one thing is a reason.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from clearway.engine.budgets import is_leaving
from clearway.engine.explain_constraints import (
    NAMES_MAX,
    Constraint,
    constraints_of,
    models_in_words,
    nodes_in_words,
    proposal,
)
from clearway.engine.lifecycle import HOLDING
from clearway.engine.records import JobRecord
from clearway.engine.scene import (
    BoolArray,
    IntArray,
    Need,
    Scene,
    empty_scene,
    fits,
    free_milli_by_node,
    room_by_node,
    room_in_domain,
    scene_without_claims,
    scene_without_jobs,
    suits_pools,
)
from clearway.engine.state import ClusterState
from clearway.engine.tables import JOB_END_MS, LEVEL_SITE, NONE, PHASE_STOPPING, POOL_NODE
from clearway.engine.words import (
    count_in_words,
    devices_in_words,
    jobs_in_words,
    list_in_words,
    memory_in_words,
    number_in_words,
    time_in_words,
)
from clearway.model.events import DeviceUp, JobFinished, JobResized, JobStopped, JobSuspended, NodeAdded, NodeUp
from clearway.model.ids import JobId
from clearway.model.plan import ReasonCode, Rejection
from clearway.model.units import FOREVER_MS, MILLI

BLOCKERS_MAX: Final = 8
"""Blocking jobs named in one reason: as many as a person reads; the rest is a number."""

DEVICES_GIVEN_BACK: Final = (JobFinished.__name__, JobStopped.__name__, JobSuspended.__name__, JobResized.__name__)
"""Events after which devices may be free."""
DEVICES_COME_UP: Final = (NodeUp.__name__, DeviceUp.__name__, NodeAdded.__name__)


START_NOW: Final = "it could start now"
"""Ends a fix that is enough by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One reason, and what would put it out of the way at the least cost; "" = only waiting does."""

    reason: Rejection
    fix: str = ""


Barred = Callable[[Need], str]
"""What would keep the job from starting with another need, if there is room for that; "" = nothing."""


def make_finding(
    code: ReasonCode,
    text: str,
    *,
    fix: str = "",
    needed_milli: int = 0,
    available_milli: int = 0,
    blockers: tuple[JobId, ...] = (),
    helped_by: tuple[str, ...] = (),
) -> Finding:
    """A finding whose message begins with the token of its code."""
    reason = Rejection(
        code,
        f"{code.value}: {text}",
        needed_milli=needed_milli,
        available_milli=available_milli,
        blockers=blockers[:BLOCKERS_MAX],
        helped_by=helped_by,
    )
    return Finding(reason=reason, fix=fix)


def gang_in_words(need: Need) -> str:
    """What the whole job asks for: `2 replicas of 8 devices`."""
    each = devices_in_words(need.devices * need.share) if need.devices else "no device"
    return each if need.replicas == 1 else f"{need.replicas} replicas of {each}"


# --- whatever runs ------------------------------------------------------------------------------------------------


def find_never(state: ClusterState, need: Need, barred: Barred) -> Finding | None:
    """The job fits nowhere even when nothing runs and nothing is down.

    barred: what a limit forbids whatever ends; where only that is in the way of a smaller request, the fix is the
    limit's.
    """
    scene = empty_scene(state, with_failed=True)
    if fits(scene, need):
        return None
    then = "it could start when they are free"
    fix = smaller_request(scene, need, then, barred)
    if not fix and not smaller_request(scene, need, then, lambda _: ""):
        fix = "cancel it and ask for what the cluster has"
    return make_finding(
        ReasonCode.NEVER_FITS,
        _why_never(scene, need),
        fix=fix,
        needed_milli=need.milli,
        available_milli=int(scene.share.sum()),
        helped_by=(NodeAdded.__name__,),
    )


def _why_never(scene: Scene, need: Need) -> str:
    """What alone keeps the job from fitting anywhere; else all that it asks too much of, each by itself; else all of
    which there is not enough together."""
    asked = constraints_of(scene.state, need)
    alone = [one for one in asked if fits(scene, one.need)]
    if len(alone) == 1:
        return f"{alone[0].text}; {_most_there(scene, need, alone[0], need)}"
    parts = [] if alone else _too_much(scene, need, asked)
    if parts:
        return "; it also ".join(parts)
    return f"{list_in_words([one.text for one in alone or asked])}; {_most_together(scene, need)}"


def _too_much(scene: Scene, need: Need, asked: list[Constraint]) -> list[str]:
    """The size of the job, and each thing that it asks, where the cluster could not even give this alone."""
    bare = _bare(need)
    parts = []
    is_too_large = not fits(scene, bare)
    if is_too_large:
        most = int(free_milli_by_node(scene, bare).max(initial=0))
        text = f"asks for {gang_in_words(need)}; the cluster has {devices_in_words(int(scene.share.sum()))}"
        parts.append(f"{text}, at most {number_in_words(most)} on one node")
    for one in asked:
        only = _only(need, one)
        if not fits(scene, only) and not (is_too_large and one.code is ReasonCode.TOPOLOGY):
            parts.append(f"{one.text}; {_most_there(scene, need, one, only)}")
    return parts


def _bare(need: Need) -> Need:
    return replace(need, models=NONE, device_memory=0, labels=0, cpu=0, memory=0, is_exclusive=False, widest=LEVEL_SITE)


def _only(need: Need, constraint: Constraint) -> Need:
    """The least that is asked together with this one thing: a device of one replica; for a domain, all replicas."""
    changed, bare = constraint.need, _bare(need)
    if changed.widest != need.widest:
        return replace(bare, widest=need.widest)
    return replace(
        bare,
        replicas=1,
        devices=min(need.devices, 1),
        models=need.models if changed.models != need.models else NONE,
        device_memory=need.device_memory - changed.device_memory,
        labels=need.labels if changed.labels != need.labels else 0,
        cpu=need.cpu - changed.cpu,
        memory=need.memory - changed.memory,
    )


def _most_together(scene: Scene, need: Need) -> str:
    return f"{room_in_domain(scene, need)} of {need.replicas} such replicas fit even when nothing runs"


def _most_there(scene: Scene, need: Need, constraint: Constraint, gang: Need) -> str:
    """What the cluster has of the thing that a constraint asks too much of. gang: what is to fit into one domain."""
    changed = constraint.need
    if changed.widest == need.widest and fits(scene, _only(need, constraint)):
        return _most_together(scene, need)
    if changed.models != need.models:
        names = [name for name in scene.state.inventory.models.names if _has_model(scene, name)]
        return f"the cluster has {list_in_words(names[:NAMES_MAX]) if names else 'no devices'}"
    if changed.cpu != need.cpu:
        return f"the largest node has {number_in_words(int(scene.cpu.max(initial=0)))}"
    if changed.memory != need.memory:
        return f"the largest node has {memory_in_words(int(scene.memory.max(initial=0)))}"
    if changed.device_memory != need.device_memory:
        return f"the largest device has {memory_in_words(int(scene.device_memory.max(initial=0)))}"
    if changed.widest != need.widest:
        return f"at most {room_in_domain(scene, gang)} fit into one even when it is empty"
    return "the cluster has too few of them"


def _has_model(scene: Scene, name: str) -> bool:
    return any(group.model == name for spec in scene.state.inventory.specs for group in spec.groups)


def _undrain(drained: list[str]) -> str:
    if not drained:
        return ""
    return f"an operator who knows that {nodes_in_words(drained)} can be used again may say so: clearway undrain"


def find_down(state: ClusterState, need: Need, barred: Barred) -> Finding | None:
    """The job fits nowhere on what is up, even when nothing runs. barred: what a limit forbids whatever ends."""
    up = empty_scene(state, with_failed=False)
    if fits(up, need):
        return None
    names, is_up = state.inventory.names.names, state.inventory.is_up
    down = [name for node, name in enumerate(names) if not is_up[node]]
    drained = [name for node, name in enumerate(names) if is_up[node] and not up.is_usable[node]]
    sick = int((up.share == 0).sum())
    parts = [f"{word}: {nodes_in_words(nodes)}" for word, nodes in (("down", down), ("drained", drained)) if nodes]
    if sick:
        parts.append(f"failed: {devices_in_words(sick * MILLI)}")
    return make_finding(
        ReasonCode.NODES_DOWN,
        f"asks for {gang_in_words(need)}, for which it needs what is not available ({'; '.join(parts)})",
        fix=smaller_request(up, need, "it could start before they are back", barred) or _undrain(drained),
        needed_milli=need.milli,
        available_milli=int(free_milli_by_node(up, need).sum()),
        helped_by=DEVICES_COME_UP,
    )


# --- what is in use -----------------------------------------------------------------------------------------------


def find_in_use(scene: Scene, need: Need, barred: Barred) -> list[Finding]:
    """Why the job does not fit beside what runs; empty when it does.

    A smaller request is proposed only if it would start now: `barred` says what else holds it.
    """
    if fits(scene, need):
        return []
    blockers = holders_by_end(scene, need)
    found = [*_find_held_back(scene, need), *_find_alone(scene, need)]
    found += _find_constraints(scene, need, blockers, barred)
    lacking = [] if found else _find_lacking(scene, need, blockers)
    free = int((free_milli_by_node if found else _open_milli_by_node)(scene, need).sum())
    found += lacking
    if free < need.milli:
        found.append(_totals_short(scene, need, free, blockers, barred))
    elif not found or (lacking and not fits(scene, replace(need, cpu=0, memory=0, is_exclusive=False))):
        found.append(_not_together(scene, need, free, blockers, barred))
    return found


def _find_constraints(scene: Scene, need: Need, blockers: tuple[JobId, ...], barred: Barred) -> list[Finding]:
    """One thing that the job asks for keeps it from fitting: without it, it would."""
    return [
        make_finding(
            constraint.code,
            f"{constraint.text}; {room_in_domain(scene, need)} of {need.replicas} such replicas fit now",
            fix=_less_of(scene, constraint, barred),
            needed_milli=need.milli,
            available_milli=int(free_milli_by_node(scene, need).sum()),
            blockers=blockers,
            helped_by=DEVICES_GIVEN_BACK,
        )
        for constraint in constraints_of(scene.state, need)
        if fits(scene, constraint.need)
    ]


def _less_of(scene: Scene, constraint: Constraint, barred: Barred) -> str:
    """The proposal to ask for less of what is short, if the job could start then."""
    begun = "" if barred(constraint.need) else proposal(constraint, lambda need: _would_do(scene, need, barred))
    return f"{begun} {START_NOW}" if begun else ""


def _find_lacking(scene: Scene, need: Need, blockers: tuple[JobId, ...]) -> list[Finding]:
    """What is short by itself, if not alone: the job would not fit if all but this were free."""
    up = empty_scene(scene.state, with_failed=False)
    found = []
    for one in constraints_of(scene.state, need):
        if one.need.cpu != need.cpu:
            others = replace(up, cpu=scene.cpu)
        elif one.need.memory != need.memory:
            others = replace(up, memory=scene.memory)
        elif one.need.is_exclusive != need.is_exclusive:
            others = replace(up, is_held=scene.is_held)
        else:
            continue
        fitting = room_in_domain(others, need)
        if fitting < need.replicas:
            finding = make_finding(
                one.code,
                f"{one.text}; enough for {fitting} of {need.replicas} is free now",
                needed_milli=need.milli,
                available_milli=int(free_milli_by_node(scene, need).sum()),
                blockers=blockers,
                helped_by=DEVICES_GIVEN_BACK,
            )
            found.append(finding)
    return found


def _find_held_back(scene: Scene, need: Need) -> list[Finding]:
    """Devices are on their way to being free, or kept for others by name: with them the job would fit."""
    state = scene.state
    found = []
    if state.claims and fits(scene_without_claims(scene), need):
        claimants = tuple(claim.job for claim in state.claims.values())
        text = f"devices that would do are kept for {jobs_in_words(claimants[:BLOCKERS_MAX])}"
        found.append(make_finding(ReasonCode.RESERVED, text, blockers=claimants, helped_by=DEVICES_GIVEN_BACK))
    leaving = [record for record in state.jobs.values() if record.phase == PHASE_STOPPING]
    if leaving and fits(scene_without_jobs(scene, leaving), need):
        jobs = tuple(record.spec.id for record in leaving)
        text = f"waits until {jobs_in_words(jobs[:BLOCKERS_MAX])}, told to stop, left the devices"
        found.append(make_finding(ReasonCode.CLEANING, text, blockers=jobs, helped_by=DEVICES_GIVEN_BACK))
    return found


def _is_shut(scene: Scene, need: Need) -> BoolArray:
    """bool[N]: some job lies there, and it or the job that asks wants the node alone."""
    return scene.is_held & (scene.is_alone | need.is_exclusive)


def _open_milli_by_node(scene: Scene, need: Need) -> IntArray:
    """int64[N]: as `free_milli_by_node`, without nodes that are shut to the job."""
    return np.where(_is_shut(scene, need), 0, free_milli_by_node(scene, need))


def _find_alone(scene: Scene, need: Need) -> list[Finding]:
    """The job would fit if no other had nodes to itself."""
    opened = replace(scene, is_alone=np.zeros_like(scene.is_alone))
    if not fits(opened, need):
        return []
    state = scene.state
    kept = scene.is_held & scene.is_alone & (room_by_node(opened, need) > 0)
    holding = [state.by_row[row] for row in state.holding_rows().tolist()]
    jobs = tuple(one.spec.id for one in holding if one.allocation is not None and kept[one.allocation.nodes].any())
    text = f"needs {'room on a node' if kept.sum() == 1 else 'room on nodes'} that {_have_to_themselves(jobs)}"
    finding = make_finding(
        ReasonCode.RESOURCES,
        f"{text}{next_end(state, jobs)}",
        needed_milli=need.milli,
        available_milli=int(_open_milli_by_node(scene, need).sum()),
        blockers=jobs,
        helped_by=DEVICES_GIVEN_BACK,
    )
    return [finding]


def _have_to_themselves(jobs: tuple[JobId, ...]) -> str:
    named = jobs_in_words(jobs[:BLOCKERS_MAX], len(jobs) - BLOCKERS_MAX)
    return f"{named} has to itself" if len(jobs) == 1 else f"{named} have to themselves"


def _totals_short(scene: Scene, need: Need, free: int, blockers: tuple[JobId, ...], barred: Barred) -> Finding:
    """Fewer devices are free than the job asks for, wherever they are."""
    fix = smaller_request(scene, need, START_NOW, barred)
    up = empty_scene(scene.state, with_failed=False)
    total = int(free_milli_by_node(up, need).sum())
    which = f" of {models_in_words(scene.state, need)}" if need.models != NONE else ""
    verb = "is" if free == MILLI else "are"
    shut = int(free_milli_by_node(scene, need).sum()) - free
    held = f"{number_in_words(free)} of {number_in_words(total)} {verb} free"
    if shut > 0:
        whose = "in use" if need.is_exclusive else "that other jobs have to themselves"
        held += f" beside {number_in_words(shut)} on nodes {whose}"
    elif free == 0:
        held = f"all {number_in_words(total)} are held"
    return make_finding(
        ReasonCode.RESOURCES,
        f"needs {devices_in_words(need.milli)}{which}; {held}{next_end(scene.state, blockers)}"
        f"{'' if fix else _held_back(scene, need, barred)}",
        fix=fix,
        needed_milli=need.milli,
        available_milli=free,
        blockers=blockers,
        helped_by=DEVICES_GIVEN_BACK,
    )


def _not_together(scene: Scene, need: Need, free: int, blockers: tuple[JobId, ...], barred: Barred) -> Finding:
    """Enough is free in all, but not where, or not together with CPUs and memory as, the job needs it."""
    fitting = room_in_domain(scene, need)
    fix = smaller_request(scene, need, START_NOW, barred)
    code = ReasonCode.FRAGMENTATION
    if need.devices == 0 or fits(scene, replace(need, cpu=0, memory=0)):
        code = ReasonCode.RESOURCES
        text = f"needs CPUs and memory for {count_in_words(need.replicas, 'replica')}; {fitting} fit now"
    else:
        text = f"{_spread_in_words(_open_milli_by_node(scene, need))}, but {_lack_in_words(need, fitting)}"
    return make_finding(
        code,
        text if fix else text + _held_back(scene, need, barred),
        fix=fix,
        needed_milli=need.milli,
        available_milli=free,
        blockers=blockers,
        helped_by=DEVICES_GIVEN_BACK,
    )


def _spread_in_words(by_node: np.ndarray) -> str:
    """How free devices lie: `2 devices are free on each of 6 nodes: 12 in all`."""
    some = by_node[by_node > 0]
    total, most = int(some.sum()), int(some.max(initial=0))
    if len(some) > 1 and (some == most).all():
        verb = "is" if most == MILLI else "are"
        return f"{devices_in_words(most)} {verb} free on each of {len(some)} nodes: {number_in_words(total)} in all"
    text = f"{devices_in_words(total)} are free on {count_in_words(len(some), 'node')}"
    return text if len(some) < 2 else f"{text}, at most {number_in_words(most)} on one"


def _lack_in_words(need: Need, fitting: int) -> str:
    if need.devices * need.share < MILLI:
        return (
            f"on single devices there is room for {fitting} of {need.replicas} shares of {number_in_words(need.share)}"
        )
    if need.replicas == 1:
        return f"no node has {number_in_words(need.devices * MILLI)}"
    return f"only {fitting} of {need.replicas} replicas find {number_in_words(need.devices * MILLI)} on one node"


def smaller_request(scene: Scene, need: Need, then: str, barred: Barred) -> str:
    """The change of size that costs the job least, makes it fit and is not barred.

    Tried in this order: other replicas, fewer replicas, fewer devices. then: what would be so, as the sentence ends.
    """
    total = need.replicas * need.devices
    if need.share == MILLI:
        for each in range(need.devices - 1, 0, -1):
            if total % each == 0 and _would_do(scene, replace(need, devices=each, replicas=total // each), barred):
                other = replace(need, devices=each, replicas=total // each)
                return f"as {gang_in_words(other)} instead of {gang_in_words(need)} {then}"
    fewer = _most_replicas(scene, need, barred)
    if fewer > 0:
        return f"with {count_in_words(fewer, 'replica')} instead of {need.replicas} {then}"
    if need.share < MILLI:
        return _smaller_share(scene, need, then, barred)
    for each in range(need.devices - 1, 0, -1):
        if _would_do(scene, replace(need, devices=each), barred):
            asked = need.devices if need.replicas == 1 else gang_in_words(need)
            return f"with at most {gang_in_words(replace(need, devices=each))} instead of {asked} {then}"
    return ""


def _would_do(scene: Scene, need: Need, barred: Barred) -> bool:
    return fits(scene, need) and not barred(need)


def _most_replicas(scene: Scene, need: Need, barred: Barred) -> int:
    """The most replicas that fit and are not barred; what bars some bars more too."""
    counts = range(1, min(room_in_domain(scene, need), need.replicas - 1) + 1)
    return bisect_left(counts, True, key=lambda count: bool(barred(replace(need, replicas=count))))


def _smaller_share(scene: Scene, need: Need, then: str, barred: Barred) -> str:
    most = int(np.where(suits_pools(scene, need)[scene.device_pool], scene.share, 0).max(initial=0))
    smaller = replace(need, share=min(most, need.share))
    if most == 0 or not _would_do(scene, smaller, barred):
        return ""
    return f"with a share of {number_in_words(most)} instead of {number_in_words(need.share)} {then}"


def _held_back(scene: Scene, need: Need, barred: Barred) -> str:
    """What holds even the least that the job could ask for, where that has room: as the end of a sentence."""
    least = replace(need, replicas=1, devices=min(need.devices, 1))
    why = barred(least) if least != need and fits(scene, least) else ""
    return f"; nor would it start if it asked for less ({why})" if why else ""


# --- who is in the way --------------------------------------------------------------------------------------------


def holders_by_end(scene: Scene, need: Need) -> tuple[JobId, ...]:
    """Jobs that hold something on nodes where the job could run, those that end first at the front; bounded."""
    state = scene.state
    suited = np.zeros(len(scene.is_usable), dtype=np.bool_)
    suited[scene.pools[POOL_NODE][suits_pools(scene, need)]] = True
    suited &= room_by_node(scene, need) < need.replicas
    found: list[JobId] = []
    for row in state.holding_rows().tolist():
        record = state.by_row[row]
        if record.allocation is not None and suited[record.allocation.nodes].any():
            found.append(record.spec.id)
            if len(found) == BLOCKERS_MAX:
                break
    return tuple(found)


def next_end(state: ClusterState, blockers: tuple[JobId, ...]) -> str:
    """When the first of the blockers is expected to end, as the end of a sentence."""
    ends = [(int(state.rows.table[JOB_END_MS, state.jobs[job].row]), job) for job in blockers]
    holding = [(end, job) for end, job in ends if state.jobs[job].phase in HOLDING]
    if not holding:
        return ""
    leaving = next((job for _, job in holding if gives_up(state.jobs[job])), None)
    if leaving is not None:
        return f"; {jobs_in_words((leaving,))} was told to give up devices already"
    end, job = holding[0]
    if end >= FOREVER_MS:
        return f"; {jobs_in_words((job,))} holds some, and nobody said for how long"
    if end <= state.now_ms:
        return f"; {jobs_in_words((job,))} was expected to end before now"
    return f"; the earliest expected to end is {jobs_in_words((job,))} in {time_in_words(end - state.now_ms)}"


def gives_up(record: JobRecord) -> bool:
    """Whether the job was told to leave all that it holds, or a part."""
    held, target = record.allocation, record.target
    if held is None or not is_leaving(record):
        return False
    return target is None or not np.isin(held.devices, target.devices).all()
