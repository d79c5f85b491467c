"""Options and fixtures of all tests: golden files, and the seeds of the simulation tests."""

import difflib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

GOLDEN = Path(__file__).parent / "golden"
NUMBA_CACHE = Path(__file__).parents[1] / "scripts" / "numba-cache"


def keep_machine_code_by_sources() -> None:
    """Choose the folder of compiled code as the Makefile does, unless it is chosen. Before numba is imported."""
    if "NUMBA_CACHE_DIR" not in os.environ:  # noqa: TID251 - a test run is a program; its environment is its border
        folder = subprocess.run([NUMBA_CACHE], capture_output=True, text=True, check=True).stdout.strip()
        os.environ["NUMBA_CACHE_DIR"] = folder  # noqa: TID251 - also for the commands that tests start


keep_machine_code_by_sources()

SEEDS_PER_BLOCK = 50
"""Seeds of one test item: few enough that workers share them evenly, many enough that collection stays cheap."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("clearway")
    group.addoption("--accept", action="store_true", help="rewrite golden files from what the code gives now")
    group.addoption("--seed-start", type=int, default=0, metavar="N", help="first seed of the simulation tests")
    group.addoption("--seed-count", type=int, default=1000, metavar="N", help="seeds of the simulation tests")
    group.addoption("--fresh-examples", action="store_true", help="property tests draw examples of their own")
    group.addoption("--kills", type=int, default=20, metavar="N", help="SIGKILLs of a real control plane under load")
    group.addoption("--scheduler-kills", type=int, default=8, metavar="N", help="SIGKILLs of a Kubernetes scheduler")
    group.addoption("--crash-points", type=int, default=1000, metavar="N", help="deaths of each test of crash points")


def pytest_configure(config: pytest.Config) -> None:
    """The same examples in every run, so that a failure is the change's; `--fresh-examples` looks for new ones."""
    hypothesis.settings.register_profile("same", derandomize=True, print_blob=True)
    hypothesis.settings.register_profile("fresh", print_blob=True)
    hypothesis.settings.load_profile("fresh" if config.getoption("--fresh-examples") else "same")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument `seeds` or `crash_points` runs once per block of consecutive numbers, a `range`."""
    start, count = metafunc.config.getoption("--seed-start"), metafunc.config.getoption("--seed-count")
    for name, total in (("seeds", count), ("crash_points", metafunc.config.getoption("--crash-points"))):
        if name in metafunc.fixturenames:
            firsts = range(start, start + total, SEEDS_PER_BLOCK)
            blocks = [range(first, min(first + SEEDS_PER_BLOCK, start + total)) for first in firsts]
            metafunc.parametrize(name, blocks, ids=[f"{name}-{block.start}-to-{block.stop - 1}" for block in blocks])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses a golden file is found by `-m golden`."""
    for item in items:
        if "golden" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.golden)


def compare_golden(path: Path, text: str, *, accept: bool) -> None:
    """Fail with a diff unless the file at `path` holds `text`; with `accept`, write it there instead."""
    text = text if text.endswith("\n") else text + "\n"
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    if text == known:
        return
    if accept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    diff = "\n".join(difflib.unified_diff(known.splitlines(), text.splitlines(), "accepted", "found", lineterm=""))
    pytest.fail(f"{path.name} differs; if the change is meant, run `make accept` and commit it\n{diff}", pytrace=False)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` compares `text` with tests/golden/<name>.txt, or rewrites that file with --accept."""
    accept = bool(request.config.getoption("--accept"))

    def compare(name: str, text: str) -> None:
        compare_golden(GOLDEN / f"{name}.txt", text, accept=accept)

    return compare
