"""Machine code is kept where the tasks of the repository keep it."""

import subprocess
import tempfile
from pathlib import Path

from clearway.cli.machine_code import SHIPPED_VARIABLE, VARIABLE, find_folder, is_machine_code_kept, keep_machine_code

ROOT = Path(__file__).parents[3]


def test_folder_is_that_of_the_repositorys_own_script(tmp_path):
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    told = subprocess.run(
        [ROOT / "scripts" / "numba-cache"], env=environment, capture_output=True, text=True, check=True
    )
    assert str(find_folder(environment)) == told.stdout.strip()


def keep_beside(monkeypatch, tmp_path):
    """Keep machine code below `tmp_path`, with some shipped; returns where it is kept."""
    shipped, kept = (find_folder({"XDG_CACHE_HOME": str(tmp_path / name)}) for name in ("shipped", "kept"))
    (shipped / "engine").mkdir(parents=True)
    (shipped / "engine" / "scan.nbc").write_bytes(b"code")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "kept"))
    monkeypatch.setenv(SHIPPED_VARIABLE, str(tmp_path / "shipped"))
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    return kept


def test_machine_code_that_an_image_ships_is_taken_once(monkeypatch, tmp_path):
    kept = keep_beside(monkeypatch, tmp_path)
    keep_machine_code()
    assert (kept / "engine" / "scan.nbc").read_bytes() == b"code"
    assert is_machine_code_kept()
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_machine_code_that_is_kept_already_is_not_replaced_by_what_is_shipped(monkeypatch, tmp_path):
    kept = keep_beside(monkeypatch, tmp_path)
    kept.mkdir(parents=True)
    keep_machine_code()
    assert list(kept.iterdir()) == []


def test_machine_code_is_kept_for_this_start_alone_where_no_folder_may_be_written(monkeypatch, tmp_path):
    keep_beside(monkeypatch, tmp_path)
    (tmp_path / "kept").write_text("no folder")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keep_machine_code()
    (folder,) = tmp_path.glob("clearway-*/*")
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert is_machine_code_kept()
