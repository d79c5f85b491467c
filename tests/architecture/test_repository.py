"""The files around the source: documents, tasks and setup agree with one another and speak of the project alone."""

import re
import subprocess
from pathlib import Path

import pytest

from support.source_rules import ROOT

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|Users)/\w+|file://")
HOST = re.compile(r"\w+://")


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode != 0:
        pytest.skip("git does not know this tree: expected a clone of the repository, with git installed")
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def headings(text: str) -> list[str]:
    """The levels of the headings, in order: `#`, `##`…"""
    return re.findall(r"^(#+) ", FENCE.sub("", text), re.MULTILINE)


def commands(text: str) -> list[str]:
    """Blocks of code without their comments, which are translated."""
    return [re.sub(r"\s*#.*", "", block) for block in FENCE.findall(text)]


def test_no_file_names_a_path_of_the_machine_it_was_written_on():
    named = {
        str(path.relative_to(ROOT)): match.group()
        for path in tracked_files()
        if path != Path(__file__) and (match := MACHINE_PATH.search(read_text(path)))
    }
    assert named == {}


@pytest.mark.parametrize("text", ["cd /root/clearway", "/Users/me", "clearway @ file:///tmp/clearway"])
def test_a_path_of_a_machine_would_be_found(text):
    assert MACHINE_PATH.search(text)


def test_setup_names_no_host():
    files = [ROOT / "Makefile", ROOT / "requirements.lock", ROOT / ".ci" / "run", *(ROOT / "scripts").iterdir()]
    named = {path.name: HOST.findall(read_text(path)) for path in files if path.is_file()}
    assert {name: hosts for name, hosts in named.items() if hosts} == {}


def test_each_link_between_documents_leads_somewhere():
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in LINK.findall(read_text(document))
        if not HOST.match(target) and not (document.parent / target).exists()
    ]
    assert broken == []


def test_the_chinese_readme_has_the_parts_and_commands_of_the_english_one():
    english, chinese = read_text(ROOT / "README.md"), read_text(ROOT / "README.zh-CN.md")
    assert headings(chinese) == headings(english)
    assert commands(chinese) == commands(english)
    assert re.findall(r"!\[[^\]]*\]\(([^)]*)\)", chinese) == re.findall(r"!\[[^\]]*\]\(([^)]*)\)", english)


def test_each_task_that_a_document_names_exists_and_is_explained():
    makefile = read_text(ROOT / "Makefile")
    explained = set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))
    declared = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE).group(1).split())
    named = {
        task
        for document in documents()
        for task in re.findall(r"(?:`|^|scripts/bootstrap )make ([a-z][a-z-]*)", read_text(document), re.MULTILINE)
    }
    assert declared == explained
    assert sorted(named - explained) == []


def test_every_decision_record_states_context_decision_and_consequences():
    for record in (ROOT / "docs" / "decisions").glob("*.md"):
        text = read_text(record)
        assert re.match(rf"# {record.name[:4]} ", text), record.name
        assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"], record.name
