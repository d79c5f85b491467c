"""Containers that Docker's daemon starts end with their job, whatever becomes of client, keeper and daemon."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from clearway.adapters.local import containers
from clearway.model.events import DeviceDown, DeviceUp, JobFinished, JobStarted, JobStopped, JobSuspended
from clearway.model.jobs import Outcome, Request, StopCause
from clearway.model.plan import Start, Stop, Suspend
from support.benches import wait_until
from support.docker import BUSYBOX, PATH, docker_daemon, find_docker, make_image
from support.local import QUICK, is_alive, let_others_pass, local_bench

IMAGE = "clearway-test:1"
TRIALS = 8


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    if not (Path(BUSYBOX).exists() and find_docker()):
        pytest.skip("needs root, Debian's docker.io and a static busybox")
    folder = tmp_path_factory.mktemp("docker")
    with docker_daemon(folder) as daemon:
        if daemon is None:
            pytest.skip("dockerd does not run on this machine")
        daemon.add_image(IMAGE, make_image(folder / "image"))
        yield daemon


@pytest.fixture(autouse=True)
def only_docker(monkeypatch):
    monkeypatch.setattr(containers, "IMAGE_TOOLS", ("docker",))
    monkeypatch.setenv("PATH", PATH)


PATIENT = replace(QUICK, quarantine_ms=10_000)
"""A busy daemon is no reason to call devices stuck."""


@pytest.fixture
def bench(tmp_path, docker, request):
    settings = QUICK if "does_not_say" in request.node.name else PATIENT
    with local_bench(tmp_path, docker_host=docker.host, settings=settings) as bench:
        yield bench


def add(bench, job, script, run=None, **more):
    bench.add(job, f"alias sleep='busybox sleep'\n{script}", run={"image": IMAGE, **(run or {})}, **more)


def begin(bench, job, script, **more):
    """Start it, and wait until it has said `up`."""
    add(bench, job, f"{script}", **more)
    bench.start(job)
    bench.wait(JobStarted, job)
    wait_until(lambda: (bench.workdir / f"slurm-{job}.out").exists() and "up" in bench.output(job), "output")


def said(bench, job):
    """What it wrote, without what its shell says of a `sleep` that was ended too."""
    return [word for word in bench.output(job).split() if word != "Terminated"]


def find_processes(bench, job):
    """All of the job, clients too, by its control group."""
    group = f"/{job}.".encode()
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                text = (path / "cgroup").read_bytes()
            except OSError:
                continue
            if group in text and bench.backend._group.encode() in text and is_alive(int(path.name)):
                found.append(int(path.name))
    return found


def find_client(bench, job):
    return next(pid for pid in find_processes(bench, job) if Path(f"/proc/{pid}/comm").read_text() == "docker\n")


def test_job_that_is_told_to_end_hears_it_once_and_has_its_grace(bench, docker):
    begin(bench, 5, "trap 'echo bye; sleep 0.2; echo saved; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED
    assert said(bench, 5) == ["up", "bye", "saved"]
    assert not docker.names()


def test_job_that_does_not_listen_is_killed_with_all_that_it_started(bench, docker):
    begin(bench, 5, "trap '' TERM; busybox setsid busybox sleep 600 & (busybox sleep 600 &) ; echo up; sleep 600")
    assert len(find_processes(bench, 5)) == 5
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED
    assert not find_processes(bench, 5)
    assert not docker.names()


@pytest.mark.parametrize(
    "leave",
    ["busybox setsid busybox sleep 600 &", "(busybox sleep 600 &) &", "trap '' TERM; busybox sleep 600 &"],
)
def test_no_device_is_told_free_while_a_process_of_a_container_lives(bench, leave, docker):
    for job in range(1, 4):
        add(bench, job, f"{leave} sleep 0.1; exit 0")
        bench.start(job, 1, (0, (job,)))
    for job in range(1, 4):
        bench.wait(JobFinished, job)
        assert not find_processes(bench, job)
    assert not docker.names()


def test_container_whose_client_was_killed_ends_and_only_then_the_job(bench, docker):
    begin(bench, 5, "trap '' TERM; echo up; while :; do sleep 0.02; done")
    os.kill(find_client(bench, 5), signal.SIGKILL)
    assert bench.wait(JobFinished, 5).outcome is Outcome.FAILED
    assert not find_processes(bench, 5)
    assert not docker.names()


def test_job_that_is_stopped_while_its_container_is_made_leaves_none_that_runs(bench, docker):
    for job in range(1, TRIALS + 1):
        add(bench, job, "while :; do sleep 0.02; done")
        bench.start(job)
        bench.wait(JobStarted, job)
        time.sleep(0.06 * job)  # not a wait: each hits the daemon at another moment
        bench.perform(Stop(job, 1, 0, None))
        bench.wait(JobFinished, job)
        assert not find_processes(bench, job)
    for _ in range(20):
        assert not [name for name in docker.names() if " Up " in name]
        time.sleep(0.02)


def test_client_that_is_killed_while_its_container_is_made_leaves_none_that_runs(bench, docker):
    for job in range(1, TRIALS + 1):
        add(bench, job, "while :; do sleep 0.02; done")
        bench.start(job)
        bench.wait(JobStarted, job)
        time.sleep(0.05 * job)  # as above
        os.kill(find_client(bench, job), signal.SIGKILL)
        bench.wait(JobFinished, job)
        assert not find_processes(bench, job)
    for _ in range(20):
        assert not [name for name in docker.names() if " Up " in name]
        time.sleep(0.02)


def test_devices_are_down_while_the_daemon_does_not_say_that_the_container_is_gone(bench, docker):
    begin(bench, 5, "echo up; while :; do sleep 0.02; done")
    os.kill(docker.pid, signal.SIGSTOP)
    try:
        bench.perform(Stop(5, 1, 0, None))
        down = bench.wait(DeviceDown)
        assert down.reason == "Docker does not say that the containers of job 5 are gone"
    finally:
        os.kill(docker.pid, signal.SIGCONT)
    bench.wait(DeviceUp)
    assert not docker.names()
    assert not find_processes(bench, 5)


def test_frozen_container_stands_still_and_goes_on_where_it_was(bench, docker):
    begin(bench, 5, "echo up; i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done", suspendable=True)
    bench.perform(Suspend(5, 1))
    bench.wait(JobSuspended, 5)
    frozen = bench.output(5)
    add(bench, 6, "sleep 0.2")
    bench.start(6)
    bench.wait(JobFinished, 6)
    assert bench.output(5) == frozen
    bench.perform(Start(5, 2, bench.allocate((1, (1,)))))
    bench.wait(JobStarted, 5, count=2)
    wait_until(lambda: len(bench.output(5)) > len(frozen) + 10, "more output")
    lines = bench.output(5).split()[1:]
    assert lines == [str(number) for number in range(1, len(lines) + 1)]
    bench.perform(Stop(5, 2, 0, None))
    bench.wait(JobFinished, 5)
    assert not docker.names()


def test_container_runs_on_when_controller_and_keeper_die_and_ends_with_its_job(bench, docker):
    begin(bench, 5, "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.02; done")
    bench.backend.close()
    keeper = bench.keeper_pid()
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not is_alive(keeper), "the keeper's death")
    bench.backend = bench.make()
    assert not [event for event in bench.connect([bench.holding(5)]) if isinstance(event, JobFinished | JobStopped)]
    assert len(find_processes(bench, 5)) >= 2
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED
    assert said(bench, 5) == ["up", "bye"]
    assert not docker.names()


def test_what_the_daemon_starts_is_limited_with_its_job(bench, docker):
    if unlimited := [note for note in bench.backend.notes if "memory" in note]:
        pytest.skip(unlimited[0])
    script = "busybox dd if=/dev/zero of=/dev/null bs=200M count=1 && echo enough"
    add(bench, 5, script, request=Request(devices=1, memory_bytes=64 << 20))
    bench.start(5)
    assert bench.wait(JobFinished, 5).outcome in (Outcome.OUT_OF_MEMORY, Outcome.FAILED)
    assert "enough" not in bench.output(5)


def test_environment_reaches_the_container_and_not_the_client_that_is_root(bench):
    lines = "one 'two'\n$(three) `four`"
    hostile = {"LD_PRELOAD": "/no/such.so", "DOCKER_HOST": "tcp://x", "A-B": "c", "LINES_": lines, "PATH": "/no"}
    run = {"environment": tuple(hostile.items())}
    begin(
        bench, 5, 'unset LD_PRELOAD; echo "$LINES_|$DOCKER_HOST|$PATH|$RANK|up"; while :; do sleep 0.02; done', run=run
    )
    client = find_client(bench, 5)
    told = Path(f"/proc/{client}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    assert sorted(line.partition(b"=")[0] for line in told) == [b"DOCKER_CONFIG", b"HOME", b"PATH"]
    words = Path(f"/proc/{client}/cmdline").read_bytes()
    assert b"three" not in words
    assert bench.output(5).endswith(
        f"{lines}|tcp://x|/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin|0|up\n"
    )


@pytest.mark.parametrize("image", ["--privileged", "-v/:/host", "a b", "{group}"])
def test_name_of_an_image_is_no_option(bench, image):
    add(bench, 5, "true", run={"image": image})
    bench.start(5)
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.UNSTARTABLE
    assert "expected the name of an image" in stopped.reason


def test_folder_that_its_user_cannot_reach_is_not_shown_to_him_by_a_link(bench, tmp_path):
    let_others_pass(tmp_path)
    bench.workdir.chmod(0o777)
    hidden = tmp_path / "hidden"
    (hidden / "open").mkdir(parents=True)
    (hidden / "open" / "secret").write_text("secret")
    hidden.chmod(0o700)
    link = bench.workdir / "link"
    link.symlink_to(hidden / "open")
    add(bench, 5, "busybox cat secret", run={"workdir": str(link)}, user="nobody")
    bench.start(5)
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.UNSTARTABLE
    assert "Permission denied" in stopped.reason


def test_container_has_no_right_of_roots_and_no_other_group(bench, tmp_path):
    let_others_pass(tmp_path)
    bench.workdir.chmod(0o777)
    add(bench, 5, "busybox grep -E '^(Uid|Groups|CapBnd|CapEff|NoNewPrivs):' /proc/self/status", user="nobody")
    bench.start(5)
    assert bench.wait(JobFinished, 5).outcome is Outcome.COMPLETED
    told = dict(line.split(":\t") for line in bench.output(5).splitlines())
    assert set(told["Uid"].split()) == {"65534"}
    assert told["Groups"].split() == ["65534"]
    assert {told["CapBnd"], told["CapEff"]} == {"0" * 16}
    assert told["NoNewPrivs"] == "1"
