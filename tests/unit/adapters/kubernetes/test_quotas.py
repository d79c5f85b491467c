"""ResourceQuotas: how many pods may still be made, and what becomes of jobs whose pods may not."""

from dataclasses import replace

import pytest

from clearway.adapters.kubernetes.allowing import LOOK_MS, REFUSED, RETRY_MS
from clearway.adapters.kubernetes.backend import KubernetesBackend
from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.config import KubernetesConfig, SharedFolder
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.manifests import make_own_job
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.quotas import MANY, Ask, Quotas, ask_of_template, parse_quota
from clearway.adapters.kubernetes.runs import End, Ending, Inquire, Launch
from clearway.model.events import JobBounded, JobHeld, JobReleased, JobStopped
from clearway.model.ids import JobId, TenantName
from clearway.model.jobs import Elastic, JobSpec, Request, StopCause
from clearway.model.plan import ReasonCode
from clearway.model.runs import RunSpec
from clearway.ports.backend import BoundingBackend
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
GPU = "requests.nvidia.com/gpu"
ASK = Ask((("cpu", 2_000), ("memory", 1 << 30), ("nvidia.com/gpu", 2)), (("memory", 1 << 30), ("nvidia.com/gpu", 2)))


def make_quota(hard, used=None, *, name="q", namespace="vision", **spec):
    return {
        "metadata": {"uid": f"uid-{name}", "name": name, "namespace": namespace},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}},
    }


@pytest.mark.parametrize(
    ("hard", "used", "room"),
    [
        ({GPU: "8"}, {GPU: "3"}, 2),
        ({"pods": "5"}, {"pods": "1"}, 4),
        ({"count/pods": "5"}, {}, 5),
        ({"cpu": "5"}, {"cpu": "500m"}, 2),
        ({"requests.cpu": "5"}, {"requests.cpu": "5"}, 0),
        ({"limits.memory": "3Gi"}, {}, 3),
        ({"limits.cpu": "1"}, {}, MANY),  # it has no such limit, which is for admission to judge
        ({GPU: "8", "pods": "1"}, {GPU: "9"}, 0),
        ({"services": "0", "requests.example.com/nic": "0", "count/jobs.batch": "0"}, {}, MANY),
    ],
)
def test_room_is_what_the_scarcest_resource_leaves(hard, used, room):
    assert parse_quota(make_quota(hard, used)).find_room(ASK)[0] == room


