"""Jobs that were submitted to Clearway: what is asked of their Jobs, and what follows from their pods."""

import json
import signal
import subprocess
from dataclasses import replace

import pytest

from clearway.adapters.kubernetes.backend import KubernetesBackend
from clearway.adapters.kubernetes.book import NOT_MADE, TAKEN_AWAY, Book
from clearway.adapters.kubernetes.config import KubernetesConfig, SharedFolder
from clearway.adapters.kubernetes.manifests import FIRST_PROCESS, find_fault, make_own_job, name_of, own_demand
from clearway.adapters.kubernetes.nodes import LASTING_MAX
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.placement import find_lasting_mismatch
from clearway.adapters.kubernetes.runs import Bind, End, Follow, Launch
from clearway.model.errors import InputError
from clearway.model.events import JobFinished, JobResized, JobStarted, JobStopped
from clearway.model.ids import JobId, TenantName
from clearway.model.jobs import Checkpoint, JobSpec, Outcome, Request, StopCause
from clearway.model.runs import Launch as LaunchPlace
from clearway.model.runs import RunSpec
from clearway.model.runs import Toleration as Borne
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig(log_folder="/nowhere", replace_ms=1_000)
OWNER = ("batch/v1", "Job", "train-7", "a1e3")
SAVES = Checkpoint(interval_ms=100, grace_ms=1_500)
RUN = RunSpec(script="python train.py", image="registry.example/train:1")


def make_spec(**more):
    more = {"tenant": TenantName("vision"), "name": "train", "request": Request(devices=4), "replicas": 2, **more}
    return JobSpec(id=JobId(7), **more)


def make_own(spec=None, run=RUN, shared=SharedFolder()):  # noqa: B008 - frozen
    return make_own_job(spec or make_spec(), run, "nvidia.com/gpu", "clearway", shared)


def test_tolerations_of_a_job_are_those_of_its_pods_and_of_what_it_demands():
    borne = (Borne(key="team", value="vision", effect="NoSchedule"), Borne(key="any"), Borne())
    own = make_own(run=replace(RUN, tolerations=borne))
    spec = own.manifest["spec"]["template"]["spec"]
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
        {"key": "any", "operator": "Exists"},
        {"operator": "Exists"},
    ]
    demand = own_demand("nvidia.com/gpu", borne[:1])
    for taint, admitted in (("vision", True), ("speech", False)):
        node = make_node("n1", taints=[{"key": "team", "value": taint, "effect": "NoSchedule"}])
        assert (find_lasting_mismatch(demand, parse_node(node, CONFIG)) == "") is admitted


def test_demands_that_are_never_forgotten_are_bounded():
    backend = KubernetesBackend(CONFIG)
    spec = make_spec(request=Request(devices=0))
    runs = [replace(RUN, tolerations=(Borne(key=f"k{number}"),)) for number in range(LASTING_MAX + 1)]
    labels = {backend.shape(spec, run).request.node_labels for run in runs[:-1]}
    assert len(labels) == LASTING_MAX
    with pytest.raises(InputError, match="expected `tolerations` as some other job has them"):
        backend.shape(spec, runs[-1])
    assert backend.shape(spec, runs[7]).request.node_labels in labels


class World:
    """A book with one node of 8 GPUs, and the job 7 started on two halves of it."""

    def __init__(self, spec=None):
        self.book = Book(CONFIG)
        self.book.nodes.put(parse_node(make_node("n1", gpus=8), CONFIG))
        self.book.settle(0)
        self.now_ms = 0
        self.pods = {}
        self.own = make_own(spec or make_spec(checkpoint=SAVES))
        self.book.start(0, JobId(7), 1, [("n1", (0, 1, 2, 3)), ("n1", (4, 5, 6, 7))], "", None, self.own)

    def put(self, index, *, phase="Pending", node="", code=0, **more):
        labels = {"clearway.io/job": "7"}
        pod = make_pod(f"w{index}", gpus=4, owner=OWNER, index=index, labels=labels, phase=phase, node=node, **more)
        if code:
            pod["status"]["containerStatuses"] = [{"state": {"terminated": {"exitCode": code}}}]
        self.book.put_pod(parse_pod(pod, CONFIG))

    def settle(self, now_ms=None):
        self.now_ms = self.now_ms + 1 if now_ms is None else now_ms
        events = self.book.settle(self.now_ms)
        return [event for event in events if not type(event).__name__.startswith(("Node", "Device"))]

    def calls(self):
        return [show(action) for action in self.book.take_actions()]

    def run(self):
        """All pods made, bound and running."""
        self.put(0)
        self.put(1)
        self.settle()
        for index in (0, 1):
            self.put(index, node="n1", phase="Running")
        self.settle()
        self.calls()
        for index in (0, 1):
            self.book.note_followed(JobId(7), f"uid-w{index}")


