"""What the keeper reads: mounts, progress files, records, signals."""

import contextlib
import json
import os
import select
import signal
import subprocess
import threading

import pytest

from clearway.adapters.local.devices import parse_down
from clearway.adapters.local.keeper.cgroups import find_mounts
from clearway.adapters.local.keeper.contract import (
    NOTHING_SAID,
    make_job_dir,
    parse_progress,
    read_progress,
    write_request,
)
from clearway.adapters.local.keeper.home import take_home
from clearway.adapters.local.keeper.messages import Launch, ReplicaLaunch, Report, render_message
from clearway.adapters.local.keeper.processes import (
    collect_descendants,
    handles_signal,
    read_exit_status,
    read_identity,
    signal_number,
)
from clearway.adapters.local.keeper.records import Records, Started
from clearway.adapters.local.keeper.spawn import Child, _fork_into, explain_failure, is_own_failure, spawn
from clearway.adapters.local.keeper.warm_links import REASON_MAX, explain
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.ids import NodeName
from support.keepers import noted_keeper

KERNEL_TELLS_ENDS = tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 15)
"""Whether a pidfd tells how a process ended that was waited for."""


def make_launch(job=5, generation=1, **more):
    replica = ReplicaLaunch(rank=0, node="n0", environment={"RANK": "0"}, stdin="", stdout="/o", stderr="/o")
    values = {"environment": {}, "argv": ("/bin/sh", "{script}"), "script": "true\n", "workdir": "/", "job_dir": "/j"}
    return Launch(job=job, generation=generation, replicas=(replica,), world=1, devices=(("n0", 1),), **values, **more)


def test_hybrid_mounts_give_both_hierarchies():
    mounts = (
        "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n"
        "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n"
        "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
        "cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n"
        "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n"
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"
    )
    v2, v1 = find_mounts(mounts)
    assert v2 == "/sys/fs/cgroup/unified"
    assert v1 == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/sys/fs/cgroup/memory",
        "freezer": "/sys/fs/cgroup/freezer",
    }


def test_messages_survive_the_wire():
    launch = make_launch(limit_ms=5, groups=(1, 2))
    assert Launch.of_message(json.loads(render_message(launch.to_message()))) == launch
    report = Report(job=5, generation=1, stuck=[("n0", 1, "held")])
    assert Report.of_message(json.loads(render_message(report.to_message()))) == report


