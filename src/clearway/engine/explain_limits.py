"""Why a job may not start whatever is free: what its user asked, limits of queues, quotas of tenants, headroom."""

from dataclasses import dataclass, replace

from clearway.engine.dependencies import NEEDS_START
from clearway.engine.explain_room import BLOCKERS_MAX, DEVICES_GIVEN_BACK, Finding, make_finding
from clearway.engine.lifecycle import HOLDING, WAITING
from clearway.engine.limits import PROTECTED_KINDS, headroom_milli
from clearway.engine.quota import UNLIMITED, borrowed_milli, tenant_available
from clearway.engine.reasons import REASON_HEADROOM
from clearway.engine.records import JobRecord
from clearway.engine.scene import Need, Scene
from clearway.engine.state import ClusterState
from clearway.engine.tables import (
    JOB_QUEUE,
    JOB_REASON,
    JOB_TENANT,
    NONE,
    POOL_NODE,
    QUEUE_DEVICES_MAX,
    QUEUE_JOB_MAX,
    QUEUE_RUNNING,
    QUEUE_RUNNING_MAX,
    QUEUE_USED,
    TENANT_BORROW_MAX,
    TENANT_HAS_QUOTA,
    TENANT_KEPT,
    TENANT_NOMINAL,
    TENANT_PARENT,
    TENANT_SUBTREE,
    TENANT_TAKEN,
    TENANT_USED,
    Table,
)
from clearway.engine.words import count_in_words, devices_in_words, jobs_in_words, number_in_words, time_in_words
from clearway.model.events import (
    DemandForecast,
    JobFinished,
    JobReleased,
    JobStarted,
    NodeAdded,
    QueueSet,
    TenantSet,
    TimerFired,
)
from clearway.model.ids import JobId
from clearway.model.jobs import Dependency, DependencyKind, Outcome
from clearway.model.plan import ReasonCode
from clearway.model.units import MILLI

# --- what its user asked ------------------------------------------------------------------------------------------


def find_blocks(state: ClusterState, record: JobRecord) -> list[Finding]:
    """Holds, dependencies, begin time and the limit of its array: all of them, not only the first."""
    spec = record.spec
    found = []
    if record.held:
        fix = f"release job {spec.id}"
        text = record.held_because or "its user holds it"
        found.append(make_finding(record.held_as, text, fix=fix, helped_by=(JobReleased.__name__,)))
    found.extend(_find_dependencies(state, record))
    if spec.not_before_ms is not None and state.now_ms < spec.not_before_ms:
        text = f"is not to begin before {time_in_words(spec.not_before_ms - state.now_ms)} from now"
        found.append(make_finding(ReasonCode.BEGIN_TIME, text, helped_by=(TimerFired.__name__,)))
    if record.phase not in WAITING:
        found.extend(_find_array_limit(state, record))
    return found


def _find_dependencies(state: ClusterState, record: JobRecord) -> list[Finding]:
    """What each dependency that is not satisfied waits for. Where one is enough: none when one is, else those that may
    still come true."""
    spec = record.spec
    found = [_find_dependency(state, record, dependency) for dependency in spec.dependencies]
    open_ones = [finding for finding in found if finding is not None]
    if not spec.depends_on_any or not open_ones:
        return open_ones
    if len(open_ones) < len(found):
        return []
    possible = [one for one in open_ones if one.reason.code is not ReasonCode.DEPENDENCY_NEVER]
    if not possible:
        return open_ones
    return [
        replace(one, reason=replace(one.reason, message=f"{one.reason.message}; one of its dependencies is enough"))
        for one in possible
    ]


