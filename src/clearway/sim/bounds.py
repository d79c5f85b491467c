"""Limits of what any scheduler could reach for a workload on a cluster, so that a policy is judged by its gap to them.

All lower bounds hold for every schedule: with or without preemption, resizing and migration, on any mixture of device
types, with all knowledge of the future. They hold because they rest on three facts about job j only:

- it cannot end before its release r_j plus its shortest run time p_j (on its fastest type, at its fastest size);
- its work costs area: while it is worked on at rate y_j(t) (parts of the job per ms, ∫ y_j = 1), it uses at least
  a_jt y_j(t) devices of type t;
- y_j(t) ≤ 1/p_j: nothing makes it faster.

One machine. Give device types prices s_t ≥ 0 with Σ_t s_t devices_t = 1, and let q_j = min_t s_t a_jt. Then
Σ_j q_j y_j(t) ≤ 1 at all times: every schedule is a preemptive schedule of jobs with work q_j on one machine. With
equal prices this is the squashed area, devices × time / cluster.

From it follow the bounds of `compute_bounds`; each function below states its own proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clearway.model.cluster import ClusterSpec
from clearway.model.errors import MissingExtraError
from clearway.model.units import SECOND_MS
from clearway.sim.bounds_ceiling import SpeedCeiling, ceiling_of_spec
from clearway.sim.bounds_lp import IntervalPrices, find_interval_prices, find_makespan_prices
from clearway.sim.bounds_machine import mean_busy_delay_ms, srpt_flow_ms
from clearway.sim.bounds_work import WorkTable, tabulate_work
from clearway.sim.workload import Workload

FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]

ASCENT_STEPS: Final = 12
"""Steps in search of the best shares in `split_busy_flow_ms`. Each costs one schedule of all jobs (0.1 s for half a
million); on the RICC log twice as many raise the bound by half a per cent."""

MIN_SHARE: Final = 1e-6
"""Smallest share of a job in the search: not 0, so that its place behind the others is still defined by its work."""

SPLITS: Final = (0.0, 0.5, 1.0)
"""Shares tried for each job in `priced_flow_ms`; the best share of a job lies near an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundDetail:
    """One bound of its own: `name`, `value` in `unit`, and why it holds."""

    name: str
    value: float
    unit: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """No schedule has a smaller mean JCT or makespan; NaN where no job can run. None has a larger allocation ratio
    while all devices are healthy and no work is done twice: lost work is allocated too, but is nothing to strive for.

    jobs: how many they are about. details: the single bounds; the first two fields are the largest of their kind.
    notes: what was left out, in sentences.
    """

    jobs: int
    jct_mean_s: float
    makespan_s: float
    device_allocation_ratio: float
    details: tuple[BoundDetail, ...]
    notes: tuple[str, ...] = ()


def compute_bounds(
    workload: Workload,
    cluster: ClusterSpec,
    *,
    include: BoolColumn | None = None,
    ceiling: SpeedCeiling = ceiling_of_spec,
) -> Bounds:
    """Bounds for the jobs of `workload` that can run on `cluster`.

    include: bool[jobs], which jobs to count (None = all): a gap is fair only between numbers about the same jobs, so
    give the finished ones where not all finished. ceiling: `ceiling_of_speeds` for workloads with speed profiles. Jobs
    ended by their deadline or cancelled must be left out by `include`. Linear programs are used where the cluster has
    several device types; without the extra `twin` they are left out, with a note.
    """
    work = tabulate_work(workload.jobs, cluster, include=include, ceiling=ceiling)
    notes = [f"{work.left_out} jobs can never run on this cluster and are not counted"] if work.left_out else []
    if len(work) == 0:
        return Bounds(
            jobs=0,
            jct_mean_s=np.nan,
            makespan_s=np.nan,
            device_allocation_ratio=np.nan,
            details=(),
            notes=tuple(notes),
        )
    prices = {"": np.ones_like(work.devices)}
    if len(np.unique(work.speed)) > 1:
        prices["by speed"] = work.speed
    details: list[BoundDetail] = []
    if len(work.devices) > 1:
        try:
            prices["by LP"] = find_makespan_prices(work)
            details.append(_interval_detail(work))
        except MissingExtraError as error:
            notes.append(f"Bounds by linear programs are left out: {error}")
    details += _run_details(work)
    for name, price in prices.items():
        details += _machine_details(work, price, name)
    return _summarise(work, details, notes)