def test_progress_is_what_the_job_says():
    said = parse_progress(b'{"progress": 0.5, "checkpoint_at": 1700000000.25, "answers": "5.1.leave", "done": true}')
    assert (said.progress, said.checkpoint_at_ms, said.answers, said.is_done) == (
        0.5,
        1_700_000_000_250,
        "5.1.leave",
        True,
    )


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{", b"null", b"\xff\xfe", b"[" * 100_000, b'{"progress": "x", "checkpoint_at": [], "answers": 1}'],
)
def test_progress_that_makes_no_sense_counts_as_not_said(text):
    assert parse_progress(text) == NOTHING_SAID


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1", "true", "1e999", "1" + "0" * 400])
def test_numbers_out_of_range_do_no_harm(value):
    said = parse_progress(f'{{"progress": {value}, "checkpoint_at": {value}}}'.encode())
    assert 0 <= (said.progress or 0) <= 1
    assert said.checkpoint_at_ms >= 0


def test_progress_file_of_another_kind_is_neither_followed_nor_waited_for(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"done": true}')
    path = tmp_path / "progress.json"
    path.symlink_to(secret)
    assert read_progress(str(tmp_path)) == NOTHING_SAID
    path.unlink()
    os.mkfifo(path)
    assert read_progress(str(tmp_path)) == NOTHING_SAID
    path.unlink()
    path.mkdir()
    assert read_progress(str(tmp_path)) == NOTHING_SAID
    path.rmdir()
    path.write_text('{"done": true}' + " " * 70_000)
    assert read_progress(str(tmp_path)) == NOTHING_SAID


def test_request_is_written_over_whatever_the_user_put_there_and_nowhere_else(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folder = tmp_path / "job"
    folder.mkdir()
    for name in ("request.json", ".request.json.new"):
        (folder / name).symlink_to(precious)
    write_request(str(folder), {"id": "5.1.leave"}, None, None)
    assert precious.read_text() == "kept"
    assert json.loads((folder / "request.json").read_text()) == {"id": "5.1.leave"}
    assert not (folder / "request.json").is_symlink()


def test_generation_is_begun_once(tmp_path):
    records = Records(tmp_path)
    assert records.begin(make_launch())
    assert not records.begin(make_launch())
    assert not Records(tmp_path).begin(make_launch())
    assert records.begin(make_launch(generation=2))
    assert records.list() == [(5, 1), (5, 2)]


def test_records_tell_another_keeper_what_there_is(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    started = Started(boot="b", mark="5.1", processes=((10, 11, 0),))
    records.note_started(5, 1, started)
    again = Started(boot="b", mark="5.1", processes=((10, 11, 0),), started_ms=7)
    records.note_started(5, 1, again)
    record = Records(tmp_path).read(5, 1)
    assert (record.launch, record.started, record.result) == (make_launch(), again, None)
    records.note_result(Report(job=5, generation=1, end="finished", outcome="COMPLETED"))
    assert Records(tmp_path).read(5, 1).result.outcome == "COMPLETED"


def test_record_that_was_cut_anywhere_tells_what_was_whole(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    records.note_started(5, 1, Started(boot="b", mark="5.1", processes=()))
    path = tmp_path / "runs" / "5.1"
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        record = records.read(5, 1)
        assert (record.launch is not None) == (cut >= first)
        assert record.started is None


def test_saved_work_is_kept_over_generations(tmp_path):
    records = Records(tmp_path)
    assert records.read_saved(5) == 0
    records.note_saved(5, 1_234)
    records.note_saved(5, 2_345)
    assert Records(tmp_path).read_saved(5) == 2_345
    records.forget_saved(5)
    assert records.read_saved(5) == 0


def test_descendants_are_found_once_even_in_a_circle():
    assert sorted(collect_descendants([1], {1: [2, 3], 3: [4], 4: [1]})) == [1, 2, 3, 4]


@pytest.mark.parametrize(("name", "number"), [("USR1", 10), ("SIGUSR1", 10), ("usr1", 10), ("10", 10), ("TERM", 15)])
def test_signals_are_named_as_users_name_them(name, number):
    assert signal_number(name) == number


@pytest.mark.parametrize("name", ["", "0", "99", "USR", "HUP HUP", "DFL"])
def test_unknown_signal_is_an_error(name):
    with pytest.raises(ValueError, match="signal"):
        signal_number(name)


def test_handlers_of_a_process_are_seen():
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert handles_signal(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert not handles_signal(os.getpid(), signal.SIGUSR2)
    assert not handles_signal(os.getpid(), 9)
    assert not handles_signal(0, 2)


def test_declared_failures_name_what_exists():
    nodes = [NodeSpec(name=NodeName("n0"), groups=(DeviceGroup(model="v", count=2),))]
    health = parse_down('{"nodes": ["n0", "n7"], "devices": {"n0": [1, 5, "x"], "n9": [0]}}', nodes, "down.json")
    assert dict(health.nodes) == {"n0": "declared as failed in down.json"}
    assert list(health.devices) == [("n0", 1)]


def test_directory_of_a_new_job_does_not_hold_what_another_of_its_number_left(tmp_path):
    folder = tmp_path / "5"
    for expected in (["5"], ["5", "5.before-1"], ["5", "5.before-1", "5.before-2"]):
        make_job_dir(str(folder), None, None, is_new=True)
        assert list(folder.iterdir()) == []
        assert sorted(path.name for path in tmp_path.iterdir()) == expected
        (folder / "checkpoint").write_text("precious")
    make_job_dir(str(folder), None, None, is_new=False)
    assert (folder / "checkpoint").exists()


def test_end_of_a_process_is_read_without_being_its_parent():
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    descriptor = os.pidfd_open(pid)
    select.select([descriptor], [], [])
    assert read_exit_status(descriptor, pid) == 7 << 8
    _, status = os.waitpid(pid, 0)
    after = read_exit_status(descriptor, pid)
    os.close(descriptor)
    assert after in (status, None)
    assert after == status or not KERNEL_TELLS_ENDS


def test_process_that_runs_has_not_ended():
    descriptor = os.pidfd_open(os.getpid())
    assert read_exit_status(descriptor, os.getpid()) is None
    os.close(descriptor)


def test_process_that_cannot_be_born_in_a_group_is_forked_all_the_same(tmp_path):
    pid, is_inside = _fork_into(str(tmp_path))
    if pid == 0:
        os._exit(7)
    assert not is_inside
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_state_is_lost_when_it_is_missed_again_and_again_and_not_when_it_cannot_be_looked_at(tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    home = take_home(state)
    assert take_home(state) is None
    assert not any(home.is_newly_lost(tick) for tick in range(1_000, 9_000, 1_000))
    state.rename(tmp_path / "moved")
    state.symlink_to(state)  # a loop: an error, and not that nothing is there
    assert not any(home.is_newly_lost(tick) for tick in range(9_000, 15_000, 1_000))
    state.unlink()
    state.mkdir()
    looks = [home.is_newly_lost(tick) for tick in range(15_000, 21_000, 1_000)]
    assert looks == [False, False, True, False, False, False]


def test_pipe_that_nobody_opens_is_no_place_for_output_and_the_jobs_own_fault(tmp_path, monkeypatch):
    monkeypatch.setattr("clearway.adapters.local.keeper.spawn.OPEN_WAIT_S", 1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    child = Child(
        argv=("/bin/true",),
        environment={},
        script=-1,
        workdir="/",
        job_dir="/",
        stdin="",
        stdout=str(pipe),
        stderr="",
        truncates=False,
        gate=-1,
        uid=None,
        gid=None,
        groups=(),
        entry_files=(),
        files_max=64,
    )
    pid, reader = spawn(child)
    with open(reader, "rb") as told:
        said = told.read()
    os.waitpid(pid, 0)
    assert is_own_failure(said)
    assert explain_failure(said) == f"standard files: open {pipe}: nobody opened its other end within 1 s"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (b"open /x: 2", "open /x: No such file or directory"),
        (b"open /x: 99999999999999999999", "open /x: 99999999999999999999"),
        ("open /x: ²".encode(), "open /x: ²"),
        (b"\x1b[2J\xff\n", "[2J\ufffd"),
        (b"x" * 4_096, "x" * REASON_MAX),
    ],
)
def test_whatever_a_warm_task_tells_is_a_short_reason_in_plain_letters(told, reason):
    assert explain(told) == reason


def test_identity_of_a_process_is_what_the_kernel_says():
    with subprocess.Popen(["/bin/sleep", "600"]) as child:
        assert read_identity(child.pid) == (child.pid, os.getpid(), (os.getuid(),) * 4, False)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert read_identity(child.pid) is None, "it has ended"


def test_thread_is_told_from_its_process():
    is_over = threading.Event()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    found = read_identity(thread.native_id)
    is_over.set()
    thread.join()
    assert (found.pid, found.has_threads) == (os.getpid(), True)


def test_descriptor_that_was_closed_and_given_anew_meanwhile_is_not_read(tmp_path):
    with noted_keeper(tmp_path) as keeper:
        heard = []
        pipes = [os.pipe() for _ in range(2)]

        def take(number):
            heard.append(number)
            other = pipes[1 - number][0]
            keeper.unwatch(other)
            again, _ = fresh = os.pipe()
            assert again == other
            pipes.append(fresh)
            keeper.watch(other, lambda: heard.append("not ready"))

        for number, (reader, writer) in enumerate(pipes):
            keeper.watch(reader, lambda number=number: take(number))
            os.write(writer, b".")
        keeper._wait()
        assert heard in ([0], [1])
        for pair in pipes:
            for descriptor in pair:
                with contextlib.suppress(OSError):
                    os.close(descriptor)
