"""Options and fixtures of all tests: golden files, and the seeds of the simulation tests."""

import difflib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
SOURCES = Path(__file__).parents[1] / "src"


def keep_machine_code_by_sources() -> None:
    """Numba looks only at the file of the outermost function to see whether its machine code on disk is stale; after a
    change in a function of another file that it inlined, tests would run old code. So each state of the sources has a
    folder of its own, as in the Makefile, which comes first. Must run before numba is imported."""
    texts = b"".join(path.read_bytes() for path in sorted(SOURCES.rglob("*.py")))
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")  # noqa: TID251 - a test run is a program
    folder = home / "clearway" / "numba" / hashlib.sha256(texts).hexdigest()[:16]
    os.environ.setdefault("NUMBA_CACHE_DIR", str(folder))  # noqa: TID251 - and so are the commands that it starts


keep_machine_code_by_sources()

SEEDS_PER_BLOCK = 50
"""Seeds of one test item: few enough that workers share them evenly, many enough that collection stays cheap."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("clearway")
    group.addoption("--accept", action="store_true", help="rewrite golden files from what the code gives now")
    group.addoption("--seed-start", type=int, default=0, metavar="N", help="first seed of the simulation tests")
    group.addoption("--seed-count", type=int, default=1000, metavar="N", help="seeds of the simulation tests")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the argument `seeds` runs once per block of consecutive seeds; `seeds` is a `range`."""
    if "seeds" not in metafunc.fixturenames:
        return
    start, count = metafunc.config.getoption("--seed-start"), metafunc.config.getoption("--seed-count")
    firsts = range(start, start + count, SEEDS_PER_BLOCK)
    blocks = [range(first, min(first + SEEDS_PER_BLOCK, start + count)) for first in firsts]
    metafunc.parametrize("seeds", blocks, ids=[f"seeds-{block.start}-to-{block.stop - 1}" for block in blocks])


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