def release_area_ms(release_ms: FloatColumn, work_ms: FloatColumn) -> float:
    """Lower bound on the makespan: max over releases r of r + Σ work of jobs released at or after r.

    Proof: that work cannot begin before r, and the one machine does at most 1 ms of it per ms. release_ms sorted.
    """
    return float((release_ms + np.cumsum(work_ms[::-1])[::-1]).max())


def split_busy_flow_ms(release_ms: FloatColumn, work_ms: FloatColumn, run_ms: FloatColumn) -> tuple[float, float]:
    """Two lower bounds on Σ (completion − release): by mean busy times alone, and with the best split found.

    Proof. Let M_j = ∫ t y_j(t) dt be the mean busy time of job j. As y_j ≤ 1/p_j and nothing happens after C_j,
    M_j ≤ C_j − p_j/2 (Goemans, Queyranne, Schulz, Skutella, Wang, SIAM J. Discrete Math. 15(2), 2002, for one machine).
    Also C_j ≥ r_j + p_j. So for any shares 0 ≤ λ_j ≤ 1:
    Σ C_j ≥ Σ λ_j (M_j + p_j/2) + (1 − λ_j)(r_j + p_j), and Σ λ_j M_j = Σ (λ_j/q_j) ∫ t q_j y_j(t) dt is least when the
    one machine always works on the released job of largest λ_j/q_j: it fills the earliest time with the dearest work.
    λ = 1 gives the first bound. A subgradient of the bound in λ is M_j − r_j − p_j/2; a few steps along it give the
    second. Every step is a valid bound, so the search needs no tolerance.
    """
    share = np.where(work_ms > 0, 1.0, 0.0)
    best = first = -np.inf
    for step in range(ASCENT_STEPS):
        delay = mean_busy_delay_ms(release_ms, work_ms, _ranks(share, work_ms))
        bound = float((share * (delay + run_ms / 2) + (1 - share) * run_ms).sum())
        first = bound if step == 0 else first
        best = max(best, bound)
        slope = delay - run_ms / 2
        scale = np.maximum(np.maximum(delay, run_ms / 2), 1e-9)
        share = np.where(work_ms > 0, np.clip(share + slope / scale / (1 + step), MIN_SHARE, 1.0), 0.0)
    return first, best


def priced_flow_ms(work: WorkTable, prices: IntervalPrices) -> float:
    """Lower bound on Σ (completion − release) from prices of device-time by type and interval.

    Proof. Charge each job a price for all the device-time that its work uses; all device-time there is costs
    Σ_tk price_tk devices_t length_k. So Σ C_j ≥ Σ_j min over schedules of job j alone of [C_j + its charge] − that sum.
    For job j, C_j ≥ λ (M_j + p_j/2) + (1 − λ)(r_j + p_j), which with the charge is linear in where its work lies, so
    the minimum is at one type and one interval k not over before r_j, where M_j ≥ max(r_j, begin of k). As jobs are
    now independent, each takes its own best λ.
    """
    edges, price = prices.edges_ms, prices.per_device_ms
    ends = np.append(edges[1:], np.inf)
    best = np.full(len(work), -np.inf)
    for share in SPLITS:
        least = np.full(len(work), np.inf)
        for kind, interval in np.ndindex(*price.shape):
            wait = np.maximum(edges[interval] - work.release_ms, 0.0)
            cost = share * wait + _charge(work, kind, float(price[kind, interval]))
            least = np.minimum(least, np.where(ends[interval] > work.release_ms, cost, np.inf))
        best = np.maximum(best, least + work.run_min_ms * (1 - share / 2))
    supply = (price[:, :-1] * work.devices[:, None] * np.diff(edges)).sum()
    return float(best.sum() - supply)