def show(action):
    match action:
        case Launch(_, replicas):
            return f"launch {replicas}"
        case End(_, ending):
            return str(ending)
        case Bind(pod, node, told):
            return f"bind {pod.name} {node} {dict(told)['clearway.io/world-size']}"
        case Follow(_, pod):
            return f"follow {pod.name}"


# --- the book ---------------------------------------------------------------------------------------------------------


def test_start_has_the_job_made_and_binds_its_pods_once_all_are_there():
    world = World()
    assert world.calls() == ["launch 2"]
    world.put(1)
    world.settle()
    assert world.calls() == []
    world.put(0)
    world.settle()
    assert world.calls() == ["bind w0 n1 2", "bind w1 n1 2"]
    world.put(0, node="n1", phase="Running")
    world.put(1, node="n1", phase="Running")
    assert world.settle() == [JobStarted(3, 7, 1)]
    assert world.calls() == ["follow w0", "follow w1"]


def test_job_that_must_leave_is_suspended_and_waits_with_its_work_once_its_pods_are_gone_and_read():
    world = World()
    world.run()
    world.book.stop(500, JobId(7), 1, StopCause.PREEMPTED)
    world.settle(501)
    assert world.calls() == ["park"]
    for index in (0, 1):
        world.book.drop_pod(f"uid-w{index}")
    assert world.settle() == []  # nobody has said that no more pods are made
    world.book.note_ended(JobId(7), is_there=True)
    (stopped,) = world.settle()
    assert (stopped.cause, stopped.saved_ms) == (StopCause.PREEMPTED, 498)


@pytest.mark.parametrize(
    ("namespace", "said"),
    [("vision", "Preempted by job 7"), ("b", "Preempted by a job of another namespace")],
)
def test_who_is_preempted_for_a_job_that_ran_before_and_has_no_pods_is_told_for_whom(namespace, said):
    world = World()
    world.run()
    world.book.stop(2, JobId(7), 1, StopCause.PREEMPTED)
    for index in (0, 1):
        world.book.drop_pod(f"uid-w{index}")
    world.book.note_ended(JobId(7), is_there=True)
    world.settle()
    world.book.put_pod(parse_pod(make_pod("low", gpus=8, namespace=namespace), CONFIG))
    world.settle()
    (arrival,) = world.book.take_arrivals()
    world.book.accept(world.now_ms, arrival, 8)
    world.book.start(world.now_ms, JobId(8), 1, [("n1", tuple(range(8)))], world.book.jobs[8].key)
    low = make_pod("low", gpus=8, namespace=namespace, node="n1", phase="Running")
    world.book.put_pod(parse_pod(low, CONFIG))
    world.settle()
    world.book.take_actions()
    world.book.stop(world.now_ms, JobId(8), 1, StopCause.PREEMPTED, JobId(7))
    world.settle()
    assert [action.why for action in world.book.take_actions()] == [said]


def test_work_since_the_last_checkpoint_is_lost_where_a_pod_was_killed():
    world = World()
    world.run()
    world.book.stop(500, JobId(7), 1, StopCause.PREEMPTED)
    world.put(0, node="n1", phase="Failed", code=137)
    world.put(1, node="n1", phase="Succeeded")
    world.book.note_ended(JobId(7), is_there=True)
    (stopped,) = world.settle(600)
    assert stopped.saved_ms == 400


