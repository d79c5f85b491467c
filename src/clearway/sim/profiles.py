"""How fast a job runs, by device model, number of replicas, placement and co-runner: measured tables, read from files.

Sources: Gavel's throughput tables (Narayanan et al., OSDI 2020) and the placement and scalability profiles of Pollux
(Qiao et al., OSDI 2021) and Sia (Jayaram Subramanya et al., SOSP 2023).

A profile key names a measured workload together with its reference, so that `TraceJob.run_ms / speed` is the time that
the job takes: `gavel/<job type>/<workers>` and `pollux/<application>/<batch size>/<replicas>`. Speed 1.0 is that number
of workers, consolidated, on the reference model (V100 for Gavel, T4 for Pollux and Sia).

Interpolation: what was measured is returned as it is. Between measured numbers of replicas, throughput is linear; below
the smallest it is that of the smallest, and above the largest it grows in proportion (throughput per replica stays
what it was). Of several placements on as many nodes the mean is taken; a number of nodes that was not measured is the
nearest that was. No monotony is assumed anywhere: the tables have none.
"""

import csv
import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from clearway.model.errors import InputError
from clearway.sim.text_files import open_text

GAVEL_REFERENCE = "v100"
PLACEMENT_REFERENCE = "t4"
GAVEL_DEVICES_PER_NODE = 4
"""Gavel's "consolidated" means on as few servers as possible; its larger servers had four GPUs."""
SHARED_SPEED = 0.5
"""Speed of each of two jobs that share a device where the pair was not measured: equal time slices."""
SPEED_MIN = 0.01
"""Gavel writes 0 for a pair that does not fit together; a run must still end, so nothing is slower than this."""
SEARCH_LEVELS = 4
"""Folders above a trace in which its tables are looked for."""
SIA_MODELS = {
    "aws": "t4",
    "azure": "azure",
    "dgx": "a100",
    "dgx-ext": "a100",
    "quad": "quadrortx6000",
    "rtx": "rtx2080ti",
}
"""Device model by the suffix of a profile's file name. Sia does not say what `azure` had."""

Point = tuple[float, float]
"""(replicas, steps or samples per second)."""


class SpeedTable(Protocol):
    """Measured throughputs of one source."""

    def throughput(self, profile: str, model: str, replicas: int, nodes: int) -> float | None:
        """Steps or samples per second of `replicas` workers on `nodes` nodes; None = this was not measured at all."""

    def reference(self, profile: str) -> float | None:
        """The throughput that counts as speed 1.0; None = the profile is not of this table."""

    def sharing(self, profile: str, other: str, model: str, /) -> float | None:
        """Part of its lone throughput that `profile` keeps beside `other` on one device; None = not measured."""


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """Speeds from any number of tables; with none, every job runs at the speed of its device model."""

    tables: tuple[SpeedTable, ...] = ()

    def speed(
        self,
        profile: str,
        model_name: str,
        replicas: int,
        nodes_spanned: int,
        sharing_profile: str | None = None,
        device_speed: float = 1.0,
    ) -> float:
        """Speed relative to the profile's reference.

        device_speed: `DeviceGroup.speed` of the model, returned (times the sharing factor) where the profile is empty,
        unknown, or not measured on this model; a measured speed already contains it. sharing_profile: the profile of a
        job on the same device, None = alone.
        """
        alone, table = self._alone(profile, normalise_model(model_name), replicas, nodes_spanned, device_speed)
        if sharing_profile is None:
            return max(alone, SPEED_MIN)
        kept = None if table is None else table.sharing(profile, sharing_profile, normalise_model(model_name))
        return max(alone * (SHARED_SPEED if kept is None else kept), SPEED_MIN)

    def _alone(
        self, profile: str, model: str, replicas: int, nodes: int, device_speed: float
    ) -> tuple[float, SpeedTable | None]:
        for table in self.tables if profile else ():
            reference = table.reference(profile)
            rate = None if reference is None else table.throughput(profile, model, replicas, nodes)
            if reference is not None and rate is not None:
                return rate / reference, table
        return device_speed, None


def normalise_model(name: str) -> str:
    """A device model's name without case and punctuation: `A100-SXM4-80GB` is `a100sxm480gb`."""
    return "".join(character for character in name.lower() if character.isalnum())