def _ranks(share: FloatColumn, work_ms: FloatColumn) -> NDArray[np.int64]:
    """int64[n]: 0 for the largest share / work; −1 for jobs without a share."""
    counted = np.flatnonzero(share > 0)
    order = counted[np.argsort(-share[counted] / work_ms[counted], kind="stable")]
    ranks = np.full(len(share), -1, dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def _run_details(work: WorkTable) -> list[BoundDetail]:
    return [
        BoundDetail(
            name="run time",
            value=float(work.run_min_ms.mean()) / SECOND_MS,
            unit="jct_mean_s",
            definition="Mean of the shortest possible run times: every job starts at once.",
        ),
        BoundDetail(
            name="last job",
            value=float((work.release_ms + work.run_min_ms).max()) / SECOND_MS,
            unit="makespan_s",
            definition="The latest of submission plus shortest possible run time.",
        ),
    ]


def _machine_details(work: WorkTable, price: FloatColumn, name: str) -> list[BoundDetail]:
    """The bounds by the one machine that `price` (float64[T], any scale) makes of the cluster."""
    squashed = _squash(work, price)
    suffix = f" ({name})" if name else ""
    count = len(work) * SECOND_MS
    busy, split = split_busy_flow_ms(work.release_ms, squashed, work.run_min_ms)
    return [
        BoundDetail(
            name="area" + suffix,
            value=release_area_ms(work.release_ms, squashed) / SECOND_MS,
            unit="makespan_s",
            definition="Largest over all moments of: the moment + work submitted from then on / capacity.",
        ),
        BoundDetail(
            name="squashed-area SRPT" + suffix,
            value=float(srpt_flow_ms(work.release_ms, squashed).sum()) / count,
            unit="jct_mean_s",
            definition="The cluster as one machine, each job's work spread over all of it, shortest remaining first, "
            "preempting at will (Schrage 1968).",
        ),
        BoundDetail(
            name="mean busy time + half run time" + suffix,
            value=busy / count,
            unit="jct_mean_s",
            definition="A job ends at least half its run time after the average moment at which it is worked on "
            "(Goemans et al. 2002).",
        ),
        BoundDetail(
            name="split mean busy time" + suffix,
            value=split / count,
            unit="jct_mean_s",
            definition="As before, but each job counts in part by its mean busy time and in part by submission plus "
            "run time; the parts are chosen so that the bound is as high as possible.",
        ),
    ]


def _interval_detail(work: WorkTable) -> BoundDetail:
    horizon = float((work.release_ms + work.run_min_ms).max())
    horizon = max(horizon, release_area_ms(work.release_ms, _squash(work, np.ones_like(work.devices))), 1.0)
    prices = find_interval_prices(work, horizon)
    return BoundDetail(
        name="interval LP",
        value=priced_flow_ms(work, prices) / (len(work) * SECOND_MS),
        unit="jct_mean_s",
        definition="Device-time of each type and interval gets a price from a linear program (HiGHS); the bound is the "
        "cheapest that all jobs could do at these prices (Hall et al. 1997; weak duality).",
    )


def _squash(work: WorkTable, price: FloatColumn) -> FloatColumn:
    """float64[n]: q_j of the module docstring, in ms, with `price` scaled to Σ price × devices = 1."""
    total = float((price * work.devices).sum())
    scaled = price / total if total > 0 else np.full_like(price, 1 / work.devices.sum())
    least = np.full(len(work), np.inf)
    for kind, value in enumerate(scaled):
        least = np.minimum(least, _charge(work, kind, value))
    return least


def _charge(work: WorkTable, kind: int, price: float) -> FloatColumn:
    """float64[n]: what the work of each job costs on one type; infinite where it may not run, also at price 0."""
    area = work.area_ms[:, kind]
    return area * price if price > 0 else np.where(np.isfinite(area), 0.0, np.inf)


def _summarise(work: WorkTable, details: Sequence[BoundDetail], notes: Sequence[str]) -> Bounds:
    makespan = max(detail.value for detail in details if detail.unit == "makespan_s")
    capacity = float(work.devices.sum()) * makespan * SECOND_MS
    ratio = min(float(work.area_max_ms.sum()) / capacity, 1.0) if capacity else np.nan
    allocation = BoundDetail(
        name="work over capacity",
        value=ratio,
        unit="device_allocation_ratio",
        definition="Most device-time that the jobs could hold without losses / (devices × lower bound of the "
        "makespan), at most 1. It leaves out start-up, checkpoints, restarts and work that was lost and done again: a "
        "run that spends much on these can allocate more than this, and is not better for it.",
    )
    return Bounds(
        jobs=len(work),
        jct_mean_s=max(detail.value for detail in details if detail.unit == "jct_mean_s"),
        makespan_s=makespan,
        device_allocation_ratio=ratio,
        details=(*details, allocation),
        notes=tuple(notes),
    )
