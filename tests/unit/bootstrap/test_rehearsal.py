"""What is compiled before a control plane says that it is ready."""

import json
import subprocess
import sys

import pytest

from clearway.bootstrap.rehearsal import PARTS, SEEDS, rehearse
from clearway.policies.named import named_policy

OF_THE_TWIN = {"endings.push_end_entry", "endings.pop_end_entry", "stretch.stretch_entry"}
"""A control plane makes no stretches."""
NOT_CALLED = {"quota.is_borrowing", "quota.queue_allows", "scan.count_bypassed", *OF_THE_TWIN}
"""Called by tests alone, or under policies that bound how often a job is passed."""

LIST_WHAT_IS_NOT_COMPILED = """
import importlib, json, pkgutil
import clearway.engine
from clearway.bootstrap.rehearsal import rehearse
from clearway.policies.named import named_policy

rehearse(named_policy("clearway"), lambda done, total: None)
missing = []
for one in pkgutil.iter_modules(clearway.engine.__path__):
    module = importlib.import_module(f"clearway.engine.{one.name}")
    for name, value in vars(module).items():
        is_own = getattr(getattr(value, "py_func", None), "__module__", "") == module.__name__
        if is_own and hasattr(value, "signatures") and not value.signatures:
            missing.append(f"{one.name}.{name}")
print(json.dumps(missing))
"""


def test_rehearsal_calls_everything_that_is_compiled():
    words = [sys.executable, "-c", LIST_WHAT_IS_NOT_COMPILED]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) <= NOT_CALLED


def test_rehearsal_tells_how_far_it_is_and_ends_when_it_is_told_to():
    class EnoughError(Exception):
        pass

    seen = []

    def tell(done: int, total: int) -> None:
        seen.append((done, total))
        if done >= PARTS:
            raise EnoughError

    with pytest.raises(EnoughError):
        rehearse(named_policy("easy"), tell)
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {PARTS * (len(SEEDS) + 1)}