def match_model(name: str, measured: Sequence[str]) -> str | None:
    """The measured model that a normalised name means: itself, else the longest that it begins with."""
    found = [model for model in measured if name.startswith(model)]
    return max(found, key=len) if found else None


def interpolate_rate(points: Sequence[Point], replicas: int) -> float:
    """Throughput at a number of replicas, by the rules of the module docstring. points: sorted, not empty."""
    position = bisect_left(points, (replicas, -math.inf))
    if position == len(points):
        count, rate = points[-1]
        return rate * replicas / count
    if points[position][0] == replicas or position == 0:
        return points[position][1]
    (low, low_rate), (high, high_rate) = points[position - 1], points[position]
    return low_rate + (high_rate - low_rate) * (replicas - low) / (high - low)


# --- Gavel ---------------------------------------------------------------------------------------------------------


def gavel_profile(job_type: str, workers: int) -> str:
    """The profile key of a Gavel job."""
    return f"gavel/{job_type}/{workers}"


def _split_gavel(profile: str) -> tuple[str, int] | None:
    """Job type and workers of a key; None = not a key of Gavel."""
    source, _, rest = profile.partition("/")
    job_type, _, workers = rest.rpartition("/")
    return (job_type, int(workers)) if source == "gavel" and workers.isdigit() else None


@dataclass(frozen=True, slots=True)
class GavelTable:
    """points: by table name (`v100`, `v100_unconsolidated`, …) and job type. pairs: by table name, then by the two
    (job type, workers): steps per second of the first beside the second."""

    points: Mapping[tuple[str, str], tuple[Point, ...]]
    pairs: Mapping[tuple[str, tuple[str, int], tuple[str, int]], float]
    models: tuple[str, ...]

    def throughput(self, profile: str, model: str, replicas: int, nodes: int) -> float | None:
        """Unconsolidated where the replicas lie on more nodes than servers of four GPUs would need."""
        key, measured = _split_gavel(profile), match_model(model, self.models)
        if key is None or measured is None:
            return None
        spread = nodes > math.ceil(replicas / GAVEL_DEVICES_PER_NODE)
        name = f"{measured}_unconsolidated" if spread else measured
        points = self.points.get((name, key[0])) or self.points.get((measured, key[0]))
        return interpolate_rate(points, replicas) if points else None

    def reference(self, profile: str) -> float | None:
        """On V100, consolidated, with the number of workers in the key."""
        key = _split_gavel(profile)
        points = None if key is None else self.points.get((GAVEL_REFERENCE, key[0]))
        return interpolate_rate(points, key[1]) if points and key is not None else None

    def sharing(self, profile: str, other: str, model: str, /) -> float | None:
        """As measured when the two ran on the same GPUs."""
        key, beside, measured = _split_gavel(profile), _split_gavel(other), match_model(model, self.models)
        if key is None or beside is None or measured is None:
            return None
        shared = self.pairs.get((measured, key, beside))
        points = self.points.get((measured, key[0]))
        return None if shared is None or not points else shared / interpolate_rate(points, key[1])


def read_gavel_table(path: Path) -> GavelTable:
    """Read `*_throughputs.json`, plain or gzip. InputError when it is not such a table."""
    try:
        with open_text(path) as (text, _):
            return _parse_gavel_table(json.load(text))
    except (ValueError, AttributeError, TypeError, KeyError, EOFError) as error:
        raise InputError(f"{path}: expected Gavel's throughput table, found: {error}; fetch the file again") from error


def _parse_gavel_table(raw: Mapping[str, Mapping[str, Mapping[str, object]]]) -> GavelTable:
    points: dict[tuple[str, str], list[Point]] = {}
    pairs: dict[tuple[str, tuple[str, int], tuple[str, int]], float] = {}
    for name, entries in raw.items():
        for text, rates in entries.items():
            key = _parse_gavel_key(text)
            for other, rate in rates.items():
                if isinstance(rate, list):
                    pairs[name, key, _parse_gavel_key(other)] = float(rate[0])
                elif isinstance(rate, int | float) and rate > 0:
                    points.setdefault((name, key[0]), []).append((key[1], float(rate)))
    models = tuple(name for name in raw if not name.endswith("_unconsolidated"))
    return GavelTable({key: tuple(sorted(found)) for key, found in points.items()}, pairs, models)


