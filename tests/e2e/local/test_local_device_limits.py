"""A job opens the files of its own devices and of no others, whatever it does, and whoever takes over."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clearway.adapters.local.backend import LocalBackend
from clearway.adapters.local.keeper.cgroups import Groups
from clearway.model.events import JobFinished, JobResized, JobStarted, JobSuspended
from clearway.model.jobs import Elastic, JobKind, Outcome
from clearway.model.plan import Resize, Suspend
from support.benches import wait_until
from support.device_files import ALLOWED, DENIED, DevicesWithFiles, find_obstacle, make_device_files, run_in, try_all
from support.local import QUICK, let_others_pass, local_bench

LOOK = "found=$(LC_ALL=C cat nvidia0 nvidia1 nvidia2 nvidia3 2>&1); printf '%s\\n' \"$found\""
"""One line for each file, all of them at once: replicas share their output."""


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path, source=DevicesWithFiles) as bench:
        if obstacle := find_obstacle(bench.backend.notes):
            pytest.skip(obstacle)
        make_device_files(bench.workdir, 0, 1, 2, 3)
        yield bench


def find_open(bench, job):
    """Minor numbers that it could open, of those that it has tried."""
    lines = [line for line in bench.output(job).splitlines() if "nvidia" in line]
    assert all(line.endswith((ALLOWED, DENIED)) for line in lines), lines
    return [int(line.split("nvidia")[1][0]) for line in lines if line.endswith(ALLOWED)]


def test_job_opens_its_own_devices_alone_in_setup_too(bench):
    bench.add(5, LOOK, run={"setup": LOOK}, replicas=2)
    bench.start(5, 1, (0, (1,)), (0, (3,)))
    bench.wait(JobFinished, 5)
    assert sorted(find_open(bench, 5)) == [1, 1, 1, 3, 3, 3]


def test_job_without_devices_opens_none_and_one_with_all_opens_all(bench):
    bench.add(5, LOOK)
    bench.start(5, 1, (0, ()))
    bench.add(6, LOOK)
    bench.start(6, 1, (0, (0, 1, 2, 3)))
    bench.wait(JobFinished, 5)
    bench.wait(JobFinished, 6)
    assert (find_open(bench, 5), find_open(bench, 6)) == ([], [0, 1, 2, 3])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as others")
def test_job_of_another_user_is_kept_from_devices_too(bench, tmp_path):
    let_others_pass(tmp_path)
    bench.workdir.chmod(0o777)
    bench.add(5, LOOK, user="nobody")
    bench.start(5, 1, (0, (2,)))
    bench.wait(JobFinished, 5)
    assert find_open(bench, 5) == [2]


def test_warm_task_opens_its_own_device_and_its_runner_none(bench):
    (bench.workdir / "task.py").write_text(f"import os\nos.system({LOOK!r})\n")
    bench.add(5, f"{sys.executable} task.py", run={"environment": (("CLEARWAY_WARM", "decimal"),)}, kind=JobKind.TASK)
    bench.start(5, 1, (0, (1,)))
    bench.wait(JobFinished, 5)
    assert find_open(bench, 5) == [1]
    name = bench.backend._group
    marks = {
        mark for path in Path("/proc").glob("[0-9]*/cgroup") for mark in find_marks(path, name) if "runner" in mark
    }
    (mark,) = marks
    runner = Groups(name).open(mark)
    assert run_in(runner.entry_files, lambda: try_all(bench.workdir, 0, 1)) == "['EPERM', 'EPERM']"


def find_marks(path, name):
    try:
        text = path.read_text()
    except OSError:
        return []
    return [line.partition(f"/{name}/")[2].partition("/")[0] for line in text.splitlines() if f"/{name}/" in line]


def test_resized_job_opens_what_it_has_now(bench):
    script = f"trap 'exit 0' TERM; {LOOK}; while :; do sleep 0.02; done"
    bench.add(5, script, replicas=1, elastic=Elastic(replicas_min=1, replicas_max=2))
    bench.start(5, 1, (0, (0,)))
    bench.wait(JobStarted, 5)
    wait_until(lambda: len(bench.output(5).splitlines()) == 4, "its look")
    bench.perform(Resize(5, 2, bench.allocate((0, (1,)), (0, (2,)))))
    bench.wait(JobResized, 5)
    wait_until(lambda: len(bench.output(5).splitlines()) >= 12, "both replicas")
    found = find_open(bench, 5)
    assert (found[0], sorted(found[1:])) == (0, [1, 1, 2, 2])


def test_limits_outlive_keepers_and_the_time_that_a_job_is_frozen(bench):
    script = f"while :; do {{ {LOOK}; }} > look.new; mv look.new look; sleep 0.02; done"
    bench.add(5, script, suspendable=True)
    bench.start(5, 1, (0, (3,)))
    bench.wait(JobStarted, 5)

    def look_anew():
        (bench.workdir / "look").unlink(missing_ok=True)
        wait_until((bench.workdir / "look").exists, "another look")
        return [line.endswith(ALLOWED) for line in (bench.workdir / "look").read_text().splitlines()]

    assert look_anew() == [False, False, False, True]
    os.kill(bench.keeper_pid(), signal.SIGKILL)
    bench.reconnect([bench.holding(5)])
    assert look_anew() == [False, False, False, True]
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    os.kill(bench.keeper_pid(), signal.SIGKILL)
    bench.reconnect([bench.holding(5, is_suspended=True)])
    bench.start(5, 2, (0, (3,)))
    bench.wait(JobStarted, 5, count=2)
    assert look_anew() == [False, False, False, True]


def test_job_on_a_machine_that_cannot_deny_anything_runs_all_the_same(tmp_path):
    settings = replace(QUICK, is_without_cgroups=True)
    with local_bench(tmp_path, source=DevicesWithFiles, settings=settings) as bench:
        assert find_obstacle(bench.backend.notes).endswith("no cgroup can be made here")
        bench.add(5, "true")
        bench.start(5)
        assert bench.wait(JobFinished, 5).outcome is Outcome.COMPLETED


def test_keeper_of_an_older_version_says_nothing_of_devices_and_its_jobs_are_found_again(tmp_path, monkeypatch):
    find_again = LocalBackend._find_again

    def forget_and_find(backend, now_ms, client, answer):
        find_again(backend, now_ms, client, {name: value for name, value in answer.items() if name != "devices"})

    monkeypatch.setattr(LocalBackend, "_find_again", forget_and_find)
    with local_bench(tmp_path, source=DevicesWithFiles) as bench:
        assert "of an older version" in find_obstacle(bench.backend.notes)
        bench.add(5, "true")
        bench.start(5)
        assert bench.wait(JobFinished, 5).outcome is Outcome.COMPLETED