def _find_dependency(state: ClusterState, record: JobRecord, dependency: Dependency) -> Finding | None:
    """Why a dependency is not satisfied, None when it is."""
    if dependency.job is None:
        return _find_singleton(state, record)
    targets = state.dependencies.targets(record.spec, dependency)
    if not targets:
        assert dependency.job is not None
        text = f"waits for task {dependency.task} of array {dependency.job}, which is not known"
        return make_finding(ReasonCode.DEPENDENCY, text, fix=_without_dependency(dependency.job))
    if len(targets) > 1:
        return _find_array(state, record, dependency, targets)
    kind, job = dependency.kind, targets[0]
    if dependency.delay_ms and (since_ms := state.dependencies.since_ms(job)) is not None:
        return _find_delay(state, dependency, job, since_ms + dependency.delay_ms)
    outcome = state.dependencies.outcomes.get(job)
    if kind in NEEDS_START and state.dependencies.can_never_start(job):
        text = f"job {job} can never start, so {kind.value} can never be satisfied"
        return make_finding(ReasonCode.DEPENDENCY_NEVER, text, fix=_without_dependency(job))
    if outcome is None and job in state.jobs:
        if kind is DependencyKind.AFTER and state.jobs[job].generation > 0:
            return None
        event = JobStarted if kind is DependencyKind.AFTER else JobFinished
        text = f"waits for job {job} ({kind.value})"
        return make_finding(ReasonCode.DEPENDENCY, text, blockers=(job,), helped_by=(event.__name__,))
    if outcome is None:
        text = f"waits for job {job} ({kind.value}), which is not known: it was never accepted, or ended long ago"
        return make_finding(ReasonCode.DEPENDENCY, text, fix=_without_dependency(job))
    is_any = kind in (DependencyKind.AFTER, DependencyKind.AFTER_ANY)
    if is_any or (outcome is Outcome.COMPLETED) != (kind is DependencyKind.AFTER_NOT_OK):
        return None
    text = f"job {job} ended {outcome.value}, so {kind.value} can never be satisfied"
    return make_finding(ReasonCode.DEPENDENCY_NEVER, text, fix=_without_dependency(job))


def _find_delay(state: ClusterState, dependency: Dependency, job: JobId, due_ms: int) -> Finding | None:
    """The delay after a job that has started; None when it is over."""
    if state.now_ms >= due_ms:
        return None
    delay, left = time_in_words(dependency.delay_ms), time_in_words(due_ms - state.now_ms)
    text = f"waits until {delay} after job {job} started, {left} from now"
    return make_finding(ReasonCode.DEPENDENCY, text, helped_by=(TimerFired.__name__,))


def _find_array(
    state: ClusterState, record: JobRecord, dependency: Dependency, tasks: tuple[JobId, ...]
) -> Finding | None:
    code, kind = state.dependencies.dependency_reason(record.spec, dependency, state.now_ms), dependency.kind
    assert dependency.job is not None
    if code is ReasonCode.DEPENDENCY:
        missing = tuple(job for job in tasks if job in state.jobs)
        text = f"waits for {len(missing)} of {len(tasks)} tasks of array {dependency.job} ({kind.value})"
        event = JobStarted if kind is DependencyKind.AFTER else JobFinished
        return make_finding(code, text, blockers=missing, helped_by=(event.__name__,))
    if code is ReasonCode.DEPENDENCY_NEVER:
        can_start = not any(state.dependencies.can_never_start(job) for job in tasks)
        seen = "ended so that" if can_start else "can never start, so"
        text = f"tasks of array {dependency.job} {seen} {kind.value} can never be satisfied"
        return make_finding(code, text, fix=_without_dependency(dependency.job))
    return None


def _without_dependency(job: JobId) -> str:
    return f"submit it again without the dependency on job {job}"


def _find_singleton(state: ClusterState, record: JobRecord) -> Finding | None:
    """Every job of the name and user that holds devices or lies suspended is in the way, and singletons before it."""
    spec = record.spec
    rivals = tuple(
        other.spec.id
        for other in state.jobs.values()
        if (other.spec.user, other.spec.name) == (spec.user, spec.name)
        and other is not record
        and (other.phase in HOLDING or other.suspended or (other.spec.id < spec.id and _is_singleton(other)))
    )
    if not rivals:
        return None
    named = jobs_in_words(rivals[:BLOCKERS_MAX], len(rivals) - BLOCKERS_MAX)
    text = f"waits for {named} of the same name and user (singleton)"
    return make_finding(ReasonCode.DEPENDENCY, text, blockers=rivals, helped_by=(JobFinished.__name__,))


def _is_singleton(record: JobRecord) -> bool:
    return any(dependency.job is None for dependency in record.spec.dependencies)


