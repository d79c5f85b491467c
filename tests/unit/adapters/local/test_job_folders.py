"""What is taken away of a job's own directory, in which its user lays traps."""

import os
import pwd

import pytest

from clearway.adapters.local.keeper import contract, trees
from clearway.adapters.local.keeper.contract import make_job_dir, remove_job_dir
from clearway.adapters.local.keeper.trees import remove_tree
from support.local import let_others_pass

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root has more rights than a job's user")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "5").mkdir()
    return tmp_path / "5"


@pytest.fixture
def precious(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "config.json").write_text("kept")
    return tmp_path / "precious"


def make_bundle(folder, number):
    bundle = folder / f".bundle.{number}"
    (bundle / "clearway-1.1").mkdir(parents=True)
    for name in ("config.json", "start", "script", "clearway-1.1/state.json"):
        (bundle / name).write_text("SECRET=1")
    return bundle


def test_what_containers_were_started_with_goes_with_the_job_and_what_it_left_stays(folder):
    make_bundle(folder, 7)
    make_bundle(folder, 8)
    remove_job_dir(str(folder))
    assert not folder.exists()
    folder.mkdir()
    make_bundle(folder, 7)
    for name in (".bundle.mine", "checkpoint", "progress.json"):
        (folder / name).touch()
    remove_job_dir(str(folder))
    assert sorted(os.listdir(folder)) == [".bundle.mine", "checkpoint"]


def test_many_folders_are_taken_away_by_parts_for_others_wait_meanwhile(folder, monkeypatch):
    monkeypatch.setattr(contract, "ENTRIES_MAX", 10)
    for number in range(4):
        make_bundle(folder, number)
    remove_job_dir(str(folder))
    assert 0 < len(os.listdir(folder)) < 4
    for _ in range(5):
        remove_job_dir(str(folder))
    assert not folder.exists()


def test_number_that_an_earlier_generation_had_is_free_again(folder):
    make_bundle(folder, 7)
    (folder / "progress.json").touch()
    make_job_dir(str(folder), None, None, is_new=False)
    assert os.listdir(folder) == ["progress.json"]


def test_link_leads_to_nothing_that_is_taken_away(folder, precious):
    (folder / ".bundle.1").symlink_to(precious)
    make_bundle(folder, 7)
    (folder / ".bundle.7" / "more").symlink_to(precious)
    remove_job_dir(str(folder))
    assert (precious / "config.json").read_text() == "kept"
    assert not folder.exists()


def test_directory_that_is_a_link_is_left_alone(folder, precious):
    make_bundle(precious, 7)
    folder.rmdir()
    folder.symlink_to(precious)
    remove_job_dir(str(folder))
    assert (precious / ".bundle.7" / "start").exists()


@AS_ROOT
def test_what_the_user_could_not_take_away_himself_stays_and_root_is_root_again(folder, tmp_path):
    let_others_pass(tmp_path)
    nobody = pwd.getpwnam("nobody")
    bundle = make_bundle(folder, 7)
    shared = bundle / "shared"  # of root's, where everybody may write: he could move it here from elsewhere
    shared.mkdir()
    (shared / "config.json").write_text("kept")
    shared.chmod(0o1777)
    for path in (folder, bundle, bundle / "start", make_bundle(folder, 8)):
        os.chown(path, nobody.pw_uid, nobody.pw_gid)
    before = (os.getresuid(), os.getresgid(), os.getgroups())
    remove_job_dir(str(folder))
    assert (shared / "config.json").read_text() == "kept"
    assert not (bundle / "start").exists()
    assert (os.getresuid(), os.getresgid(), os.getgroups()) == before


def test_no_more_is_taken_away_than_takes_a_moment(folder, monkeypatch):
    for number in range(10):
        (folder / str(number)).mkdir()
    above = os.open(folder.parent, trees.FOLDER)
    assert remove_tree(above, "5", most=4) == 0
    assert len(os.listdir(folder)) == 6
    assert remove_tree(above, "5", most=100, depth=1) > 0
    assert len(os.listdir(folder)) == 6
    os.close(above)
    monkeypatch.setattr(contract, "NAMES_MAX", 3)
    (folder / "progress.json").touch()
    remove_job_dir(str(folder))
    assert len(os.listdir(folder)) == 6
