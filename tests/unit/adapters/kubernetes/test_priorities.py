"""PriorityClasses: the priority of pods and gangs that only name one, and which class pods of submitted jobs name."""

import pytest

from clearway.adapters.kubernetes.backend import KubernetesBackend
from clearway.adapters.kubernetes.config import SharedFolder
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.gangs import Said, said_by
from clearway.adapters.kubernetes.intake import compose_message
from clearway.adapters.kubernetes.manifests import make_own_job
from clearway.adapters.kubernetes.priorities import (
    PriorityClass,
    PriorityClasses,
    Rank,
    parse_priority_class,
)
from clearway.adapters.kubernetes.quotas import Quotas, ask_of_template
from clearway.adapters.kubernetes.runs import Refuse
from clearway.adapters.kubernetes.watching import OTHERS
from clearway.model.ids import JobId
from clearway.model.jobs import JobSpec, Request
from clearway.model.plan import Explanation, ReasonCode, Rejection
from clearway.model.runs import RunSpec
from support.kube_book import CONFIG, World
from support.kubernetes import JOB, make_job_object

KIND = "priorityclasses"
GROUP = {"scheduling.k8s.io/group-name": "g"}


def make_class(name, value, **more):
    """As the API server of Kubernetes 1.36 sends it."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "9", "generation": 1}
    return {"metadata": metadata, "value": value, "preemptionPolicy": "PreemptLowerPriority", **more}


def make_classes(*classes):
    found = PriorityClasses()
    for data in classes:
        found.put(data, is_gone=False)
    return found


SYSTEM = make_class("system-cluster-critical", 2_000_000_000)
"""Of every cluster."""


def make_group(**spec):
    """Volcano's PodGroup of two pods."""
    return {"kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 2, **spec}}


def bare(**more):
    """What a pod says that the API server's plug-in for priorities has not seen."""
    return {"priority": None, "priorityClassName": "", "preemptionPolicy": None, **more}


def rank_of(job):
    return job.priority, job.preempts


# --- classes ----------------------------------------------------------------------------------------------------------


def test_class_says_its_value_its_policy_and_whether_it_is_the_default():
    data = make_class("gentle", -5, globalDefault=True, preemptionPolicy="Never", description="for nights")
    assert parse_priority_class(data) == PriorityClass("gentle", -5, is_default=True, preempts=False)
    assert parse_priority_class(make_class("urgent", 1_000)) == PriorityClass("urgent", 1_000)


@pytest.mark.parametrize("data", [{}, {"metadata": None, "value": 1}, make_class("x", "many"), make_class("x", None)])
def test_class_that_is_none_is_unreadable(data):
    with pytest.raises(UnreadableError, match="PriorityClass"):
        parse_priority_class(data)


def test_classes_are_watched():
    assert "/apis/scheduling.k8s.io/v1/priorityclasses" in OTHERS


# --- pods -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "rank"),
    [
        ({"priorityClassName": "urgent"}, (1_000, True)),
        ({"priorityClassName": "gentle"}, (50, False)),
        ({"priorityClassName": "urgent", "preemptionPolicy": "Never"}, (1_000, False)),
        ({}, (10, True)),
        ({"priority": 7, "priorityClassName": "urgent"}, (7, True)),
        ({"priority": 0}, (0, True)),
    ],
)
def test_pod_has_the_value_of_its_class_unless_the_api_server_wrote_one(said, rank):
    world = World(n1=8)
    gentle = make_class("gentle", 50, preemptionPolicy="Never")
    for data in (SYSTEM, make_class("urgent", 1_000), gentle, make_class("usual", 10, globalDefault=True)):
        world.book.put_other(KIND, data)
    world.put("p", **bare(**said))
    assert [rank_of(job) for job in world.accept()] == [rank]