def test_next_start_goes_on_with_the_same_job():
    world = World()
    world.run()
    world.book.stop(5, JobId(7), 1, StopCause.PREEMPTED)
    for index in (0, 1):
        world.book.drop_pod(f"uid-w{index}")
    world.book.note_ended(JobId(7), is_there=True)
    world.settle()
    world.calls()
    world.book.start(9, JobId(7), 2, [("n1", (0, 1, 2, 3))], "", None, world.own)
    assert world.calls() == ["launch 1"]


def test_resize_leaves_and_goes_on_with_other_pods_and_is_told_when_the_old_devices_are_free():
    world = World()
    world.run()
    world.book.resize(50, JobId(7), 2, [("n1", (0, 1, 2, 3))])
    world.settle(51)
    assert world.calls() == ["park"]
    for index in (0, 1):
        world.book.drop_pod(f"uid-w{index}")
    world.book.note_ended(JobId(7), is_there=True)
    assert world.settle(60) == [JobResized(60, 7, 2)]
    assert world.calls() == ["launch 1"]
    world.put(0, uid="again")
    world.settle()
    assert world.calls() == ["bind w0 n1 1"]


def test_stop_during_a_resize_is_what_counts():
    world = World()
    world.run()
    world.book.resize(50, JobId(7), 2, [("n1", (0, 1, 2, 3))])
    world.book.stop(51, JobId(7), 2, StopCause.PREEMPTED)
    for index in (0, 1):
        world.book.drop_pod(f"uid-w{index}")
    world.book.note_ended(JobId(7), is_there=True)
    (stopped,) = world.settle(60)
    assert isinstance(stopped, JobStopped)
    assert (stopped.generation, stopped.cause) == (2, StopCause.PREEMPTED)


@pytest.mark.parametrize(("code", "told"), [(3, (3, 0)), (139, (0, 11))])
def test_pod_that_fails_ends_the_job_with_what_its_container_said(code, told):
    world = World()
    world.run()
    world.put(1, node="n1", phase="Failed", code=code)
    world.settle()
    assert world.calls() == ["fail"]
    world.book.drop_pod("uid-w0")
    world.book.note_ended(JobId(7), is_there=True)
    (ended,) = world.settle()
    assert (ended.outcome, ended.exit_code, ended.signal) == (Outcome.FAILED, *told)


def test_pod_that_is_taken_away_has_the_whole_gang_start_again():
    world = World()
    world.run()
    world.put(1, node="n1", phase="Running", leaving=True)
    world.settle()
    assert world.calls() == ["park"]
    for index in (0, 1):
        world.book.drop_pod(f"uid-w{index}")
    world.book.note_ended(JobId(7), is_there=True)
    (stopped,) = world.settle()
    assert (stopped.cause, stopped.reason) == (StopCause.MIGRATED, TAKEN_AWAY)


def test_job_whose_job_its_user_deleted_is_cancelled():
    world = World()
    world.run()
    for index in (0, 1):
        world.book.drop_pod(f"uid-w{index}")
    world.settle()
    world.book.note_ended(JobId(7), is_there=False)
    assert world.settle() == [JobFinished(world.now_ms, 7, 1, Outcome.CANCELLED)]


def test_start_whose_pods_are_not_made_in_time_has_failed():
    world = World()
    world.calls()
    assert world.settle(1_001) == []
    assert world.calls() == ["park"]
    world.book.note_ended(JobId(7), is_there=True)
    (stopped,) = world.settle(1_002)
    assert (stopped.cause, stopped.reason) == (StopCause.START_FAILED, NOT_MADE)


# --- manifests --------------------------------------------------------------------------------------------------------


def container(own):
    (only,) = own.manifest["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize(
    ("name", "expected"), [("My Gang!", "my-gang-7"), ("", "job-7"), ("x" * 99, "x" * 38 + "-7"), ("a_b", "a-b-7")]
)
def test_name_of_a_job_is_one_that_kubernetes_takes(name, expected):
    assert name_of(make_spec(name=name)) == expected


