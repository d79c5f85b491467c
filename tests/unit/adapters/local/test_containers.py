"""How images are started: which tool, with which arguments, and what is shown inside."""

import json
from dataclasses import replace

import pytest

from clearway.adapters.local import containers
from clearway.adapters.local.containers import ContainerError, Place, find_tool, make_bundle, make_remover, wrap

PLACE = Place(workdir="/data/ann", job_dir="/state/jobs/5", name="clearway-5.1", group="clearway-1/5.1", uid=7, gid=8)
ARGV = ("/bin/sh", "{script}", "a b")


def find_only(*tools):
    return lambda tool: f"/usr/bin/{tool}" if tool in tools else None


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Control groups of version 1 alone; what this machine has does not matter."""
    monkeypatch.setattr(containers, "HYBRID", str(tmp_path / "hybrid"))
    monkeypatch.setattr(containers, "UNIFIED", str(tmp_path / "unified"))
    return tmp_path


@pytest.fixture
def image(tmp_path):
    for name in ("proc", "data", "state"):
        (tmp_path / name).mkdir()
    return str(tmp_path)


def test_folder_is_run_by_crun_before_runc(image):
    assert wrap(image, ARGV, PLACE, find_only("runc", "crun", "podman"))[0] == "/usr/bin/crun"
    assert wrap(image, ARGV, PLACE, find_only("runc", "podman"))[0] == "/usr/bin/runc"


def test_crun_is_not_used_where_it_would_refuse_the_machine(image, machine):
    (machine / "hybrid").write_text("hugetlb\n")
    assert wrap(image, ARGV, PLACE, find_only("runc", "crun"))[0] == "/usr/bin/runc"
    assert wrap("train:1", ARGV, PLACE, find_only("runc", "podman"))[1] == "--runtime=/usr/bin/runc"
    with pytest.raises(ContainerError, match="crun refuses this machine"):
        wrap(image, ARGV, PLACE, find_only("crun"))


def test_containers_of_podman_stay_in_the_group_of_the_run(machine):
    root = wrap("train:1", ARGV, replace(PLACE, uid=0), find_only("podman"))
    assert {"--cgroup-manager=cgroupfs", "--cgroup-parent=/clearway-1/5.1", "--pid=host"} < set(root)
    assert "--pid=host" in wrap("train:1", ARGV, PLACE, find_only("podman"))
    (machine / "unified").touch()
    for uid in (0, 7):
        words = wrap("train:1", ARGV, replace(PLACE, uid=uid), find_only("podman"))
        assert "--cgroups=disabled" in words
        assert "--pid=host" not in words  # podman refuses both together


def test_named_image_is_run_by_podman_before_apptainer_with_the_jobs_words():
    podman = wrap("train:1", ARGV, PLACE, find_only("podman", "apptainer"))
    assert podman[:4] == ("/usr/bin/podman", "run", "--name", "{container}")
    assert podman[-3:] == ("train:1", "/proc/self/fd/3", "a b")
    assert "--entrypoint=/bin/sh" in podman
    assert "/data/ann:/data/ann" in podman
    apptainer = wrap("train.sif", ARGV, PLACE, find_only("apptainer"))
    assert apptainer[:2] == ("/usr/bin/apptainer", "exec")
    assert apptainer[-3:] == ("/bin/sh", "/proc/self/fd/3", "a b")


def test_image_in_one_file_is_run_by_apptainer_alone_with_nothing_written_for_it(tmp_path):
    file = tmp_path / "train.img"
    file.touch()
    for image in (str(file), "/no/such/train.sif", "train.sif"):
        assert find_tool(image, find_only("podman", "apptainer", "docker")) == ("apptainer", "/usr/bin/apptainer")
        assert make_bundle(image, ARGV, {}, PLACE) == ""
    with pytest.raises(ContainerError, match=r"expected one of apptainer, singularity to run the image 'train\.sif'"):
        find_tool("train.sif", find_only("podman", "docker"))


def test_container_of_podman_is_taken_away_by_the_name_under_which_it_was_run(machine):
    root = replace(PLACE, uid=0)
    words = make_remover("train:1", root, find_only("podman"))
    assert words == (
        *("/usr/bin/podman", "--cgroup-manager=cgroupfs", "rm"),
        *("--force", "--ignore", "--volumes", "{container}"),
    )
    (machine / "unified").touch()
    assert make_remover("train:1", root, find_only("podman"))[:2] == ("/usr/bin/podman", "rm")
    for image in ("train.sif", str(machine)):
        assert make_remover(image, PLACE, find_only("apptainer", "runc")) == ()


def test_name_that_a_tool_would_take_for_an_option_is_refused():
    for image in ("--help", "-v=/:/host", "-x.sif"):
        with pytest.raises(ContainerError, match="which a tool would take for an option"):
            wrap(image, ARGV, PLACE, find_only("podman", "apptainer"))


def test_docker_is_asked_where_nothing_else_runs_an_image():
    assert find_tool("train:1", find_only("docker", "podman")) == ("podman", "/usr/bin/podman")
    assert find_tool("train:1", find_only("docker")) == ("docker", "/usr/bin/docker")


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
