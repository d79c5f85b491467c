"""The import contracts of pyproject.toml hold, and fail where they should."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.source_rules import ROOT

LINT = "from importlinter.cli import lint_imports_command as main; main(['--no-cache', '--no-logo'])"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """import-linter over the copy of the package below `root`."""
    return subprocess.run([sys.executable, "-c", LINT], cwd=root, capture_output=True, text=True)


@pytest.fixture
def copy_of_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the contracts look at, to be spoilt; it goes before the installed package."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_import_points_down(copy_of_sources):
    result = lint_imports(copy_of_sources)
    assert result.returncode == 0, result.stdout


def test_a_folder_without_a_layer_is_refused(copy_of_sources):
    stray = copy_of_sources / "src" / "clearway" / "stray"
    stray.mkdir()
    (stray / "__init__.py").touch()
    result = lint_imports(copy_of_sources)
    assert result.returncode == 1
    assert "stray" in result.stdout


@pytest.mark.parametrize(
    ("file", "line", "named"),
    [
        ("engine/tables.py", "import time", "time"),
        ("model/units.py", "from pathlib import Path", "pathlib"),
        ("model/units.py", "import clearway.engine.tables", "clearway.engine"),
    ],
)
def test_a_forbidden_import_is_refused(copy_of_sources, file, line, named):
    path = copy_of_sources / "src" / "clearway" / file
    path.write_text(path.read_text() + f"\n{line}\n")
    result = lint_imports(copy_of_sources)
    assert result.returncode == 1
    assert named in result.stdout
