"""How often escapes are tried, and keepers killed."""

import os

import pytest


@pytest.fixture
def escape_trials() -> int:
    """10 of each kind, or CLEARWAY_ESCAPE_TRIALS; 100 in a full run."""
    return int(os.environ.get("CLEARWAY_ESCAPE_TRIALS", "10"))  # noqa: TID251 - a test run's environment is its border


@pytest.fixture
def keeper_kills() -> int:
    """20, or CLEARWAY_KEEPER_KILLS; 200 in a full run."""
    return int(os.environ.get("CLEARWAY_KEEPER_KILLS", "20"))  # noqa: TID251 - as above
