"""Failures and repairs of nodes and devices: fitted from real logs, sampled with a seeded generator.

A fault model is a mean time between failures, the shape of the gaps around that mean, and the distribution of repair
times, each for whole nodes and for single devices. Distributions are tables of quantiles at `PROBABILITIES` (linear
between), so that nothing is assumed about their form: real repair times have tails that no common distribution follows.

Sampling: every unit is met at a random moment of its life, so that failures come at the same rate from the start; later
ones follow the fitted gaps from the end of a repair. A fault that would begin while another of the same node lasts is
left out, so faults of one node never overlap.
"""

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearway.model.cluster import ClusterSpec
from clearway.model.errors import InputError
from clearway.model.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS
from clearway.sim.quantiles import PROBABILITIES, draw_quantiles, fit_quantiles, mean_of_quantiles
from clearway.sim.text_files import iterate_lines, open_text, read_head
from clearway.sim.workload import LINES_KEPT, Skipped

GAPS_MIN = 20
"""Repeated failures of one unit that a log must have before their gaps say more than "without memory"."""
RESIDUAL_GRID = 8192
"""Points at which the gap distribution is laid out to draw the first failures: finer than its upper tail needs."""
REPAIR_MIN_MS = MINUTE_MS
"""Shorter outages in the logs are rounding; a repair of zero length would be no failure."""
MTBF_MIN_MS = HOUR_MS
"""A unit that fails more often than this on average is no cluster but a mistake in units."""

