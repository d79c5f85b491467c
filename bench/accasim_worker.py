"""Runs AccaSim on a Standard Workload Format file, as it comes from PyPI, and prints what it decided as JSON.

A program of its own, because AccaSim keeps its settings in one object per process:
`python accasim_worker.py TRACE.swf NODES CORES_PER_NODE fifo|easy` prints `{"seconds": …, "starts": {job: second}}`.

AccaSim 1.1.3 was written for Python up to 3.9. Its code is not touched: the one name that it misses in newer versions,
`collections.Mapping`, is put back in this process before it is imported.
"""

import collections
import collections.abc
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

collections.Mapping = collections.abc.Mapping

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402

DISPATCHERS = {"fifo": FirstInFirstOut, "easy": EASYBackfilling}


def describe_system(nodes: int, cores: int) -> dict[str, object]:
    """AccaSim's description of equal nodes. One SWF processor is one core, and may lie on any node."""
    return {
        "groups": {"node": {"core": cores}},
        "resources": {"node": nodes},
        "equivalence": {"processor": {"core": 1}},
        "start_time": 0,
    }


def parse_starts(plan: Path) -> dict[int, int]:
    """Start seconds by job from AccaSim's plan, whose lines are `job;start`."""
    starts = {}
    for line in plan.read_text(encoding="utf-8").splitlines():
        job, start, _ = line.split(";")
        starts[int(job)] = int(start)
    return starts


def run(trace: Path, nodes: int, cores: int, dispatcher: str) -> dict[str, object]:
    """One simulation. Seconds are those of the simulation itself, reading the file included."""
    with tempfile.TemporaryDirectory() as folder:
        system = Path(folder) / "system.json"
        system.write_text(json.dumps(describe_system(nodes, cores)), encoding="utf-8")
        simulator = Simulator(
            str(trace),
            str(system),
            DISPATCHERS[dispatcher](FirstFit()),
            RESULTS_FOLDER_PATH=folder,
            LOG_LEVEL="INFO",
            statistics_output=False,
            show_statistics=False,
            SCHEDULE_OUTPUT={
                "format": "{job_id};{start_time};",
                "attributes": {"job_id": ("id", "str"), "start_time": ("start_time", "int")},
            },
        )
        begun = time.perf_counter()
        outputs = simulator.start_simulation()
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "starts": parse_starts(Path(outputs["sched-"]))}


def main() -> None:
    """Whatever AccaSim prints goes to standard error."""
    trace, nodes, cores, dispatcher = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        result = run(Path(trace), int(nodes), int(cores), dispatcher)
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
