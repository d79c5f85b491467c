"""What outlives a job's main process is found and ended, and the devices are not free before."""

import os
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from clearway.model.events import DeviceDown, DeviceUp, JobFinished, JobStarted
from clearway.model.jobs import Outcome
from support.benches import wait_until
from support.local import QUICK, is_alive, local_bench

KINDS = {
    "setsid": "setsid sleep 600 & echo $! > {pids}",
    "double fork": "(sleep 600 & echo $! > {pids}) &",
    "nohup": "nohup sleep 600 > /dev/null 2>&1 & echo $! > {pids}",
    "sigterm ignored": "trap '' TERM; sleep 600 & echo $! > {pids}",
    "reparented loader": (
        "exec env -i {python} -c '\nimport os, sys, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        '        open("{pids}", "w").write(str(os.getpid()))\n        time.sleep(600)\n    os._exit(0)\nos.wait()'
        '\nwhile not os.path.exists("{pids}") or not open("{pids}").read(): time.sleep(0.001)\''
    ),
}

WAIT = "\nwhile [ ! -s {pids} ]; do sleep 0.01; done\nexit 0"
"""The main process ends when the one that outlives it has told its number."""


@pytest.mark.parametrize("kind", KINDS)
def test_no_device_is_told_free_while_a_process_of_the_job_lives(tmp_path, kind, escape_trials):
    with local_bench(tmp_path) as bench:
        for job in range(1, escape_trials + 1):
            pids = tmp_path / f"pids-{job}"
            bench.add(job, KINDS[kind].format(pids=pids, python=sys.executable) + WAIT.format(pids=pids))
            bench.start(job)
        told = set()
        while len(told) < escape_trials:
            bench.wait(JobFinished, count=len(told) + 1)
            for event in [event for event in bench.events if isinstance(event, JobFinished)]:
                if event.job not in told:
                    told.add(event.job)
                    pid = int((tmp_path / f"pids-{event.job}").read_text())
                    assert not is_alive(pid), f"pid {pid} of job {event.job} lives, and its devices are told free"


def test_without_control_groups_marked_processes_and_their_children_are_found(tmp_path):
    settings = type(QUICK)(kill_wait_ms=400, leftover_wait_ms=100, is_without_cgroups=True)
    with local_bench(tmp_path, settings=settings) as bench:
        assert "no cgroup" in bench.backend.notes[0]
        for job, script in enumerate([KINDS[kind] for kind in ("setsid", "double fork", "nohup", "sigterm ignored")]):
            pids = tmp_path / f"pids-{job + 1}"
            bench.add(job + 1, script.format(pids=pids) + WAIT.format(pids=pids))
            bench.start(job + 1)
        for job in range(1, 5):
            bench.wait(JobFinished, job)
            assert not is_alive(int((tmp_path / f"pids-{job}").read_text()))


FREEZER = Path("/sys/fs/cgroup/freezer")


needs_freezer = pytest.mark.skipif(
    not os.access(FREEZER / "cgroup.procs", os.W_OK) or " cgroup2 " not in Path("/proc/self/mounts").read_text(),
    reason="needs a writable v1 freezer beside control groups of version 2, by which jobs are tracked",
)


@contextmanager
def unkillable(bench, job):
    """A job on (n1, 2) of which a child takes no signal, as one in uninterruptible sleep does not: it is in a frozen
    group of the v1 freezer. Yields its pid, and what thaws it."""
    frozen = FREEZER / f"clearway-test-{os.getpid()}"
    noted = bench.workdir / "pid"
    bench.add(job, f"sleep 600 & echo $! > {noted}; wait", limit_ms=400)
    bench.start(job, 1, (1, (2,)))
    bench.wait(JobStarted, job)
    wait_until(lambda: noted.exists() and noted.read_text(), "the child")
    pid = int(noted.read_text())
    frozen.mkdir()
    try:
        (frozen / "cgroup.procs").write_text(str(pid))
        (frozen / "freezer.state").write_text("FROZEN")
        yield pid, lambda: (frozen / "freezer.state").write_text("THAWED")
    finally:
        (frozen / "freezer.state").write_text("THAWED")
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "the end of the child")
        frozen.rmdir()


@needs_freezer
def test_process_that_sigkill_does_not_end_is_named_and_its_devices_are_down_until_it_is_gone(tmp_path):
    with local_bench(tmp_path) as bench, unkillable(bench, 5) as (pid, thaw):
        finished = bench.wait(JobFinished, 5)
        down = bench.wait(DeviceDown)
        assert (down.node, down.device) == ("n1", 2)
        assert f"held by pid {pid} (" in down.reason
        assert bench.events.index(down) < bench.events.index(finished)
        assert finished.outcome is Outcome.TIMEOUT
        assert not [event for event in bench.observe() if isinstance(event, DeviceUp)]
        again = bench.reconnect()
        assert [(event.node, event.device) for event in again if isinstance(event, DeviceDown)] == [("n1", 2)]
        os.kill(bench.keeper_pid(), signal.SIGKILL)
        again = bench.reconnect()
        assert [(event.node, event.device) for event in again if isinstance(event, DeviceDown)] == [("n1", 2)]
        thaw()
        up = bench.wait(DeviceUp)
        assert (up.node, up.device) == ("n1", 2)
        assert not is_alive(pid)


@needs_freezer
def test_devices_are_up_again_of_a_process_that_ended_when_no_keeper_lived(tmp_path):
    with local_bench(tmp_path) as bench, unkillable(bench, 5) as (pid, thaw):
        bench.wait(DeviceDown)
        bench.wait(JobFinished, 5)
        bench.observe()
        os.kill(bench.keeper_pid(), signal.SIGKILL)
        thaw()
        wait_until(lambda: not is_alive(pid), "its end")
        up = bench.wait(DeviceUp)
        assert (up.node, up.device) == ("n1", 2)
