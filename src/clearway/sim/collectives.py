"""What a collective operation costs, by size, number of workers and kind of node: tables measured by Vidur.

Source: microsoft/vidur, `data/profiling/network/<topology>/all_reduce.csv` (Agrawal et al., MLSys 2024). Topologies are
the folder names: `h100_dgx`, `h100_pairwise_nvlink`, `a100_dgx`, ... The median over repetitions and ranks is kept.
The large messages of `a100_dgx` are far above what NVSwitch gives; treat them with care.
"""

import csv
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from clearway.model.errors import InputError
from clearway.model.units import SECOND_MS
from clearway.sim.text_files import open_text

TIME_COLUMN = "time_stats.all_reduce.median"

Curve = tuple[tuple[int, float], ...]
"""(bytes, seconds), rising in bytes."""


@dataclass(frozen=True, slots=True)
class CollectiveCosts:
    """curves: by (topology, workers), for workers packed on as few nodes as measured."""

    curves: Mapping[tuple[str, int], Curve]

    def collective_seconds(self, size_bytes: int, workers: int, topology: str) -> float:
        """Seconds of one all-reduce of so many bytes. One worker needs none. Between measured sizes, log-log linear;
        below the smallest, that of the smallest; above the largest, in proportion. A number of workers that was not
        measured is the next larger, else the largest. InputError for a topology that is not in the tables."""
        measured = sorted(count for name, count in self.curves if name == topology)
        if not measured:
            known = ", ".join(sorted({name for name, _ in self.curves}))
            raise InputError(f"topology: expected one of {known}, found {topology!r}; choose a measured one")
        if workers <= 1:
            return 0.0
        position = min(bisect_left(measured, workers), len(measured) - 1)
        return _interpolate(self.curves[topology, measured[position]], size_bytes)


def _interpolate(curve: Curve, size_bytes: int) -> float:
    position = bisect_left(curve, (size_bytes, -math.inf))
    if position == 0:
        return curve[0][1]
    if position == len(curve):
        return curve[-1][1] * size_bytes / curve[-1][0]
    (low, low_s), (high, high_s) = curve[position - 1], curve[position]
    share = math.log(size_bytes / low) / math.log(high / low)
    return low_s * math.pow(high_s / low_s, share)


def read_collective_costs(folder: str | Path) -> CollectiveCosts:
    """Read `<folder>/<topology>/all_reduce.csv[.gz]`. InputError when there is none, or one is not understood."""
    curves: dict[tuple[str, int], Curve] = {}
    for file in sorted(Path(folder).glob("*/all_reduce.csv*")):
        curves.update(_read_curves(file))
    if not curves:
        raise InputError(f"{folder}: expected <topology>/all_reduce.csv of Vidur, found none; check the folder")
    return CollectiveCosts(curves)


def _read_curves(file: Path) -> dict[tuple[str, int], Curve]:
    """Of the spreads of as many workers, the densest one: most devices a node."""
    times: dict[tuple[int, int], dict[int, list[float]]] = {}
    with open_text(file) as (text, _):
        for number, row in enumerate(csv.DictReader(text), start=2):
            try:
                shape = (int(row["num_workers"]), int(row["devices_per_node"]))
                size, seconds = int(row["size"]), float(row[TIME_COLUMN]) / SECOND_MS
            except (KeyError, TypeError, ValueError) as error:
                message = f"{file}:{number}: expected num_workers, devices_per_node, size, {TIME_COLUMN}"
                raise InputError(f"{message}, found: {error!r}; fetch the file again") from error
            times.setdefault(shape, {}).setdefault(size, []).append(seconds)
    densest = {workers: (workers, density) for workers, density in sorted(times)}
    return {
        (file.parent.name, workers): tuple((size, median(found)) for size, found in sorted(times[shape].items()))
        for workers, shape in densest.items()
    }
