"""How images are started: which tool, with which arguments, and what is shown inside."""

import json

import pytest

from clearway.adapters.local.containers import ContainerError, Place, make_bundle, wrap

PLACE = Place(workdir="/data/ann", job_dir="/state/jobs/5", name="clearway-5.1", group="clearway-1/5.1", uid=7, gid=8)
ARGV = ("/bin/sh", "{script}", "a b")


def find_only(*tools):
    return lambda tool: f"/usr/bin/{tool}" if tool in tools else None


@pytest.fixture
def image(tmp_path):
    for name in ("proc", "data", "state"):
        (tmp_path / name).mkdir()
    return str(tmp_path)


def test_folder_is_run_by_runc_before_crun(image):
    assert wrap(image, ARGV, PLACE, find_only("runc", "crun", "podman"))[0] == "/usr/bin/runc"
    assert wrap(image, ARGV, PLACE, find_only("crun", "podman"))[0] == "/usr/bin/crun"


def test_named_image_is_run_by_podman_before_apptainer_with_the_jobs_words():
    podman = wrap("train:1", ARGV, PLACE, find_only("podman", "apptainer"))
    assert podman[:2] == ("/usr/bin/podman", "run")
    assert podman[-4:] == ("train:1", "/bin/sh", "/proc/self/fd/3", "a b")
    assert "/data/ann:/data/ann" in podman
    apptainer = wrap("train.sif", ARGV, PLACE, find_only("apptainer"))
    assert apptainer[:2] == ("/usr/bin/apptainer", "exec")
    assert apptainer[-3:] == ("/bin/sh", "/proc/self/fd/3", "a b")


def test_docker_alone_is_refused_because_it_starts_processes_elsewhere():
    with pytest.raises(ContainerError, match="docker starts containers outside"):
        wrap("train:1", ARGV, PLACE, find_only("docker"))


def test_bundle_gives_the_job_its_user_and_its_folders(image):
    config = json.loads(make_bundle(image, ARGV, {"A": "b"}, PLACE))
    assert config["process"]["args"] == ["/bin/sh", "/proc/self/fd/3", "a b"]
    assert config["process"]["env"] == ["A=b"]
    assert config["linux"]["uidMappings"] == [{"containerID": 0, "hostID": 7, "size": 1}]
    assert config["process"]["noNewPrivileges"] is True
    destinations = [mount["destination"] for mount in config["mounts"]]
    assert destinations == ["/proc", "/data", "/data/ann", "/state", "/state/jobs/5"]


def test_folder_that_cannot_be_shown_inside_is_refused(image):
    place = Place(workdir="/home/ann", job_dir="/state/jobs/5", name="c", group="g", uid=7, gid=8)
    with pytest.raises(ContainerError, match="expected /home in the image"):
        make_bundle(image, ARGV, {}, place)
