"""Each script in `scripts` gives its accepted transcript: plans, what holds what, and explanations."""

from pathlib import Path

import pytest

from support.scenario import run_scenario

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_script_gives_its_accepted_transcript(script, golden):
    golden(f"scenarios/{script.stem}", run_scenario(script.read_text(encoding="utf-8")))
