"""Jobs of users that are elastic: the engine chooses how many pods they have, and their Job makes as many."""

import pytest

from clearway.adapters.kubernetes.book import NOT_MADE, Book
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.gangs import elastic_range, gang_size
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.parse_company import REQUIRED
from clearway.adapters.kubernetes.runs import Bind, Evict, Refuse, Scale, Unpark
from clearway.model.events import JobResized, JobStarted, JobStopped
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import Elastic, Request, StopCause
from support.kubernetes import JOB, make_job_object, make_node, make_pod

CONFIG = KubernetesConfig()
N1 = NodeName("n1")


def put(book, *names, node="", phase="Pending", said="2-8"):
    for name in names:
        pod = make_pod(
            name, owner=JOB, index=int(name[1]), node=node, phase=phase, annotations={"clearway.io/elastic": said}
        )
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = name[1]
        book.put_pod(parse_pod(pod, CONFIG))


@pytest.fixture
def book():
    """With a job of four pods that is accepted as job 1."""
    found = Book(CONFIG)
    found.nodes.put(parse_node(make_node("n1"), CONFIG))
    found.settle(1)
    put(found, "w0", "w1", "w2", "w3")
    for source in found.take_wanted():
        found.put_size(source, gang_size(make_job_object(4)))
    found.settle(1)
    (arrival,) = found.take_arrivals()
    assert (arrival.job.replicas, arrival.job.elastic) == (4, Elastic(replicas_min=2, replicas_max=8))
    found.accept(1, arrival, JobId(1))
    found.settle(1)
    return found


def start(book, *devices):
    book.start(1, JobId(1), 1, [(N1, (device,)) for device in devices], book.jobs[JobId(1)].key)
    return act(book)


def act(book, now_ms=1):
    book.settle(now_ms)
    return [show(one) for one in book.take_actions()]


def show(action):
    match action:
        case Bind():
            return f"bind {action.pod.name} of {dict(action.annotations)['clearway.io/world-size']}"
        case Scale():
            return "park" if action.is_parked else f"scale {action.pods}"
        case Evict():
            return f"evict {action.pod.name}"
    return type(action).__name__.lower()


def test_job_is_made_smaller_where_there_is_less_room_and_those_pods_are_bound_that_stay(book):
    assert start(book, 0, 1) == ["scale 2", "bind w0 of 2", "bind w1 of 2"]


def test_job_is_made_larger_and_nothing_is_bound_before_all_of_its_pods_are_there(book):
    assert start(book, 0, 1, 2, 3, 4) == ["scale 5"]
    put(book, "w4")
    assert act(book) == [f"bind w{index} of 5" for index in range(5)]


def run(book, *names):
    start(book, *range(len(names)))
    put(book, *names, node="n1", phase="Running")
    assert [type(one) for one in book.settle(2)] == [JobStarted]
    book.take_actions()


def test_resized_job_lets_its_pods_go_uncounted_and_goes_on_with_as_many_as_it_is_given(book):
    run(book, "w0", "w1", "w2", "w3")
    book.resize(3, JobId(1), 2, [(N1, (0,)), (N1, (1,))])
    assert act(book, 3) == ["park"]
    for index in range(4):
        book.drop_pod(f"uid-w{index}")
    assert [type(one) for one in book.settle(4)] == [JobResized]
    assert [show(one) for one in book.take_actions()] == ["scale 2"]
    assert not book.settle(5)
    put(book, "w0", "w1")
    assert act(book, 6) == ["bind w0 of 2", "bind w1 of 2"]


def test_resized_job_whose_pods_do_not_come_is_stopped(book):
    run(book, "w0", "w1", "w2", "w3")
    book.resize(3, JobId(1), 2, [(N1, (0,)), (N1, (1,))])
    for index in range(4):
        book.drop_pod(f"uid-w{index}")
    book.settle(4)
    late = book.settle(5 + CONFIG.replace_ms)
    assert [(one.cause, one.reason) for one in late if isinstance(one, JobStopped)] == [
        (StopCause.START_FAILED, NOT_MADE)
    ]


def test_job_that_is_stopped_while_it_is_resized_makes_its_pods_again_and_waits(book):
    run(book, "w0", "w1", "w2", "w3")
    book.resize(3, JobId(1), 2, [(N1, (0,)), (N1, (1,))])
    book.stop(3, JobId(1), 2, StopCause.PREEMPTED)
    act(book, 3)
    for index in range(4):
        book.drop_pod(f"uid-w{index}")
    events = book.settle(4)
    assert [one.cause for one in events if isinstance(one, JobStopped)] == [StopCause.PREEMPTED]
    assert [show(one) for one in book.take_actions()] == ["scale 4"]


def test_job_that_was_being_resized_when_clearway_was_killed_makes_its_pods_again():
    book = Book(CONFIG)
    book.nodes.put(parse_node(make_node("n1"), CONFIG))
    book.adopt(1, JobId(1), 2, [(N1, (0,))], "vision/job/a1e3#uid-w0", is_started=True, is_moving=True)
    assert book.take_actions() == (Unpark("vision", "a1e3"),)


@pytest.mark.parametrize("said", ["8", "8-2", "0-3", "2-", "a-b", "1-" + "9" * 5_000])
def test_range_that_is_none_is_refused(said):
    book = Book(CONFIG)
    put(book, "w0", said=said)
    with pytest.raises(UnreadableError, match="expected a range such as 2-8"):
        elastic_range(next(iter(book.pods.values())))


def test_range_is_for_jobs_alone():
    with pytest.raises(UnreadableError, match="indexed Job"):
        elastic_range(parse_pod(make_pod(annotations={"clearway.io/elastic": "1-2"}), CONFIG))


def test_range_without_the_number_of_pods_that_the_job_has_is_refused(book):
    other = Book(CONFIG)
    put(other, "w0", said="2-8")
    for source in other.take_wanted():
        other.put_size(source, 1)
    other.settle(1)
    assert not other.take_arrivals()
    assert any(isinstance(one, Refuse) and "with 1 pods" in one.message for one in other.take_actions())


def test_pods_of_a_job_that_was_resized_are_counted_once_among_their_neighbours(book):
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    other = make_pod("o", affinity={"podAntiAffinity": {REQUIRED: [term]}})
    other["spec"]["schedulerName"] = "somebody"
    book.put_pod(parse_pod(other, CONFIG))
    book.settle(1)
    request = Request(devices=1, crowds=("pods vision/app=a",))
    book.start(1, JobId(1), 1, [(N1, (device,)) for device in range(4)], book.jobs[JobId(1)].key, request=request)
    for name in ("w0", "w1", "w2", "w3"):
        pod = make_pod(name, owner=JOB, index=int(name[1]), node="n1", phase="Running", labels={"app": "a"})
        pod["metadata"]["annotations"]["clearway.io/elastic"] = "2-8"
        book.put_pod(parse_pod(pod, CONFIG))
    book.settle(2)
    assert book.nodes.entries["n1"].told.crowds == ()
    book.resize(3, JobId(1), 2, [(N1, (device,)) for device in range(2)])
    for name in ("w0", "w1", "w2", "w3"):
        book.drop_pod(f"uid-{name}")
    book.settle(4)
    for name in ("w4", "w5"):
        pod = make_pod(name, owner=JOB, index=int(name[1]) - 4, labels={"app": "a"})
        pod["metadata"]["annotations"]["clearway.io/elastic"] = "2-8"
        book.put_pod(parse_pod(pod, CONFIG))
    book.settle(5)
    book.settle(6)
    assert book.nodes.entries["n1"].told.crowds == ()
    assert len(book.nodes.society.on_node["n1"]) == 1