def _find_array_limit(state: ClusterState, record: JobRecord) -> list[Finding]:
    array = record.spec.array
    if array is None or array.parallel_max == 0:
        return []
    active = tuple(
        other.spec.id
        for other in state.jobs.values()
        if other.spec.array is not None
        and other.spec.array.array == array.array
        and other is not record
        and (other.phase in HOLDING or other.phase in WAITING)
    )
    if len(active) < array.parallel_max:
        return []
    text = f"array {array.array} runs at most {array.parallel_max} tasks at once"
    return [make_finding(ReasonCode.ARRAY_LIMIT, text, blockers=active, helped_by=(JobFinished.__name__,))]


# --- limits of queues and tenants ---------------------------------------------------------------------------------


def find_limits(scene: Scene, record: JobRecord, need: Need) -> list[Finding]:
    """Limits of its queue, quota of its tenant, and headroom."""
    state = scene.state
    found = [*_find_queue_limits(state, record, need), *_find_quota(state, record, need)]
    return [*found, *_find_headroom(scene, record, need)]


def _find_queue_limits(state: ClusterState, record: JobRecord, need: Need) -> list[Finding]:
    queue = int(state.rows.table[JOB_QUEUE, record.row])
    limits = state.accounts.queues[:, queue].tolist()
    name = f"queue {record.spec.queue}"
    if need.milli > limits[QUEUE_JOB_MAX]:
        text = f"{name} takes jobs of at most {devices_in_words(limits[QUEUE_JOB_MAX])}; it asks for "
        fix = f"ask for at most {devices_in_words(limits[QUEUE_JOB_MAX])}, or choose another queue"
        text += number_in_words(need.milli)
        return [make_finding(ReasonCode.QUEUE_JOB_LIMIT, text, fix=fix, helped_by=(QueueSet.__name__,))]
    left = limits[QUEUE_DEVICES_MAX] - limits[QUEUE_USED]
    is_above_all = need.milli > limits[QUEUE_DEVICES_MAX]
    if need.milli > left:
        text = f"jobs of {name} hold {number_in_words(limits[QUEUE_USED])} of at most "
        text += f"{devices_in_words(limits[QUEUE_DEVICES_MAX])}; it asks for {number_in_words(need.milli)} more"
    elif limits[QUEUE_RUNNING] >= limits[QUEUE_RUNNING_MAX]:
        text = f"{name} runs at most {count_in_words(int(limits[QUEUE_RUNNING_MAX]), 'job')} at once"
    else:
        return []
    finding = make_finding(
        ReasonCode.QUEUE_LIMIT,
        text,
        fix=f"ask for at most {devices_in_words(limits[QUEUE_DEVICES_MAX])}, or choose another queue"
        if is_above_all
        else "",
        needed_milli=need.milli,
        available_milli=left if limits[QUEUE_DEVICES_MAX] < UNLIMITED else 0,
        blockers=() if is_above_all else _holders(state, JOB_QUEUE, {queue}),
        helped_by=(*(() if is_above_all else DEVICES_GIVEN_BACK), QueueSet.__name__),
    )
    return [finding]