@pytest.mark.parametrize(
    ("spec", "regards"),
    [
        ({"scopes": ["NotTerminating"]}, True),
        ({"scopes": ["Terminating"]}, False),
        ({"scopes": ["NotBestEffort"]}, True),
        ({"scopes": ["BestEffort"]}, False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
        (("In", ["high"]), True),
        (("NotIn", ["high"]), False),
        (("Exists", []), True),
        (("DoesNotExist", []), False),
    ],
)
def test_scopes_say_which_pods_count(spec, regards):
    if isinstance(spec, tuple):
        one = {"scopeName": "PriorityClass", "operator": spec[0], "values": spec[1]}
        spec = {"scopeSelector": {"matchExpressions": [one]}}
    assert parse_quota(make_quota({"pods": "1"}, **spec)).regards(replace(ASK, priority_class="high")) is regards


def test_the_tightest_quota_of_the_namespace_is_named_with_what_is_used():
    quotas = Quotas()
    for one in (
        make_quota({GPU: "9"}, name="wide"),
        make_quota({GPU: "4", "cpu": "1500m"}, {GPU: "1"}, name="tight"),
        make_quota({GPU: "0"}, namespace="other"),
    ):
        quotas.put(one, is_gone=False)
    ask = Ask((("nvidia.com/gpu", 2),))
    assert quotas.find_room("vision", ask) == (1, f"ResourceQuota vision/tight ({GPU} 1 of 4)")
    assert quotas.describe_all() == {
        "other": (f"ResourceQuota q: {GPU} 0 of 0",),
        "vision": (f"ResourceQuota tight: cpu 0 of 1.5, {GPU} 1 of 4", f"ResourceQuota wide: {GPU} 0 of 9"),
    }
    quotas.put(make_quota({}, name="tight"), is_gone=True)
    assert quotas.find_room("vision", ask)[0] == 4
    assert quotas.find_room("nowhere", ask) == (MANY, "")


def test_object_that_is_no_quota_is_left_out():
    with pytest.raises(UnreadableError, match="expected one as the API describes it"):
        parse_quota({"metadata": {"name": "q"}})
    with pytest.raises(UnreadableError):
        parse_quota(make_quota({"pods": "many"}))


# --- jobs -------------------------------------------------------------------------------------------------------------


class World:
    """A book with one node of 8 GPUs; job 7 is submitted, asks 4 replicas of one GPU, and may be elastic."""

    def __init__(self, elastic=None):
        request = Request(devices=1)
        spec = JobSpec(id=JobId(7), tenant=TenantName("vision"), request=request, replicas=4, elastic=elastic)
        self.own = make_own_job(spec, RunSpec(script="x", image="i"), "nvidia.com/gpu", "clearway", SharedFolder())
        self.book = Book(CONFIG)
        self.book.nodes.put(parse_node(make_node("n1", gpus=8), CONFIG))
        self.settle(0)

    def quota(self, hard, used=0):
        self.book.put_other("resourcequotas", make_quota({GPU: str(hard)}, {GPU: str(used)}))

    def start(self, generation=1, replicas=4):
        places = [("n1", (device,)) for device in range(replicas)]
        self.book.start(0, JobId(7), generation, places, "", None, self.own)

    def settle(self, now_ms):
        events = self.book.settle(now_ms)
        return [event for event in events if not type(event).__name__.startswith(("Node", "Device"))]

    def run(self, replicas):
        for index in range(2 * replicas):
            is_bound = index >= replicas
            pod = make_pod(
                f"w{index % replicas}",
                owner=("batch/v1", "Job", "job-7", "a1e3"),
                index=index % replicas,
                labels={"clearway.io/job": "7"},
                phase="Running" if is_bound else "Pending",
                node="n1" if is_bound else "",
            )
            self.book.put_pod(parse_pod(pod, CONFIG))
            if index == replicas - 1:
                self.settle(0)


def test_job_whose_pods_a_quota_refuses_asks_for_none_waits_and_says_why():
    world = World()
    world.quota(8, used=5)
    world.start()
    stopped, held = world.settle(1)
    words = f"{REFUSED}ResourceQuota vision/q ({GPU} 5 of 8) lets 3 more be made, found 4 that it needs"
    assert (stopped.cause, stopped.reason) == (StopCause.MIGRATED, words)
    assert isinstance(stopped, JobStopped)
    assert held == JobHeld(0, JobId(7), words, ReasonCode.QUOTA)
    assert world.book.take_actions() == ()


def test_job_tries_again_when_the_quota_lets_it_and_not_before():
    world = World()
    world.quota(0)
    world.start()
    world.settle(1)
    world.quota(3)
    assert [*world.settle(2), *world.settle(RETRY_MS + 1), *world.settle(2 * RETRY_MS + 1)] == []
    world.quota(4)
    (released,) = world.settle(2 * RETRY_MS + 2)
    assert isinstance(released, JobReleased)


def test_elastic_job_starts_with_as_many_as_may_be_made():
    world = World(Elastic(replicas_min=2, replicas_max=8))
    world.quota(3)
    world.start()
    stopped, bounded = world.settle(1)
    assert (type(stopped), bounded) == (JobStopped, JobBounded(0, JobId(7), 3))
    world.start(2, replicas=3)
    assert [type(one) for one in world.book.take_actions()] == [Launch]


def test_elastic_job_that_runs_is_bounded_to_what_it_has_and_what_may_be_made():
    world = World(Elastic(replicas_min=2, replicas_max=8))
    world.start()
    world.run(4)
    world.settle(1)
    assert world.settle(2) == []
    world.quota(6, used=4)
    assert world.settle(3) == [JobBounded(3, JobId(7), 6)]
    world.quota(6, used=6)
    assert world.settle(4) == [JobBounded(4, JobId(7), 4)]
    world.quota(100, used=6)
    assert world.settle(5) == [JobBounded(5, JobId(7), 8)]
    assert world.settle(6) == []


def test_what_keeps_pods_from_being_made_is_looked_up_and_is_why_the_job_waits():
    world = World()
    world.start()
    world.settle(LOOK_MS - 1)
    assert [type(one) for one in world.book.take_actions()] == [Launch]
    world.settle(LOOK_MS)
    (inquire,) = world.book.take_actions()
    assert inquire == Inquire(JobId(7), 1, "vision", "job-7", 0)
    world.book.note_refusal(LOOK_MS + 1, JobId(7), 1, 'pods "x" is forbidden')
    assert world.settle(LOOK_MS + 2) == []
    assert [one.ending for one in world.book.take_actions() if isinstance(one, End)] == [Ending.PARK]
    world.book.note_ended(JobId(7), is_there=True)
    stopped, held = world.settle(LOOK_MS + 3)
    assert (stopped.reason, held.reason) == (REFUSED + 'pods "x" is forbidden',) * 2
    assert held.code is ReasonCode.QUOTA
    assert [type(one) for one in world.settle(LOOK_MS + RETRY_MS + 4)] == [JobReleased]


def test_refusal_of_a_run_whose_pods_have_come_by_now_is_nothing():
    world = World()
    world.start()
    world.run(4)
    world.settle(1)
    world.book.note_refusal(2, JobId(7), 1, "late")
    assert world.settle(3) == []


def test_job_that_was_refused_in_an_earlier_process_tries_anew():
    world = World()
    world.book.release_own(1, JobId(7), REFUSED + "a quota")
    world.book.release_own(1, JobId(8), "held by its user")
    assert world.settle(2) == [JobReleased(1, JobId(7))]


def test_pods_of_a_submitted_job_ask_what_their_template_says():
    ask = ask_of_template(World().own.manifest["spec"]["template"])
    assert ask == Ask((("nvidia.com/gpu", 1),), (("nvidia.com/gpu", 1),))
    assert ask.is_best_effort


def test_tenants_are_shown_the_quotas_of_their_namespaces():
    backend = KubernetesBackend(CONFIG)
    assert isinstance(backend, BoundingBackend)
    for namespace in ("vision", "default"):
        backend.book.put_other("resourcequotas", make_quota({"pods": "4"}, namespace=namespace))
    assert backend.bounds() == {"root": ("ResourceQuota q: pods 0 of 4",), "vision": ("ResourceQuota q: pods 0 of 4",)}


def test_job_whose_own_job_may_not_be_made_waits_with_the_words_and_tries_again():
    world = World()
    world.start()
    world.book.refuse_own(1, JobId(7), "exceeded quota: count/jobs.batch", is_for_now=True)
    stopped, held = world.settle(2)
    words = f"{REFUSED}exceeded quota: count/jobs.batch"
    assert (stopped.cause, held) == (StopCause.MIGRATED, JobHeld(1, JobId(7), words, ReasonCode.QUOTA))
    assert [type(one) for one in world.settle(RETRY_MS + 2)] == [JobReleased]


def test_job_whose_own_job_is_not_valid_is_not_tried_again():
    world = World()
    world.start()
    world.book.refuse_own(1, JobId(7), "422 Invalid")
    assert [one.cause for one in world.settle(2)] == [StopCause.UNSTARTABLE]
    assert world.settle(10 * RETRY_MS) == []


def test_quota_that_changes_is_no_news_for_a_job_that_something_else_refuses():
    world = World()
    world.start()
    world.book.refuse_own(1, JobId(7), "a policy says no", is_for_now=True)
    world.settle(2)
    world.quota(8)
    assert world.settle(3) == []
    assert [type(one) for one in world.settle(RETRY_MS + 2)] == [JobReleased]