def test_pod_that_names_no_class_has_none_where_none_is_the_default():
    world = World(n1=8)
    world.book.put_other(KIND, SYSTEM)
    world.put("p", **bare())
    assert [rank_of(job) for job in world.accept()] == [(0, True)]


def test_of_two_default_classes_the_lower_counts():
    classes = make_classes(make_class("b", 20, globalDefault=True), make_class("a", 30, globalDefault=True))
    world = World()
    world.put("p", **bare())
    assert classes.find_rank(list(world.book.pods.values()), Said()) == Rank(20, name="b")


def test_pod_whose_class_comes_later_waits_for_it_and_is_told():
    world = World(n1=8)
    world.book.put_other(KIND, SYSTEM)
    world.put("p", **bare(priorityClassName="urgent"))
    assert world.accept() == []
    (told,) = world.book.take_actions()
    assert isinstance(told, Refuse)
    assert told.message == "no PriorityClass with name urgent was found"
    world.book.put_other(KIND, make_class("urgent", 1_000))
    assert [rank_of(job) for job in world.accept()] == [(1_000, True)]


def test_job_keeps_the_priority_with_which_it_was_submitted_when_its_class_goes_or_comes_again():
    world = World(n1=8)
    urgent = make_class("urgent", 1_000)
    for data in (SYSTEM, urgent):
        world.book.put_other(KIND, data)
    world.put("p", **bare(priorityClassName="urgent"))
    assert [rank_of(job) for job in world.accept()] == [(1_000, True)]
    world.book.put_other(KIND, urgent, is_gone=True)
    world.book.put_other(KIND, make_class("urgent", 1))
    assert world.accept() == []
    assert world.book.settle(world.now_ms) == []
    assert world.calls() == []


def test_where_classes_may_not_be_read_pods_that_name_one_are_scheduled_all_the_same():
    world = World(n1=8)
    world.put("p", **bare(priorityClassName="urgent"))
    assert [rank_of(job) for job in world.accept()] == [(0, True)]


def test_gang_has_the_highest_of_its_pods():
    world = World(n1=8)
    for data in (make_class("urgent", 1_000), make_class("usual", 10)):
        world.book.put_other(KIND, data)
    for index, name in enumerate(("usual", "urgent")):
        world.put(f"w{index}", owner=JOB, index=index, **bare(priorityClassName=name))
    world.answer_sizes(make_job_object(2))
    assert [rank_of(job) for job in world.accept()] == [(1_000, True)]


# --- gangs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (make_group(priorityClassName="urgent"), Said("", "urgent")),
        (make_group(priorityClassName="urgent", priority=1_000, queue="team"), Said("team", "urgent", 1_000)),
        (make_group(priorityClassName=None, priority="many"), Said()),
        (
            {"kind": "PyTorchJob", "spec": {"runPolicy": {"schedulingPolicy": {"priorityClass": "urgent"}}}},
            Said("", "urgent"),
        ),
        ({"kind": "PyTorchJob", "spec": {"runPolicy": None}}, Said()),
        ({"kind": "RayCluster", "metadata": {"labels": {"ray.io/priority-class-name": "urgent"}}}, Said("", "urgent")),
        ({"kind": "Job", "spec": {"priorityClassName": "no such field"}}, Said()),
    ],
)
def test_class_that_an_object_names_for_its_gang(data, said):
    assert said_by(data) == said


@pytest.mark.parametrize(
    ("spec", "policy", "rank"),
    [
        ({"priorityClassName": "urgent"}, None, (1_000, True)),
        ({"priorityClassName": "urgent"}, "Never", (1_000, False)),
        ({"priorityClassName": "gentle"}, None, (50, False)),
        ({"priorityClassName": "gone since", "priority": 70}, None, (70, True)),
        ({}, None, (500, True)),
    ],
)
def test_class_that_the_object_of_a_gang_names_stands_before_those_of_its_pods(spec, policy, rank):
    world = World(n1=8)
    for data in (make_class("urgent", 1_000), make_class("gentle", 50, preemptionPolicy="Never")):
        world.book.put_other(KIND, data)
    for index in range(2):
        world.put(f"w{index}", index=index, annotations=GROUP, priority=500, preemptionPolicy=policy)
    world.answer_sizes(make_group(**spec))
    assert [rank_of(job) for job in world.accept()] == [rank]


