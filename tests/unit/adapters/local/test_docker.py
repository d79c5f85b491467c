"""What Docker's daemon and client are asked, and when they are not used at all."""

import os
import subprocess
from contextlib import suppress

import pytest

from clearway.adapters.local import docker
from clearway.adapters.local.docker import (
    Asked,
    Docker,
    DockerError,
    DockerSilentError,
    check_client,
    check_info,
    find_fixed,
    find_mounts,
    make_start,
    make_words,
)
from support.benches import wait_until

GOOD = {"CgroupDriver": "cgroupfs", "SecurityOptions": ["name=seccomp,profile=default"], "Runtimes": {"runc": {}}}
ASKED = Asked(uid=7, gid=8, groups=(8, 9), owner="clearway-1", takes_input=False)
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may own folders")


def look(daemon):
    """What it is found to be, when it has answered."""
    with suppress(DockerSilentError):
        daemon.look("/usr/bin/docker")
    wait_until(lambda: not daemon.is_asked, "the answer")
    return daemon.look("/usr/bin/docker")


def words(image="train:1", mounts=("/data/ann",), **more):
    return make_words("/usr/bin/docker", "unix:///s", image, ASKED, mounts, **more)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({**GOOD, "CgroupDriver": "systemd"}, "by cgroupfs, found systemd"),
        ({**GOOD, "SecurityOptions": ["name=rootless"]}, "found it with rootless"),
        ({**GOOD, "SecurityOptions": ["name=userns"]}, "found it with userns"),
        ({"ServerErrors": ["no such daemon"]}, "no such daemon"),
    ],
)
def test_daemon_that_cannot_put_containers_below_a_job_is_refused_with_the_reason(found, said):
    check_info(GOOD)
    with pytest.raises(DockerError, match=said):
        check_info(found)


def test_docker_is_not_used_without_root_nor_on_another_machine():
    with pytest.raises(DockerError, match="expected root"):
        look(Docker("unix:///run/docker.sock", uid=1000))
    with pytest.raises(DockerError, match="found DOCKER_HOST=tcp://far:2375"):
        look(Docker("tcp://far:2375", uid=0))
    with pytest.raises(DockerError, match="does not listen at /no/such"):
        look(Docker("unix:///no/such.sock", uid=0))


def test_daemon_that_was_found_unfit_is_not_asked_again_for_each_job(monkeypatch):
    asked = []
    monkeypatch.setattr(docker, "check_peer", asked.append)
    monkeypatch.setattr(docker.subprocess, "run", lambda *_, **__: subprocess.CompletedProcess((), 1, b"no json"))
    daemon = Docker("unix:///s", uid=0)
    for _ in range(3):
        with pytest.raises(DockerError, match="does not say what it is"):
            look(daemon)
    assert asked == ["/s"]


def test_container_gets_the_jobs_user_no_rights_and_the_jobs_group():
    told = words()
    assert {"--user=7:8", "--group-add=9", "--cap-drop=ALL", "--security-opt=no-new-privileges"} < set(told)
    assert told[told.index("--cgroup-parent") + 1] == "{group}"
    assert "--mount=type=bind,source=/data/ann,target=/data/ann" in told
    assert told[-3:] == ("--entrypoint=/bin/sh", "train:1", "{start}")
    assert "--runtime=runc" in told
    assert "--runtime=nvidia" in words(has_gpus=True)


@pytest.mark.parametrize("image", ["", "-it", "--privileged", "a b", "a\nb", "{start}", "../x"])
def test_what_is_no_name_of_an_image_is_refused(image):
    with pytest.raises(DockerError, match="expected the name of an image"):
        words(image)


@ROOT
def test_folder_is_shown_from_its_longest_part_that_only_root_can_exchange(tmp_path):
    tmp_path.chmod(0o755)
    users = tmp_path / "ann"
    (users / "work").mkdir(parents=True)
    os.chown(users, 65534, 65534)
    assert find_fixed(str(users / "work")) == str(users)
    open_to_all = tmp_path / "scratch"
    (open_to_all / "mine").mkdir(parents=True)
    open_to_all.chmod(0o1777)
    assert find_fixed(str(open_to_all / "mine")) == str(open_to_all / "mine")
    os.chown(open_to_all / "mine", 65534, 65534)
    assert find_fixed(str(open_to_all / "mine")) == str(open_to_all)


@ROOT
def test_folder_within_another_is_shown_with_it_and_odd_ones_are_refused(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_mounts((str(tmp_path / "a" / "b"), str(tmp_path / "a"))) == (str(tmp_path / "a"),)
    (tmp_path / "a,readonly").mkdir()
    with pytest.raises(DockerError, match="comma"):
        find_mounts((str(tmp_path / "a,readonly"),))
    with pytest.raises(DockerError, match="expected a folder"):
        find_mounts(("/",))


def test_start_looks_where_it_is_before_it_does_anything(tmp_path):
    text = make_start(("/bin/echo", "a b", "{script}"), "/", {"A": "x"}, {"B": "it's\n$HOME"}, "{script}")
    (tmp_path / "start").write_text(text.replace("{place}", "0::/nowhere/*"))
    done = subprocess.run(["/bin/sh", tmp_path / "start"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (125, "")
    assert "it lies elsewhere" in done.stderr
    (tmp_path / "start").write_text(text.replace("{place}", "*:*").replace("exec ", 'echo "$A,$B"; exec '))
    done = subprocess.run(["/bin/sh", tmp_path / "start"], capture_output=True, text=True, check=True, env={"A": "own"})
    assert done.stdout == f"own,it's\n$HOME\na b {tmp_path}/script\n"


def test_client_that_others_can_change_is_not_run(tmp_path):
    program = tmp_path / "docker"
    program.touch()
    program.chmod(0o777)
    with pytest.raises(DockerError, match="nobody else's to change"):
        check_client(str(program))
