"""The generated pages of docs/ are what the code gives now."""

import runpy

import pytest

from support.source_rules import ROOT

PAGES = runpy.run_path(str(ROOT / "scripts" / "render_docs.py"))["PAGES"]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_page_is_current(name):
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run `make docs` and commit the result"
