"""What a job may use of the machine, whatever it asked for."""

from pathlib import Path
from types import SimpleNamespace

from clearway.adapters.local.accounts import Account
from clearway.adapters.local.devices import DeclaredDevices
from clearway.adapters.local.launching import Task, find_processes_max, make_launch
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Request
from clearway.model.runs import RunSpec
from support.benches import make_nodes


def launch_on(tmp_path, *nodes):
    task = Task(
        spec=JobSpec(id=JobId(5), request=Request(devices=1), replicas=len(nodes)),
        run=RunSpec(script="true", workdir="/usr/lib"),
        generation=1,
        place=tuple((NodeName(node), (0,)) for node in nodes),
        account=Account(name="ann", uid=7, gid=8, groups=(), home="/usr", login_shell="/bin/sh"),
        job_dir=Path("/usr/bin"),
        now_ms=0,
        port=1,
        group="clearway-1",
    )
    return make_launch(task, DeclaredDevices(make_nodes(), tmp_path / "down.json"), SimpleNamespace())


def test_processes_of_every_job_are_limited(tmp_path):
    assert launch_on(tmp_path, "n0").processes_max == find_processes_max(1) > 0
    assert launch_on(tmp_path, "n0", "n1").processes_max == find_processes_max(2) > 0


def test_job_has_at_most_half_of_the_processes_that_the_machine_can_have(tmp_path):
    pids, threads, no_number = tmp_path / "pids", tmp_path / "threads", tmp_path / "max"
    pids.write_text("4194304\n")
    threads.write_text("100000\n")
    no_number.write_text("max\n")
    files = [str(pids), str(threads), str(no_number), "/no/such/file"]
    assert [find_processes_max(replicas, files) for replicas in (1, 2)] == [32_768, 50_000]
    pids.write_text("32768\n")
    assert find_processes_max(1, files) == 16_384
    assert find_processes_max(3, ()) == 3 * 32_768