def _holders(state: ClusterState, column: int, rows: set[int]) -> tuple[JobId, ...]:
    """Jobs that hold devices and have one of `rows` in a column, those that end first at the front."""
    table = state.rows.table
    return tuple(state.by_row[row].spec.id for row in state.holding_rows().tolist() if int(table[column, row]) in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortLevel:
    """A tenant whose own quota and borrowing limit leave too little for a job of it or of one below; thousandths.

    left: what the job could ask for at most, were this the only level. most: the same when nobody holds anything. over:
    what is held beyond all that it allows, as after a change of the quota.
    """

    row: int
    left: int
    most: int
    over: int


def _find_quota(state: ClusterState, record: JobRecord, need: Need) -> list[Finding]:
    row = int(state.rows.table[JOB_TENANT, record.row])
    available = tenant_available(state.accounts.tenants, row)
    if available >= need.milli:
        return []
    return [
        _find_short(state, level, need, available) for level in short_levels(state.accounts.tenants, row, need.milli)
    ]


def short_levels(tenants: Table, row: int, milli: int) -> list[ShortLevel]:
    """Which levels let tenant `row` not take `milli` thousandths more, from it upwards; [] where it may.

    A level asks of the one above only what is beyond what it keeps for itself.
    """
    found = []
    asked = asked_of_empty = milli
    while row != NONE and asked > 0:
        column = tenants[:, row].tolist()
        most = column[TENANT_SUBTREE]
        if column[TENANT_PARENT] != NONE:
            most += column[TENANT_BORROW_MAX] if column[TENANT_HAS_QUOTA] else UNLIMITED
        left = max(0, most - column[TENANT_TAKEN])
        if asked > left:
            over = max(0, column[TENANT_TAKEN] - most)
            found.append(ShortLevel(row=row, left=left + milli - asked, most=most + milli - asked_of_empty, over=over))
        asked -= min(asked, max(0, column[TENANT_KEPT] - column[TENANT_TAKEN]))
        asked_of_empty -= min(asked_of_empty, column[TENANT_KEPT])
        row = column[TENANT_PARENT]
    return found


def _find_short(state: ClusterState, level: ShortLevel, need: Need, available: int) -> Finding:
    """Where the job asks for more than the level ever has, nothing that ends helps."""
    is_above_all = need.milli > level.most
    fitting = min(level.most, available or level.most)
    grows = state.accounts.tenants[TENANT_PARENT, level.row] == NONE
    lifts = (TenantSet.__name__, NodeAdded.__name__) if grows else (TenantSet.__name__,)
    return make_finding(
        ReasonCode.QUOTA,
        f"{_quota_in_words(state, level.row)}; it asks for {number_in_words(need.milli)} more",
        fix=f"ask for at most {devices_in_words(fitting)}" if fitting > 0 and (available or is_above_all) else "",
        needed_milli=need.milli,
        available_milli=level.left - level.over,
        blockers=() if is_above_all else _holders(state, JOB_TENANT, _rows_below(state, level.row)),
        helped_by=lifts if is_above_all else (*DEVICES_GIVEN_BACK, *lifts),
    )


def _quota_in_words(state: ClusterState, row: int) -> str:
    """Only the root, and tenants with a quota and a borrowing limit, can be short by themselves."""
    column = state.accounts.tenants[:, row].tolist()
    if column[TENANT_PARENT] == NONE:
        share = f"{number_in_words(column[TENANT_TAKEN])} of {devices_in_words(column[TENANT_SUBTREE])}"
        return f"all tenants together hold {share} that they may lend one another"
    text = f"quota of tenant {state.accounts.tenant_specs[row].name}: {number_in_words(column[TENANT_USED])} held of "
    text += f"{number_in_words(column[TENANT_NOMINAL])}, borrows "
    borrowed = borrowed_milli(state.accounts.tenants, row)
    return f"{text}{number_in_words(borrowed)} of at most {number_in_words(column[TENANT_BORROW_MAX])}"


def _rows_below(state: ClusterState, row: int) -> set[int]:
    """The tenant and those below it whose use counts there; parents come before their children."""
    below, tenants = {row}, state.accounts.tenants
    for other in range(row + 1, state.accounts.tenant_count):
        if int(tenants[TENANT_PARENT, other]) in below and tenants[TENANT_TAKEN, other] > tenants[TENANT_KEPT, other]:
            below.add(other)
    return below


def _find_headroom(scene: Scene, record: JobRecord, need: Need) -> list[Finding]:
    state = scene.state
    kept = headroom_milli(state)
    if kept == 0 or need.milli == 0 or record.spec.kind in PROTECTED_KINDS:
        return []
    if need.share < MILLI and state.rows.table[JOB_REASON, record.row] != REASON_HEADROOM:
        return []  # shares may lie on devices in use: whether there is room on these, the last cycle found
    is_usable = scene.is_usable[scene.pools[POOL_NODE][scene.device_pool]]
    whole_free = MILLI * int((is_usable & (scene.share == MILLI)).sum())
    if not need.milli <= whole_free < need.milli + kept:
        return []
    text = f"{number_in_words(whole_free)} devices are free, but {number_in_words(kept)} are kept for services, tasks "
    text += "and interactive jobs"
    spare = max(whole_free - kept, 0)
    finding = make_finding(
        ReasonCode.HEADROOM,
        text,
        fix=f"ask for at most {devices_in_words(spare)}" if spare >= MILLI else "",
        needed_milli=need.milli,
        available_milli=spare,
        helped_by=(*DEVICES_GIVEN_BACK, DemandForecast.__name__),
    )
    return [finding]
