"""What is written to control groups, in folders that stand in for the kernel's, for machines that this one is not."""

from types import SimpleNamespace

import pytest

from clearway.adapters.local.keeper.cgroups import Group, Groups

LIMITS = SimpleNamespace(cpu_milli=1_500, memory_bytes=1 << 30, processes_max=100, files_denied=())
NO_LIMITS = SimpleNamespace(cpu_milli=0, memory_bytes=0, processes_max=0, files_denied=())


@pytest.fixture
def v2(tmp_path):
    """A mount of cgroup v2 with all controllers, in which our folder exists already."""
    base = tmp_path / "cgroup" / "clearway-1"
    base.mkdir(parents=True)
    for name, text in {
        "cgroup.procs": "",
        "cgroup.events": "populated 0\nfrozen 0\n",
        "cgroup.freeze": "0",
        "cgroup.controllers": "cpuset cpu io memory pids",
    }.items():
        (base / name).write_text(text)
    return base


def mounts_of(base):
    return f"cgroup2 {base.parent} cgroup2 rw,nosuid 0 0\n"


def test_v2_limits_cpus_memory_and_processes_and_kills_a_job_whole_when_it_is_out_of_memory(v2):
    groups = Groups("clearway-1", mounts=mounts_of(v2))
    assert (groups.kind, groups.notes) == ("v2", [])
    group = groups.make("5.1", LIMITS)
    written = {path.name: path.read_text() for path in (v2 / "5.1").iterdir()}
    assert written == {
        "cpu.max": "150000 100000",
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "100",
    }
    assert group.entry_files == (f"{v2}/5.1/cgroup.procs",)


def test_job_without_limits_has_none(v2):
    Groups("clearway-1", mounts=mounts_of(v2)).make("5.1", NO_LIMITS)
    assert list((v2 / "5.1").iterdir()) == []


def test_v2_group_is_empty_when_the_kernel_says_so_and_counts_its_oom_kills(v2):
    group = Groups("clearway-1", mounts=mounts_of(v2)).make("5.1", LIMITS)
    events = v2 / "5.1" / "cgroup.events"
    events.write_text("populated 1\nfrozen 0\n")
    assert not group.is_empty()
    events.write_text("populated 0\nfrozen 1\n")
    assert group.is_empty()
    assert group.is_frozen()
    (v2 / "5.1" / "memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    assert group.count_oom_kills() == 3


def test_processes_in_groups_that_a_job_made_below_its_own_are_found(v2):
    group = Groups("clearway-1", mounts=mounts_of(v2)).make("5.1", LIMITS)
    below = v2 / "5.1" / "inner"
    below.mkdir()
    (v2 / "5.1" / "cgroup.procs").write_text("")
    (v2 / "5.1" / "cgroup.events").write_text("populated 1\n")
    (below / "cgroup.procs").write_text("12\n13\n")
    assert sorted(group.pids()) == [12, 13]


def test_v1_alone_tracks_by_the_freezer(tmp_path):
    for controller in ("freezer", "memory", "cpu"):
        base = tmp_path / controller / "clearway-1"
        base.mkdir(parents=True)
        (base / "cgroup.procs").write_text("")
    mounts = "".join(f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0\n" for name in ("freezer", "memory", "cpu"))
    groups = Groups("clearway-1", mounts=mounts)
    assert groups.kind == "v1"
    assert groups.notes == ["cgroup v1: pids cannot be limited here"]
    group = groups.make("5.1", LIMITS)
    assert (tmp_path / "cpu/clearway-1/5.1/cpu.cfs_quota_us").read_text() == "150000"
    assert (tmp_path / "memory/clearway-1/5.1/memory.limit_in_bytes").read_text() == str(1 << 30)
    (tmp_path / "freezer/clearway-1/5.1/cgroup.procs").write_text("")
    assert group.is_empty()
    (tmp_path / "freezer/clearway-1/5.1/cgroup.procs").write_text("7\n")
    assert group.pids() == [7]
    group.freeze()
    assert (tmp_path / "freezer/clearway-1/5.1/freezer.state").read_text() == "FROZEN"
    again = groups.open("5.1")
    assert again.entry_files == group.entry_files


def test_groups_that_a_containers_tool_made_elsewhere_go_with_the_run(tmp_path):
    for controller in ("freezer", "pids", "blkio"):
        base = tmp_path / controller / "clearway-1"
        base.mkdir(parents=True)
        (base / "cgroup.procs").write_text("")
    mounts = "".join(f"cgroup {tmp_path}/{name} cgroup rw,{name} 0 0\n" for name in ("freezer", "pids", "blkio"))
    groups = Groups("clearway-1", mounts=mounts)
    for group in (groups.make("5.1", NO_LIMITS), groups.open("5.1")):
        (tmp_path / "freezer/clearway-1/5.1").mkdir(exist_ok=True)
        for controller in ("pids", "blkio"):
            (tmp_path / controller / "clearway-1/5.1/libpod-1").mkdir(parents=True)
        assert group.remove()
        assert not list(tmp_path.glob("*/clearway-1/5.1"))


def test_machine_without_groups_gets_one_clear_line():
    groups = Groups("clearway-1", mounts="proc /proc proc rw 0 0\n")
    assert groups.kind == "marks"
    (note,) = groups.notes
    assert note.startswith("no cgroup can be made here")
    assert "CPU and memory are not limited" in note


@pytest.mark.parametrize(("has_threads", "name"), [(False, "tasks"), (True, "cgroup.procs")])
def test_task_leaves_the_limits_of_its_runner_that_its_job_does_not_have(tmp_path, has_threads, name):
    paths = {each: tmp_path / each for each in ("freezer", "memory", "devices")}
    for path in paths.values():
        for mark in ("runner", "5.1"):
            (path / mark).mkdir(parents=True)
    of_runner = {each: str(paths[each] / "runner") for each in ("memory", "devices")}
    runner = Group("runner", str(paths["freezer"] / "runner"), of_runner, "v1")
    job = Group("5.1", str(paths["freezer"] / "5.1"), {"memory": str(paths["memory"] / "5.1")}, "v1")
    job.take(77, runner, has_threads=has_threads)
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert written == [f"devices/{name}", f"freezer/5.1/{name}", f"memory/5.1/{name}"]
