"""Two processes with the same arguments give the same bytes, whatever their hash seeds."""

import json
import subprocess
import sys

MAIN = "from clearway.cli import main; main()"
ARGUMENTS = (
    "simulate",
    "synthetic:philly-like?jobs=120&load=1.1&devices=32",
    "--cluster",
    "4x8",
    "--policy",
    "clearway",
    "--faults",
    "default",
    "--seed",
    "11",
    "--json",
    "-",
)


def simulate(hash_seed):
    process = subprocess.run(
        ["env", f"PYTHONHASHSEED={hash_seed}", sys.executable, "-c", MAIN, *ARGUMENTS],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    document = json.loads(process.stdout)
    del document["run"]  # what the run cost is not part of the answer
    return document


def test_the_same_seed_gives_the_same_answer_in_another_process():
    assert simulate("1") == simulate("2")
