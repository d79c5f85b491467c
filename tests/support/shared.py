"""Where the shared traces lie, for tests that read the real files."""

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"
TRACES = SHARED / "traces"

needs_traces = pytest.mark.skipif(
    not (TRACES / "INDEX.md").exists(),
    reason="the real traces are not here: expected a folder shared/traces beside the repository",
)
