"""Jobs inside of an image: a folder with a root filesystem, by whichever tool is installed."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from clearway.adapters.local import containers
from clearway.adapters.local.client import group_name
from clearway.model.events import JobFinished, JobStarted, JobStopped
from clearway.model.jobs import Outcome, StopCause
from clearway.model.plan import Stop
from support.benches import wait_until
from support.device_files import ALLOWED, DENIED, DevicesWithFiles, find_obstacle, make_device_files
from support.docker import PATH, docker_daemon, find_docker, make_image
from support.local import LocalBench, let_others_pass, local_bench

BUSYBOX = Path("/bin/busybox")
NAMED = "clearway-test:1"


def is_there(tool: str) -> bool:
    return BUSYBOX.exists() and shutil.which(tool) is not None and not (tool == "crun" and containers.is_hybrid())


@pytest.fixture(scope="module")
def docker(tmp_path_factory):
    """A daemon that has the image; None = it does not run here."""
    if not (BUSYBOX.exists() and find_docker()):
        yield None
        return
    folder = tmp_path_factory.mktemp("docker")
    with docker_daemon(folder) as daemon:
        if daemon is not None:
            daemon.add_image(NAMED, make_image(folder / "image"))
        yield daemon


@pytest.fixture
def bench(tmp_path, request):
    daemon = request.getfixturevalue("docker") if "docker" in request.node.name else None
    with local_bench(tmp_path, docker_host=daemon.host if daemon else "") as bench:
        yield bench


@pytest.fixture(params=["runc", "crun", "podman", "docker"])
def image(request, tmp_path, monkeypatch):
    """The image, to be run by one tool."""
    if request.param == "docker":
        if request.getfixturevalue("docker") is None:
            pytest.skip("needs root, Debian's docker.io and a static busybox, on a machine on which dockerd runs")
        monkeypatch.setattr(containers, "IMAGE_TOOLS", ("docker",))
        monkeypatch.setenv("PATH", PATH)
        yield NAMED
        return
    if not is_there(request.param):
        pytest.skip(f"needs a static busybox, and {request.param} on a machine on which it runs")
    folder = make_image(tmp_path / "image")
    if request.param != "podman":
        monkeypatch.setattr(containers, "FOLDER_TOOLS", (request.param,))
        yield folder
        return
    archive = tmp_path / "image.tar"
    subprocess.run(["tar", "-C", folder, "-cf", archive, "."], check=True)
    entry = ("--change", 'ENTRYPOINT ["/bin/false"]')  # which is not for jobs
    subprocess.run(["podman", "import", *entry, archive, NAMED], check=True, capture_output=True)
    yield NAMED
    subprocess.run(["podman", "rmi", "--force", NAMED], check=True, capture_output=True)


def add(bench: LocalBench, job: int, script: str, image: Path | str, **more: object) -> None:
    bench.add(job, script, run={"image": str(image)}, **more)


def test_job_runs_inside_of_its_image_with_its_own_folders_and_variables(bench, image):
    script = "busybox cat /etc/release; echo $RANK $CUDA_VISIBLE_DEVICES; busybox pwd; echo x > $CLEARWAY_JOB_DIR/o"
    add(bench, 5, script, image, replicas=2)
    bench.start(5, 1, (0, (1,)), (1, (2,)))
    finished = bench.wait(JobFinished, 5)
    assert finished.outcome is Outcome.COMPLETED, bench.output(5)
    lines = bench.output(5).splitlines()
    assert lines.count("the image") == 2
    assert lines.count(str(bench.workdir)) == 2
    assert {"0 1", "1 2"} < set(lines)
    assert (bench.state / "jobs" / "5" / "o").read_text() == "x\n"


def test_exit_code_of_the_job_comes_through_its_container(bench, image):
    add(bench, 5, "exit 7", image)
    bench.start(5)
    assert bench.wait(JobFinished, 5).exit_code == 7


def test_what_a_container_leaves_behind_is_ended(bench, image):
    script = "busybox setsid busybox sleep 600 & echo started; busybox sleep 600"
    add(bench, 5, script, image)
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_until(lambda: "started" in bench.output(5), "output")
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED
    sleeping = [
        path.name
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and (path / "environ").exists() and is_of_job(path, bench)
    ]
    assert not sleeping


@pytest.mark.parametrize("image", ["podman"], indirect=True)
@pytest.mark.parametrize("how", ["ends by itself", "is cancelled", "is cancelled under another keeper"])
def test_nothing_of_a_container_of_podman_outlives_its_job(bench, image, how):
    work = "exit 3" if how == "ends by itself" else "while :; do busybox sleep 1; done"
    add(bench, 5, f"trap '' TERM; echo started; {work}", image)
    bench.start(5)
    bench.wait(JobStarted, 5)
    if how != "ends by itself":
        wait_until(lambda: "started" in bench.output(5), "output")
        if how != "is cancelled":
            os.kill(bench.keeper_pid(), signal.SIGKILL)
            bench.reconnect([bench.holding(5)])
        bench.perform(Stop(5, 1, 0, None))
    bench.wait(JobFinished, 5)
    images = subprocess.run(
        ["podman", "ps", "--all", "--format={{.Image}}"], check=True, capture_output=True, text=True
    )
    assert NAMED not in images.stdout
    assert not [*Path("/sys/fs/cgroup").glob(f"**/{group_name(bench.state)}/*5.1")]


@pytest.mark.parametrize("script", ["exit 3", "kill -9 $$", "trap '' TERM; while :; do busybox sleep 1; done"])
def test_folder_of_a_container_goes_with_its_job(bench, image, script):
    add(bench, 5, script, image)
    bench.start(5)
    bench.wait(JobStarted, 5)
    bench.perform(Stop(5, 1, 0, None))
    bench.wait(JobFinished, 5)
    bench.observe()
    wait_until(lambda: not (bench.state / "jobs" / "5").exists(), "the job's directory to go")


def is_of_job(process: Path, bench: LocalBench) -> bool:
    try:
        return f"CLEARWAY_JOB_DIR={bench.state}/jobs/5".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_container_opens_no_device_of_others_and_those_of_its_job_as_far_as_its_tool_shows_them(
    tmp_path, image, request
):
    daemon = request.getfixturevalue("docker") if image == NAMED else None
    with local_bench(tmp_path, source=DevicesWithFiles, docker_host=daemon.host if daemon else "") as bench:
        if obstacle := find_obstacle(bench.backend.notes):
            pytest.skip(obstacle)
        make_device_files(bench.workdir, 0, 1)
        add(bench, 5, "for n in 0 1; do busybox cat nvidia$n; done 2>&1; echo ran", image)
        bench.start(5, 1, (0, (1,)))
        bench.wait(JobFinished, 5)
        lines = bench.output(5).splitlines()
        assert lines[0].endswith(DENIED), lines
        assert lines[1].endswith(ALLOWED if isinstance(image, Path) else (ALLOWED, DENIED)), lines
        assert lines[2] == "ran"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as others")
@pytest.mark.parametrize("image", ["runc", "crun", "docker"], indirect=True)
def test_container_has_the_rights_of_the_jobs_user_alone(bench, image, tmp_path):
    let_others_pass(tmp_path)
    bench.workdir.chmod(0o777)
    secret = bench.workdir / "secret"
    secret.write_text("secret")
    secret.chmod(0o600)
    script = "busybox cat secret || echo refused; echo mine > mine"
    add(bench, 5, script, image, user="nobody")
    bench.start(5)
    assert bench.wait(JobFinished, 5).outcome is Outcome.COMPLETED, bench.output(5)
    assert "refused\n" in bench.output(5)  # and, on either side of it, what cat says
    assert (bench.workdir / "mine").owner() == "nobody"


def test_image_that_no_tool_can_run_is_a_failed_start(bench, monkeypatch):
    monkeypatch.setenv("PATH", "/no/such/folder")
    add(bench, 5, "true", "registry.example/train:1")
    bench.start(5)
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.UNSTARTABLE
    assert (
        "expected one of podman, apptainer, singularity, docker to run the image 'registry.example/train:1'"
        in stopped.reason
    )