INFINITEHBD_SERVERS_PER_FAULTY = 400 / 231
"""The whole source: 400 servers, 231 of which had faults. The subset names only the faulty ones."""
INFINITEHBD_DEVICES_PER_NODE = 8
TITAN_EVENTS = ("DBE", "OTB")
TITAN_SERVICE_FILE = "titan.service.txt"
LANL_DATE = "%m/%d/%Y %H:%M"
NOT_A_RECORD = "a record that cannot be understood"
END_BEFORE_START = "an outage that ends before it starts"

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFaults:
    """Faults of one kind of unit (a node or a device).

    mtbf_ms: mean time from the end of a repair to the next failure. gap_quantiles: that time relative to its mean.
    repair_quantiles_ms: time from failure to return. Both tables: rising values at PROBABILITIES.
    """

    mtbf_ms: int
    gap_quantiles: tuple[float, ...]
    repair_quantiles_ms: tuple[int, ...]

    def __post_init__(self) -> None:
        assert self.mtbf_ms >= MTBF_MIN_MS
        assert len(self.gap_quantiles) == len(PROBABILITIES)
        assert len(self.repair_quantiles_ms) == len(PROBABILITIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultModel:
    """What fails, how often and for how long. None = such units never fail. source: where the figures are from."""

    node: UnitFaults | None
    device: UnitFaults | None
    source: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A node (device None), or one device of it by index within the node, is out from at_ms until until_ms."""

    at_ms: int
    until_ms: int
    node_index: int
    device: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultFit:
    """A fitted model, what it rests on, and what was left out of the log."""

    model: FaultModel
    units: int
    faults: int
    skipped: tuple[Skipped, ...]


EXPONENTIAL_GAPS = tuple(round(-math.log(1 - min(probability, 0.9999)), 6) for probability in PROBABILITIES)
"""Gaps without memory, for logs with too few failures of any one unit to say more; cut at the 99.99th percentile."""


# --- Sampling --------------------------------------------------------------------------------------------------------


def sample_faults(model: FaultModel, cluster: ClusterSpec, horizon_ms: int, rng: np.random.Generator) -> list[Fault]:
    """Faults that begin before `horizon_ms`, sorted by (at_ms, node_index, device), not overlapping on any node."""
    counts = np.array([node.device_count for node in cluster.nodes], dtype=np.int64)
    found: list[tuple[int, int, int, int]] = []
    if model.node is not None:
        units, at, until = _sample_renewals(model.node, len(counts), horizon_ms, rng)
        found.extend(zip(units.tolist(), at.tolist(), until.tolist(), [-1] * len(units), strict=True))
    if model.device is not None:
        units, at, until = _sample_renewals(model.device, int(counts.sum()), horizon_ms, rng)
        nodes = np.repeat(np.arange(len(counts)), counts)[units]
        within = units - (np.cumsum(counts) - counts)[nodes]
        found.extend(zip(nodes.tolist(), at.tolist(), until.tolist(), within.tolist(), strict=True))
    found.sort()
    return sorted(_without_overlap(found), key=lambda fault: (fault.at_ms, fault.node_index))


def _without_overlap(found: Iterable[tuple[int, int, int, int]]) -> Iterator[Fault]:
    """found: (node, at, until, device or −1), sorted."""
    last_node, busy_until = -1, 0
    for node, at_ms, until_ms, device in found:
        if node != last_node:
            last_node, busy_until = node, 0
        if at_ms >= busy_until:
            busy_until = until_ms
            yield Fault(at_ms, until_ms, node, None if device < 0 else device)


def _sample_renewals(
    faults: UnitFaults, units: int, horizon_ms: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """(unit, at, until) columns: all units at once, one failure of each a round, until all are past the horizon."""
    alive = np.arange(units)
    clock = faults.mtbf_ms * _draw_residual(faults.gap_quantiles, units, rng)
    columns: list[tuple[IntArray, IntArray, IntArray]] = []
    while True:
        keep = clock < horizon_ms
        alive, clock = alive[keep], clock[keep]
        if not len(alive):
            break
        at = clock.astype(np.int64)
        until = at + np.maximum(REPAIR_MIN_MS, draw_quantiles(faults.repair_quantiles_ms, len(alive), rng)).astype(
            np.int64
        )
        columns.append((alive, at, until))
        clock = until + 1 + faults.mtbf_ms * draw_quantiles(faults.gap_quantiles, len(alive), rng)
    if not columns:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, empty
    unit_column, at_column, until_column = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    return unit_column, at_column, until_column


def _draw_residual(quantiles: Sequence[float], count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """What is left of the gap in which a unit is met: a gap drawn in proportion to its length, times a uniform part."""
    values = np.interp((np.arange(RESIDUAL_GRID) + 0.5) / RESIDUAL_GRID, PROBABILITIES, quantiles)
    cumulative = np.cumsum(values) / values.sum()
    picked = np.minimum(np.searchsorted(cumulative, rng.random(count)), RESIDUAL_GRID - 1)
    return values[picked] * rng.random(count)


# --- Fitting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outages:
    """What a log says: by unit its outages (start, end) in ms, sorted; units and time watched; the kind of unit."""

    by_unit: dict[str, list[tuple[int, int]]]
    exposure_ms: float
    units: int


class _Tally:
    """Counts lines left out, by reason."""

    def __init__(self) -> None:
        self._lines: dict[str, list[int]] = {}

    def add(self, reason: str, line: int) -> None:
        self._lines.setdefault(reason, []).append(line)

    def finish(self) -> tuple[Skipped, ...]:
        return tuple(Skipped(reason, len(lines), tuple(lines[:LINES_KEPT])) for reason, lines in self._lines.items())


def fit_faults(path: str | Path, *, units: int | None = None) -> FaultFit:
    """Fit a model to a failure log, whose kind is recognised: InfiniteHBD JSON, Titan CSV, LANL CSV, Grid'5000 tab.

    units: how many servers the log covers, for InfiniteHBD, which names only those that failed (None = in the
    proportion of its source). InputError for another kind of file, or a log without a single failure.
    """
    file = Path(path)
    head = read_head(file)
    first = head[0] if head else ""
    tally = _Tally()
    if first.startswith("[") and "event_type" in "".join(head[:20]):
        return _fit_infinitehbd(file, tally, units)
    if first.startswith("SN,location,insert,remove"):
        return _fit_titan(file, tally)
    readers: tuple[tuple[str, Callable[[Path, _Tally], _Outages], str], ...] = (
        ("System,machine type", _read_lanl, "LANL LA-UR-05-7318"),
        ("# event_id component_id node_id", _read_grid5000, "Grid'5000 (Failure Trace Archive)"),
    )
    for prefix, read, source in readers:
        if first.startswith(prefix):
            outages = read(file, tally)
            model = FaultModel(node=_fit_unit(file, outages), device=None, source=source)
            return _fit_result(model, outages, tally)
    raise InputError(
        f"{path}:1: expected a failure log (InfiniteHBD JSON, Titan gc_full.csv, LANL CSV, Grid'5000 event_trace.tab), "
        f"found {first[:60]!r}; convert it to one of these"
    )


def _fit_result(model: FaultModel, outages: _Outages, tally: _Tally) -> FaultFit:
    faults = sum(map(len, outages.by_unit.values()))
    return FaultFit(model=model, units=outages.units, faults=faults, skipped=tally.finish())


def _fit_unit(path: Path, outages: _Outages) -> UnitFaults:
    """Mean by exposure (time watched, less outages, over failures); gaps and repairs by their empirical quantiles."""
    spans = [span for unit in outages.by_unit.values() for span in unit]
    if not spans:
        raise InputError(f"{path}: expected at least one failure, found none; there is nothing to fit")
    repairs = [max(REPAIR_MIN_MS, end - start) for start, end in spans]
    gaps = [
        after[0] - before[1]
        for unit in outages.by_unit.values()
        for before, after in pairwise(unit)
        if after[0] > before[1]
    ]
    up_ms = max(outages.exposure_ms - float(sum(repairs)), float(len(spans)) * MTBF_MIN_MS)
    return UnitFaults(
        mtbf_ms=max(MTBF_MIN_MS, round(up_ms / len(spans))),
        gap_quantiles=_relative_quantiles(gaps) if len(gaps) >= GAPS_MIN else EXPONENTIAL_GAPS,
        repair_quantiles_ms=tuple(round(value) for value in fit_quantiles(repairs)),
    )


def _relative_quantiles(gaps: Sequence[float]) -> tuple[float, ...]:
    """Quantiles scaled so that draws from the table (linear between quantiles) have mean 1."""
    quantiles = fit_quantiles(gaps)
    mean = mean_of_quantiles(quantiles)
    return tuple(round(value / mean, 6) for value in quantiles)


def _fit_infinitehbd(path: Path, tally: _Tally, units: int | None) -> FaultFit:
    """Faults of class GPU count as faults of one device of a server of eight, all others as faults of the server."""
    with open_text(path) as (text, _):
        try:
            records = json.load(text)
        except ValueError as error:
            raise InputError(f"{path}: expected a JSON list of events, found: {error}; fetch the file again") from error
    started: dict[str, tuple[int, bool]] = {}
    node: dict[str, list[tuple[int, int]]] = {}
    device: dict[str, list[tuple[int, int]]] = {}
    names: dict[str, None] = {}
    last_ms = 0
    for number, record in enumerate(records, start=1):
        try:
            name, at_ms = str(record["node_id"]), round(float(record["event_time"]) * DAY_MS)
            kind, is_device = record["event_type"], record["fault_type"]["Class"] == "GPU"
        except (KeyError, TypeError, ValueError):
            tally.add(NOT_A_RECORD, number)
            continue
        names[name] = None
        last_ms = max(last_ms, at_ms)
        if kind == "fault_start":
            started[name] = (at_ms, is_device)
        elif name in started:
            start_ms, of_device = started.pop(name)
            (device if of_device else node).setdefault(name, []).append((start_ms, at_ms))
        else:
            tally.add("an end without a start", number)
    servers = units if units is not None else round(len(names) * INFINITEHBD_SERVERS_PER_FAULTY)
    exposure = float(servers) * last_ms
    nodes = _Outages(node, exposure, servers)
    devices = _Outages(device, exposure * INFINITEHBD_DEVICES_PER_NODE, servers)
    model = FaultModel(
        node=_fit_unit(path, nodes), device=_fit_unit(path, devices), source="StepFun InfiniteHBD-Trace (2024-25)"
    )
    fit = _fit_result(model, nodes, tally)
    return FaultFit(model=model, units=servers, faults=fit.faults + sum(map(len, device.values())), skipped=fit.skipped)


def _fit_titan(path: Path, tally: _Tally) -> FaultFit:
    """GPU failures (double-bit errors and losses from the bus) per GPU-time. The log has no repair times: those of the
    built-in model are used. Nodes listed in `titan.service.txt` beside the log are left out."""
    service = _titan_service_nodes(path.parent / TITAN_SERVICE_FILE)
    exposure_ms, events, serials = 0.0, 0, set[str]()
    for number, row in _iterate_csv_rows(path, tally):
        try:
            location, duration_ms = row["location"], float(row["duration"]) * SECOND_MS
        except (KeyError, ValueError):
            tally.add("no time in service", number)
            continue
        if location in service:
            tally.add("a service node", number)
            continue
        exposure_ms += duration_ms
        events += row["event"] in TITAN_EVENTS
        serials.add(row["SN"])
    if not events:
        raise InputError(f"{path}: expected at least one DBE or OTB event, found none; there is nothing to fit")
    assert DEFAULT_FAULTS.device is not None
    device = UnitFaults(
        mtbf_ms=round(exposure_ms / events),
        gap_quantiles=EXPONENTIAL_GAPS,
        repair_quantiles_ms=DEFAULT_FAULTS.device.repair_quantiles_ms,
    )
    model = FaultModel(node=None, device=device, source="ORNL TitanGPULife (2013-19)")
    return FaultFit(model=model, units=len(serials), faults=events, skipped=tally.finish())


def _titan_service_nodes(file: Path) -> frozenset[str]:
    if not file.exists():
        return frozenset()
    return frozenset(line.split()[2] for _, line in iterate_lines(file) if len(line.split()) > 3)


def _iterate_csv_rows(path: Path, tally: _Tally) -> Iterator[tuple[int, dict[str, str]]]:
    lines = iterate_lines(path)
    header = next(csv.reader([next(lines, (0, ""))[1]]), [])
    for number, line in lines:
        fields = next(csv.reader([line]), [])
        if len(fields) == len(header):
            yield number, dict(zip(header, fields, strict=True))
        elif fields:
            tally.add(NOT_A_RECORD, number)


def _read_lanl(path: Path, tally: _Tally) -> _Outages:
    """Exposure: nodes of each system times the span between its first and last failure."""
    by_unit: dict[str, list[tuple[int, int]]] = {}
    systems: dict[str, tuple[int, int, int]] = {}
    for number, row in _iterate_csv_rows(path, tally):
        try:
            start = _lanl_ms(row["Prob Started"])
            end = _lanl_ms(row["Prob Fixed"])
            system, nodes, node = row["System"], int(row["nodes"]), int(row["nodenumz"])
        except (KeyError, ValueError):
            tally.add(NOT_A_RECORD, number)
            continue
        if end < start:
            tally.add(END_BEFORE_START, number)
            continue
        by_unit.setdefault(f"{system}/{node}", []).append((start, end))
        first, last, most = systems.get(system, (start, end, nodes))
        systems[system] = (min(first, start), max(last, end), max(most, nodes))
    exposure = float(sum((last - first) * nodes for first, last, nodes in systems.values()))
    return _Outages(_sorted_spans(by_unit), exposure, sum(nodes for _, _, nodes in systems.values()))


def _lanl_ms(text: str) -> int:
    return round((datetime.strptime(text, LANL_DATE) - datetime(1970, 1, 1)).total_seconds() * SECOND_MS)


def _read_grid5000(path: Path, tally: _Tally) -> _Outages:
    """Event type 0 is an outage, 1 is time available: exposure is the sum of both."""
    by_unit: dict[str, list[tuple[int, int]]] = {}
    exposure = 0
    units: dict[str, None] = {}
    for number, line in iterate_lines(path):
        if line.startswith("#") or not line.strip():
            continue
        fields = line.split()
        try:
            node, kind, start, stop = fields[2], fields[5], int(float(fields[6])), int(float(fields[7]))
        except (IndexError, ValueError):
            tally.add(NOT_A_RECORD, number)
            continue
        if stop < start:
            tally.add(END_BEFORE_START, number)
            continue
        units[node] = None
        exposure += stop - start
        if kind == "0":
            by_unit.setdefault(node, []).append((start * SECOND_MS, stop * SECOND_MS))
    return _Outages(_sorted_spans(by_unit), float(exposure) * SECOND_MS, len(units))


def _sorted_spans(by_unit: dict[str, list[tuple[int, int]]]) -> dict[str, list[tuple[int, int]]]:
    return {name: sorted(spans) for name, spans in by_unit.items()}


# Fitted by `fit_faults` to `fault_trace_half_a.json` of stepfun-ai/InfiniteHBD-Trace (Shou et al., "InfiniteHBD",
# SIGCOMM 2025; Apache-2.0): 348 days of about 211 servers with 8 GPUs each, 321 faults. Repairs in minutes.
# fmt: off
NODE_GAPS = (
    2.2e-05, 0.000287, 0.000476, 0.001443, 0.002109, 0.002319, 0.00352, 0.00472, 0.008628, 0.02674, 0.05195,
    0.1604, 0.2625, 0.5335, 0.7428, 1.063, 1.283, 2.712, 3.576, 5.73, 6.442, 7.631, 7.735, 7.801, 7.818,
)
NODE_REPAIR_MINUTES = (
    1, 16, 22, 53, 87, 136, 175, 318, 566, 926, 1113, 1563, 2130, 2855, 3444, 3669, 5383, 10132, 19961, 43624,
    69593, 97056, 104471, 169925, 188588,
)
DEVICE_GAPS = (
    8.1e-05, 0.003865, 0.04227, 0.09959, 0.1249, 0.1637, 0.1915, 0.2281, 0.2615, 0.3301, 0.3606, 0.4481, 0.5251,
    0.6112, 0.7722, 1.111, 1.352, 1.992, 2.548, 5.511, 5.994, 6.485, 6.652, 6.786, 6.82,
)
DEVICE_REPAIR_MINUTES = (
    4, 12, 12, 13, 13, 14, 19, 46, 120, 248, 828, 1329, 1589, 2225, 2855, 3964, 5170, 7134, 15244, 37419, 41104,
    53444, 53550, 53635, 53656,
)
# fmt: on
NODE_MTBF_MS = 323 * DAY_MS
DEVICE_MTBF_MS = 6068 * DAY_MS

DEFAULT_FAULTS = FaultModel(
    node=UnitFaults(
        mtbf_ms=NODE_MTBF_MS,
        gap_quantiles=NODE_GAPS,
        repair_quantiles_ms=tuple(minutes * MINUTE_MS for minutes in NODE_REPAIR_MINUTES),
    ),
    device=UnitFaults(
        mtbf_ms=DEVICE_MTBF_MS,
        gap_quantiles=DEVICE_GAPS,
        repair_quantiles_ms=tuple(minutes * MINUTE_MS for minutes in DEVICE_REPAIR_MINUTES),
    ),
    source="StepFun InfiniteHBD-Trace (2024-25)",
)
"""GPU servers of a large-model training cluster: what a cluster gets when no log is named."""