def test_grace_of_the_pods_is_that_of_the_checkpoint():
    own = make_own(make_spec(checkpoint=SAVES))
    assert own.manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 2


def test_what_is_ours_in_the_environment_is_not_the_users_to_change():
    run = RunSpec(script="x", image="i", environment=(("RANK", "5"), ("CLEARWAY_JOB_ID", "1"), ("MINE", "$(A) $$")))
    values = {one["name"]: one.get("value") for one in container(make_own(run=run))["env"]}
    assert values["RANK"] is None
    assert values["CLEARWAY_JOB_ID"] == "7"
    assert values["MINE"] == "$$(A) $$$$"


def test_shared_folder_is_mounted_where_it_is_and_work_goes_on_where_it_was_submitted():
    run = RunSpec(script="x", image="i", workdir="/shared/ada/project")
    own = make_own(run=run, shared=SharedFolder(path="/shared", claim="files"))
    assert container(own)["volumeMounts"] == [{"name": "shared", "mountPath": "/shared"}]
    assert container(own)["workingDir"] == "/shared/ada/project"
    (volume,) = own.manifest["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "files"}
    outside = make_own(run=RunSpec(script="x", image="i", workdir="/shared2"), shared=SharedFolder(path="/shared"))
    assert "workingDir" not in container(outside)


def test_manifest_is_json():
    assert json.loads(json.dumps(make_own().manifest)) == make_own().manifest


@pytest.mark.parametrize(
    ("spec", "run", "words"),
    [
        (make_spec(), RunSpec(script="x"), "expected `image`"),
        (make_spec(request=Request(devices=1, share_milli=500)), RUN, "whole GPUs"),
        (make_spec(), RunSpec(script="x" * 100_001, image="i"), "at most 100000 bytes"),
        (make_spec(), RunSpec(script="x", image="i", launch=LaunchPlace.FIRST_REPLICA), "expected one node"),
    ],
    ids=["image", "share", "script", "batch"],
)
def test_what_cannot_run_as_pods_is_refused_in_words(spec, run, words):
    assert words in find_fault(spec, run)
    assert find_fault(make_spec(), RUN) == ""


# --- the first process ------------------------------------------------------------------------------------------------


def start(tmp_path, script, *args):
    """The first process, in a process-id space of its own as in a container."""
    words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/sh", "-c", FIRST_PROCESS, "clearway"]
    environment = {"PATH": "/usr/bin:/bin", "CLEARWAY_JOB_DIR": f"{tmp_path}/a/b", "TMPDIR": str(tmp_path)}
    return subprocess.Popen([*words, script, *args], env=environment, stdout=subprocess.PIPE, text=True)


def can_unshare():
    return subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("script", "said", "code"),
    [
        ('echo "$1 $2"\nexit 7\n', "a b c\n", 7),
        ("#!/bin/sh\necho file $2\n", "file c\n", 0),
        ("kill -9 $$\n", "", 137),
    ],
    ids=["text", "interpreter", "killed"],
)
def test_script_runs_with_its_words_and_ends_with_its_code(tmp_path, script, said, code):
    if not can_unshare():
        pytest.skip("needs the right to make process-id spaces")
    process = start(tmp_path, script, "a b", "c")
    assert process.communicate(timeout=30)[0] == said
    assert process.returncode == code
    assert (tmp_path / "a" / "b").is_dir()


def test_term_reaches_a_program_of_the_script_which_saves_and_nothing_comes_after_it(tmp_path):
    if not can_unshare():
        pytest.skip("needs the right to make process-id spaces")
    program = f"sh -c 'trap \"echo saved >{tmp_path}/work; exit 0\" TERM; echo ready; while :; do sleep 0.05; done'"
    process = start(tmp_path, f"{program}\necho never\n")
    assert process.stdout.readline() == "ready\n"
    first = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    subprocess.run(["kill", f"-{int(signal.SIGTERM)}", first.strip()], check=True)
    assert process.communicate(timeout=30)[0] == ""
    assert process.returncode == 143
    assert (tmp_path / "work").read_text() == "saved\n"