# --- submitted jobs ---------------------------------------------------------------------------------------------------


def make_own(classes, priority):
    spec = JobSpec(id=JobId(7), request=Request(devices=0), priority=priority)
    named = classes.find_name(priority)
    return make_own_job(spec, RunSpec(script="x", image="i"), "", "clearway", SharedFolder(), named)


@pytest.mark.parametrize(
    ("priority", "named"),
    [(1_000, "urgent"), (999, None), (0, None), (-5, "night"), (2_000_000_000, None), (50, "firm")],
)
def test_pods_of_a_submitted_job_name_the_class_of_exactly_its_priority(priority, named):
    gentle = make_class("a-gentle", 50, preemptionPolicy="Never")
    known = [make_class("urgent", 1_000), make_class("zz", 1_000), make_class("night", -5)]
    own = make_own(make_classes(SYSTEM, *known, gentle, make_class("firm", 50)), priority)
    assert own.manifest["spec"]["template"]["spec"].get("priorityClassName") == named
    assert own.unnamed_priority == (priority if named is None else 0)


def test_class_that_is_gone_is_named_no_more():
    classes = make_classes(SYSTEM, make_class("urgent", 1_000))
    classes.put(make_class("urgent", 1_000), is_gone=True)
    assert classes.find_name(1_000) == ""


def test_quota_of_a_class_counts_for_pods_of_submitted_jobs_that_name_it():
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}
    quota = {"hard": {"pods": "3"}, "scopeSelector": {"matchExpressions": [scope]}}
    quotas = Quotas()
    quotas.put({"metadata": {"name": "q", "namespace": "default"}, "spec": quota}, is_gone=False)
    classes = make_classes(make_class("urgent", 1_000))
    rooms = [
        quotas.find_room("default", ask_of_template(make_own(classes, priority).manifest["spec"]["template"]))[1]
        for priority in (1_000, 5)
    ]
    assert rooms == ["ResourceQuota default/q (pods 0 of 3)", ""]


def test_classes_that_are_listed_reach_the_book_of_the_backend():
    backend = KubernetesBackend(CONFIG)
    backend.book.put_other(KIND, make_class("urgent", 1_000))
    assert backend.book.classes.find_name(1_000) == "urgent"


# --- in words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rank", "words"),
    [(Rank(1_000, name="urgent"), "priority 1000 (class urgent)"), (Rank(7), "priority 7"), (Rank(), "")],
)
def test_rank_in_words(rank, words):
    assert rank.in_words() == words


def test_pod_that_others_come_before_is_told_its_own_priority():
    def told(code):
        return compose_message(
            "", Explanation(job=JobId(1), reasons=(Rejection(code=code, message="m"),)), "priority 7"
        )

    assert told(ReasonCode.PRIORITY).endswith("m. It has priority 7.")
    assert "It has" not in told(ReasonCode.RESOURCES)


def test_who_is_preempted_is_told_the_class_of_whom_it_leaves_for():
    world = World(n1=8)
    for data in (SYSTEM, make_class("urgent", 1_000)):
        world.book.put_other(KIND, data)
    for index in range(2):
        world.put(f"w{index}", index=index, annotations=GROUP, priority=0)
    world.answer_sizes(make_group(priorityClassName="urgent"))
    world.accept()
    pods = world.book.waiting(world.book.jobs[1])
    assert world.book.describe_rank(pods) == "priority 1000 (class urgent)"
    world.book.put_other(KIND, make_class("urgent", 1_000), is_gone=True)
    assert world.book.describe_rank(pods) == ""