def _parse_gavel_key(text: str) -> tuple[str, int]:
    """`('ResNet-18 (batch size 16)', 2)` to its two parts. The type is quoted and the count ends the text."""
    quoted, _, count = text.rpartition(",")
    return quoted.strip("( ").strip("'"), int(count.strip(") "))


# --- Pollux and Sia --------------------------------------------------------------------------------------------------


def placement_profile(application: str, batch_size: int, replicas: int) -> str:
    """The profile key of a Pollux or Sia job."""
    return f"pollux/{application}/{batch_size}/{replicas}"


def _split_placement(profile: str) -> tuple[str, int, int] | None:
    parts = profile.split("/")
    if len(parts) != 4 or parts[0] != "pollux" or not (parts[2].isdigit() and parts[3].isdigit()):
        return None
    return parts[1], int(parts[2]), int(parts[3])


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Measured steps of one placement: local batch sizes (rising), seconds a step, seconds of it in synchronising."""

    batches: tuple[int, ...]
    step_s: tuple[float, ...]
    sync_s: tuple[float, ...]

    def seconds(self, local_batch: float) -> float:
        """Time of one step. A local batch above the largest measured is cut into micro-batches (gradient accumulation),
        of which only the last synchronises; one below the smallest takes as long as the smallest."""
        micro = max(1, math.ceil(local_batch / self.batches[-1]))
        step = _linear(self.batches, self.step_s, local_batch / micro)
        sync = _linear(self.batches, self.sync_s, local_batch / micro)
        return micro * step - (micro - 1) * sync


def _linear(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    """Linear between the points, constant outside."""
    position = bisect_left(xs, x)
    if position == 0 or position == len(xs):
        return ys[min(position, len(ys) - 1)]
    share = (x - xs[position - 1]) / (xs[position] - xs[position - 1])
    return ys[position - 1] + (ys[position] - ys[position - 1]) * share


@dataclass(frozen=True, slots=True)
class PlacementTable:
    """times: by (application, model), then by (replicas, nodes): the measured placements of that shape."""

    times: Mapping[tuple[str, str], Mapping[tuple[int, int], tuple[StepTimes, ...]]]

    def throughput(self, profile: str, model: str, replicas: int, nodes: int) -> float | None:
        """Samples per second with the batch size of the key kept whatever the number of replicas."""
        key = _split_placement(profile)
        measured = None if key is None else match_model(model, self.models_of(key[0]))
        if key is None or measured is None:
            return None
        return self._rate(key[0], measured, key[1], replicas, nodes)

    def reference(self, profile: str) -> float | None:
        """On T4, on as few nodes as measured, with the number of replicas in the key."""
        key = _split_placement(profile)
        if key is None or (key[0], PLACEMENT_REFERENCE) not in self.times:
            return None
        return self._rate(key[0], PLACEMENT_REFERENCE, key[1], key[2], 1)

    def sharing(self, _profile: str, _other: str, _model: str, /) -> float | None:
        """Never measured."""
        return None

    def models_of(self, application: str) -> tuple[str, ...]:
        """The device models on which an application was measured."""
        return tuple(model for name, model in self.times if name == application)

    def step_seconds(self, application: str, batch_size: int, replicas: int) -> float | None:
        """Time of one step at the reference of a profile; None = the application was not measured."""
        rate = self.reference(placement_profile(application, batch_size, replicas))
        return None if rate is None else batch_size / rate

    def smallest_batch(self, application: str) -> int:
        """The smallest local batch size measured at the reference model."""
        shapes = self.times[application, PLACEMENT_REFERENCE]
        return min(times.batches[0] for placements in shapes.values() for times in placements)

    def _rate(self, application: str, model: str, batch_size: int, replicas: int, nodes: int) -> float:
        shapes = self.times[application, model]
        exact = {shape_nodes for count, shape_nodes in shapes if count == replicas}
        if exact:
            nearest = min(sorted(exact), key=lambda found: abs(found - nodes))
            return _mean_rate(shapes[replicas, nearest], batch_size, replicas)
        as_large = [shape_nodes for count, shape_nodes in shapes if count >= replicas]
        consolidated = not as_large or nodes <= min(as_large)
        return interpolate_rate(self._points(application, model, batch_size, consolidated), replicas)

    def _points(self, application: str, model: str, batch_size: int, consolidated: bool) -> list[Point]:
        """One point per measured number of replicas: on the fewest nodes (consolidated) or on the most."""
        pick = min if consolidated else max
        shapes = self.times[application, model]
        counts = sorted({count for count, _ in shapes})
        nodes_of = {count: pick(nodes for found, nodes in shapes if found == count) for count in counts}
        return [(n, _mean_rate(shapes[n, nodes_of[n]], batch_size, n)) for n in counts]


def _mean_rate(placements: Sequence[StepTimes], batch_size: int, replicas: int) -> float:
    rates = [batch_size / times.seconds(batch_size / replicas) for times in placements]
    return math.fsum(rates) / len(rates)


def read_placement_table(folder: Path) -> PlacementTable:
    """Read `<folder>/<application>/{placements,scalability}[-cluster].csv`. InputError when a file is another."""
    rows: dict[tuple[str, str], dict[tuple[int, int], dict[str, list[tuple[int, float, float]]]]] = {}
    for file in sorted(folder.glob("*/*.csv")):
        kind, _, suffix = file.stem.partition("-")
        if kind not in ("placements", "scalability"):
            continue
        model = SIA_MODELS.get(suffix, suffix) if suffix else PLACEMENT_REFERENCE
        shapes = rows.setdefault((file.parent.name, model), {})
        for shape, label, row in _read_profile(file):
            shapes.setdefault(shape, {}).setdefault(f"{file.stem}/{label}", []).append(row)
    return PlacementTable(
        {
            key: {shape: tuple(map(_step_times, placements.values())) for shape, placements in shapes.items()}
            for key, shapes in rows.items()
        }
    )


def _read_profile(file: Path) -> list[tuple[tuple[int, int], str, tuple[int, float, float]]]:
    """((replicas, nodes), the placement as text, (local batch, seconds a step, seconds of it synchronising))."""
    found = []
    with open_text(file) as (text, _):
        for number, row in enumerate(csv.DictReader(text), start=2):
            try:
                label = row.get("placement") or f"{row['num_nodes']},{row['num_replicas']}"
                times = (int(float(row["local_bsz"])), float(row["step_time"]), float(row["sync_time"]))
                found.append((_shape_of(label), label, times))
            except (KeyError, TypeError, ValueError) as error:
                message = f"{file}:{number}: expected placement, local_bsz, step_time, sync_time, found: {error!r}"
                raise InputError(f"{message}; fetch the file again") from error
    return found


def _shape_of(label: str) -> tuple[int, int]:
    """(replicas, nodes) of `211` (GPUs on each node, one digit a node) or of `nodes,replicas`."""
    nodes, comma, replicas = label.partition(",")
    return (int(replicas), int(nodes)) if comma else (sum(map(int, label)), len(label))


def _step_times(rows: list[tuple[int, float, float]]) -> StepTimes:
    rows.sort()
    batches, steps, syncs = zip(*rows, strict=True)
    return StepTimes(batches, steps, syncs)


# --- Finding the tables of a trace -----------------------------------------------------------------------------------


def find_gavel_table(trace: Path) -> GavelTable | None:
    """The throughput table in a folder above the trace, if there is one."""
    for folder in _folders_above(trace):
        for name in ("simulation_throughputs.json", "physical_cluster_throughputs.json"):
            for file in (folder / name, folder / f"{name}.gz"):
                if file.exists():
                    return _cached_gavel_table(file)
    return None


def find_placement_table(trace: Path) -> PlacementTable | None:
    """The `profiles` folder beside a folder above the trace, if there is one."""
    for folder in _folders_above(trace):
        if next((folder / "profiles").glob("*/placements*.csv"), None) is not None:
            return _cached_placement_table(folder / "profiles")
    return None


def find_speed_model(trace: str | Path) -> SpeedModel:
    """The speeds that belong to a trace; without tables near it, a model in which only the device model counts."""
    found = (find_gavel_table(Path(trace)), find_placement_table(Path(trace)))
    return SpeedModel(tuple(table for table in found if table is not None))


def _folders_above(trace: Path) -> tuple[Path, ...]:
    return tuple(trace.resolve().parents)[:SEARCH_LEVELS]


@lru_cache(maxsize=4)
def _cached_gavel_table(file: Path) -> GavelTable:
    return read_gavel_table(file)


@lru_cache(maxsize=4)
def _cached_placement_table(folder: Path) -> PlacementTable:
    return read_placement_table(folder)
