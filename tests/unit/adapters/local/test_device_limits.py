"""Device files that the kernel itself does not let be opened, in control groups of this machine, of either version.

A file of a number that no driver has is there to be opened: where that is allowed, it fails with ENXIO.
"""

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearway.adapters.local.keeper.cgroups import DEVICES, Groups
from clearway.adapters.local.keeper.device_limits import deny_by_controller
from support.device_files import MAJOR, make_device_files, run_in, try_all, try_open

MOUNTS = Path("/proc/self/mounts").read_text()
OF_KIND = {"v1": "cgroup", "v2": "cgroup2"}


def make_limits(*minors):
    files = tuple((MAJOR, minor) for minor in minors)
    return SimpleNamespace(cpu_milli=0, memory_bytes=0, processes_max=0, files_denied=files)


@pytest.fixture(params=["v1", "v2"])
def groups(request):
    """Of one version alone, whatever else is mounted."""
    mounts = [line for line in MOUNTS.splitlines() if line.split()[2] == OF_KIND[request.param]]
    groups = Groups(f"clearway-test-{os.getpid()}", mounts="\n".join(mounts))
    if groups.kind != request.param or groups.device_obstacle:
        groups.leave()
        pytest.skip(f"needs root and cgroup {request.param}: {groups.device_obstacle}")
    yield groups
    groups.leave()


def test_processes_of_a_group_cannot_open_what_is_denied_and_open_all_else(groups, tmp_path):
    make_device_files(tmp_path, 0, 1, 2, 255)
    group = groups.make("5.1", make_limits(0, 2))
    assert run_in(group.entry_files, lambda: try_all(tmp_path, 0, 1, 2, 255)) == "['EPERM', 'ENXIO', 'EPERM', 'ENXIO']"
    assert run_in(
        group.entry_files, lambda: [try_open(tmp_path / "nvidia0", flags) for flags in (os.O_RDONLY, os.O_WRONLY)]
    ) == ("['EPERM', 'EPERM']")
    assert run_in(group.entry_files, lambda: try_open("/dev/null")) == "'opened'"
    assert try_all(tmp_path, 0, 1, 2) == ["ENXIO"] * 3
    assert group.remove()


def test_block_device_of_the_same_number_is_none_of_ours(groups, tmp_path):
    os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(MAJOR, 0))
    group = groups.make("5.1", make_limits(0))
    assert run_in(group.entry_files, lambda: try_open(tmp_path / "disk", os.O_RDONLY)) == "'ENXIO'"


def test_what_is_denied_may_be_made_and_looked_at_as_runtimes_of_containers_do(groups, tmp_path):
    group = groups.make("5.1", make_limits(0))
    assert run_in(group.entry_files, lambda: make_device_files(tmp_path, 0)) == "None"
    assert run_in(group.entry_files, lambda: os.stat(tmp_path / "nvidia0").st_rdev) == repr(os.makedev(MAJOR, 0))


def test_limit_holds_in_groups_below_and_for_who_finds_the_group_again(groups, tmp_path):
    make_device_files(tmp_path, 0, 1)
    groups.make("5.1", make_limits(0))
    group = groups.open("5.1")
    below = [Path(path).parent / "inner" / Path(path).name for path in group.entry_files]
    for path in below:
        path.parent.mkdir()
    assert run_in(below, lambda: try_all(tmp_path, 0, 1)) == "['EPERM', 'ENXIO']"
    assert run_in(group.entry_files, lambda: try_all(tmp_path, 0, 1)) == "['EPERM', 'ENXIO']"


def test_group_that_another_run_of_that_name_left_denies_nothing_any_more(groups, tmp_path):
    make_device_files(tmp_path, 0, 1)
    groups.make("5.1", make_limits(0))
    group = groups.make("5.1", make_limits(1))
    assert run_in(group.entry_files, lambda: try_all(tmp_path, 0, 1)) == "['ENXIO', 'EPERM']"


def test_run_that_may_open_everything_is_in_no_group_for_it(groups, tmp_path):
    make_device_files(tmp_path, 0)
    group = groups.make("5.1", make_limits())
    assert group.limiters == {}
    assert run_in(group.entry_files, lambda: try_all(tmp_path, 0)) == "['ENXIO']"


def test_as_many_gpus_as_a_machine_may_have_are_denied(groups, tmp_path):
    make_device_files(tmp_path, 0, 127, 128)
    group = groups.make("5.1", make_limits(*range(128)))
    assert run_in(group.entry_files, lambda: try_all(tmp_path, 0, 127, 128)) == "['EPERM', 'EPERM', 'ENXIO']"


@pytest.mark.parametrize("allowed", ["c 195:* rwm", "c *:* rw", "c 195:0 r"])
def test_list_of_what_is_allowed_from_which_nothing_can_be_taken_is_seen(tmp_path, allowed):
    (tmp_path / "devices.list").write_text(f"c 1:3 rwm\nc *:* m\nb 195:0 rw\n{allowed}\n")
    with pytest.raises(PermissionError, match="by a list of what is allowed"):
        deny_by_controller(str(tmp_path), [(195, 0)])


def test_list_that_allows_others_denies_enough(tmp_path):
    (tmp_path / "devices.list").write_text("c 1:3 rwm\nc *:* m\nc 195:255 rw\n")
    deny_by_controller(str(tmp_path), [(195, 0)])
    assert (tmp_path / "devices.deny").read_text() == "c 195:0 rw"


def test_run_does_not_suffer_where_its_files_cannot_be_denied_and_that_is_said_once(groups, monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    for way in ("deny_by_program", "deny_by_controller"):
        monkeypatch.setattr(f"clearway.adapters.local.keeper.cgroups.{way}", refuse)
    for mark in ("5.1", "6.1"):
        assert run_in(groups.make(mark, make_limits(0)).entry_files, lambda: "ran") == "'ran'"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "Operation not permitted" in said[0]
    assert groups.device_obstacle
    base = groups._limiters[DEVICES]
    assert not base or not os.path.exists(f"{base}/5.1")


def test_where_the_kernel_takes_no_program_version_1_denies_what_version_2_tracks(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("clearway.adapters.local.keeper.cgroups.deny_by_program", refuse)
    groups = Groups(f"clearway-test-{os.getpid()}", mounts=MOUNTS)
    try:
        if groups.kind != "v2":
            pytest.skip("needs root and cgroup v2")
        if groups.device_obstacle:
            assert (
                groups.device_obstacle == "cgroup v2 takes no program for device files here (Operation not permitted)"
            )
            return
        make_device_files(tmp_path, 0, 1)
        group = groups.make("5.1", make_limits(0))
        assert run_in(group.entry_files, lambda: try_all(tmp_path, 0, 1)) == "['EPERM', 'ENXIO']"
        assert groups.open("5.1").entry_files == group.entry_files
        assert group.remove()
    finally:
        groups.leave()
