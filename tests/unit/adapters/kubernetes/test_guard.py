"""A mistake of Clearway's own about one pod stops nobody else's pods, and leaves nothing half-changed."""

import logging

import pytest

from clearway.adapters.kubernetes import backend as backends
from clearway.adapters.kubernetes import book as books
from clearway.adapters.kubernetes import nodes, placing, recovering, sightings
from clearway.adapters.kubernetes.backend import KubernetesBackend
from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.client import Change
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.guard import BROKEN
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.adapters.kubernetes.runs import Bind, Refuse
from clearway.model.events import JobCancelled, JobFinished, JobStopped, NodeAdded
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import Outcome, StopCause
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
BAD = "bad"


def spoil(monkeypatch, module, name, is_bad, error=ZeroDivisionError):
    """From now on a function fails for what `is_bad` says of its arguments."""
    real = getattr(module, name)

    def fail(*args, **kwargs):
        if is_bad(*args, **kwargs):
            raise error("a mistake")
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, fail)


def has_bad(*args):
    return any(getattr(pod, "name", "") == BAD for arg in args for pod in (arg if isinstance(arg, list) else [arg]))


def put(book, name, **more):
    book.put_pod(parse_pod(make_pod(name, **more), CONFIG))


def said(book):
    return [(one.pod.name, one.message) for one in book.take_actions() if isinstance(one, Refuse)]


def accept_all(book):
    arrivals = book.take_arrivals()
    for number, arrival in enumerate(arrivals, start=1):
        book.accept(1, arrival, JobId(number))
    return [arrival.job.name for arrival in arrivals]


def tracebacks(caplog):
    return [record for record in caplog.records if record.exc_info]


@pytest.fixture
def book():
    found = Book(CONFIG)
    found.nodes.put(parse_node(make_node("n1", gpus=8), CONFIG))
    found.settle(1)
    return found


def test_pod_that_cannot_be_judged_is_refused_alone_and_logged_once_in_each_version(book, monkeypatch, caplog):
    with monkeypatch.context() as broken:
        spoil(broken, books, "make_arrival", lambda _now, _bundle, pods, *_: has_bad(pods))
        put(book, BAD)
        put(book, "good")
        book.settle(1)
        assert accept_all(book) == ["vision/good"]
        assert said(book) == [(BAD, BROKEN)]
        book.touch_all()
        book.settle(2)
        assert (said(book), len(tracebacks(caplog))) == ([], 1)
        put(book, BAD, labels={"kueue.x-k8s.io/queue-name": "night"})
        book.settle(3)
        assert len(tracebacks(caplog)) == 2
    book.touch_all()
    book.settle(4)
    assert accept_all(book) == []
    put(book, BAD)
    book.settle(5)
    assert accept_all(book) == ["vision/bad"]


def test_pod_whose_group_cannot_be_told_is_refused_and_looked_at_again_when_it_changes(book, monkeypatch):
    with monkeypatch.context() as broken:
        spoil(broken, sightings, "group_of", has_bad)
        put(book, BAD)
        put(book, "good")
        book.settle(1)
        assert (accept_all(book), said(book)) == (["vision/good"], [(BAD, BROKEN)])
    put(book, BAD, priority=1)
    book.settle(2)
    assert accept_all(book) == ["vision/bad"]


@pytest.mark.parametrize("function", ["binding_annotations", "real_name"])
def test_start_that_fails_by_a_mistake_leaves_nothing_on_the_node_and_blames_none(book, monkeypatch, function):
    put(book, BAD)
    book.settle(1)
    assert accept_all(book) == ["vision/bad"]
    book.take_actions()
    used = dict(book.nodes.entries["n1"].used)
    spoil(monkeypatch, placing, function, lambda *_: True)
    book.start(2, JobId(1), 1, [(NodeName("n1"), (0, 1))], "")
    events = book.settle(2)
    assert [one.cause for one in events if isinstance(one, JobStopped)] == [StopCause.MIGRATED]
    assert [one.job for one in events if isinstance(one, JobCancelled)] == [1]
    actions = book.take_actions()
    assert not [one for one in actions if isinstance(one, Bind)]
    assert [one.message for one in actions if isinstance(one, Refuse)] == [BROKEN]
    entry = book.nodes.entries["n1"]
    assert {name: amount for name, amount in entry.used.items() if amount} == used
    assert (entry.pods, entry.held, book.nodes.ours) == ({}, {}, {})
    assert (book.settle(3), book.take_arrivals()) == ([], ())


def test_demand_that_cannot_be_judged_is_admitted_nowhere_and_every_node_is_told(book, monkeypatch, caplog):
    put(book, BAD, nodeSelector={"zone": "a"})
    put(book, "good")
    spoil(monkeypatch, nodes, "find_lasting_mismatch", lambda demand, _: bool(demand.selector))
    book.settle(1)
    accept_all(book)
    book.nodes.put(parse_node(make_node("n2", gpus=8), CONFIG))
    (added,) = [one for one in book.settle(2) if isinstance(one, NodeAdded)]
    labels = [book.nodes.add_demand(book.pods[f"uid-{name}"].demand) for name in (BAD, "good")]
    assert [label in added.node.labels for label in labels] == [False, True]
    assert book.nodes.judge(book.pods["uid-bad"], book.nodes.entries["n2"]) == BROKEN
    assert len(tracebacks(caplog)) == 1


def test_mistake_in_taking_a_pod_in_leaves_the_watch_going(monkeypatch, caplog):
    backend = KubernetesBackend(CONFIG)
    spoil(monkeypatch, backends, "parse_pod", lambda data, *_: data["metadata"]["name"] == BAD)
    for _ in range(2):
        backend._take_pods([make_pod(BAD), make_pod("good")])
    backend._take_pod(Change("MODIFIED", make_pod(BAD), "7"))
    assert [pod.name for pod in backend.book.pods.values()] == ["good"]
    assert len(tracebacks(caplog)) == 1


def test_pod_whose_rules_about_neighbours_cannot_be_judged_holds_what_it_asks_and_goes_again(book, monkeypatch):
    spoil(monkeypatch, book.nodes.society, "note", has_bad)
    spoil(monkeypatch, book.nodes.society, "count", has_bad)
    before = dict(book.nodes.entries["n1"].used)
    put(book, BAD, nodeName="n1", gpus=2)
    assert book.nodes.entries["n1"].used["nvidia.com/gpu"] == before.get("nvidia.com/gpu", 0) + 2
    book.drop_pod("uid-bad")
    assert book.nodes.entries["n1"].used["nvidia.com/gpu"] == before.get("nvidia.com/gpu", 0)


def test_what_is_no_mistake_about_a_pod_goes_through(book, monkeypatch, caplog):
    caplog.set_level(logging.ERROR)
    spoil(monkeypatch, books, "make_arrival", lambda *_: True, KeyboardInterrupt)
    put(book, BAD)
    with pytest.raises(KeyboardInterrupt):
        book.settle(1)
    assert tracebacks(caplog) == []


def test_job_whose_pods_cannot_be_found_again_ends_and_all_others_are_adopted(book, monkeypatch):
    for name, device in ((BAD, 0), ("good", 1)):
        put(book, name, nodeName="n1", gpus=1)
        origin = next(iter(key for key, one in book.bundles.items() if f"uid-{name}" in one.members)) + "#x"
        with monkeypatch.context() as broken:
            spoil(broken, recovering, "real_name", lambda _, tried=name: tried == BAD)
            place = (NodeName("n1"), (device,))
            book.adopt(1, JobId(device + 1), 3, [place], origin, is_started=True)
    ends = [one for one in book.settle(1) if isinstance(one, JobFinished)]
    assert [(one.job, one.generation, one.outcome) for one in ends] == [(1, 3, Outcome.CANCELLED)]
    assert book.nodes.ours.keys() == {"uid-good"}
    assert book.nodes.entries["n1"].held == {2: [1]}
    assert list(book.jobs) == [2]


def test_waiting_job_whose_pods_cannot_be_found_again_is_taken_back_and_they_are_told(book, monkeypatch):
    put(book, BAD)
    put(book, "good")
    keys = {uid: key for key, one in book.bundles.items() for uid in one.members}
    real = book._bundle_for
    monkeypatch.setattr(book, "_bundle_for", lambda origin: 1 // 0 if BAD in origin else real(origin))
    for job, name in ((1, BAD), (2, "good")):
        book.restore(1, JobId(job), f"{keys[f'uid-{name}']}#x", 1)
    assert [one.job for one in book.settle(1) if isinstance(one, JobCancelled)] == [1]
    assert (list(book.jobs), said(book)) == ([2], [(BAD, BROKEN)])


def test_node_that_cannot_be_scored_is_liked_by_nobody_and_is_told_all_the_same(book, monkeypatch, caplog):
    wish = {"weight": 5, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    put(book, BAD, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}})
    spoil(monkeypatch, nodes, "score_node", lambda *_: True)
    book.settle(1)
    book.nodes.put(parse_node(make_node("n2", gpus=8), CONFIG))
    added = [one for one in book.settle(2) if isinstance(one, NodeAdded)]
    book.settle(3)
    assert [one.node.name for one in added] == ["n2"]
    assert [value for key, value in added[0].node.labels if key.startswith(nodes.LIKING_PREFIX)] == ["0"]
    assert len(tracebacks(caplog)) == 1


def test_pod_that_cannot_be_read_is_told_so_if_it_waits_for_us():
    backend = KubernetesBackend(CONFIG)
    for name, more in (("waits", {}), ("theirs", {"schedulerName": "other"}), ("lies", {"nodeName": "n1"})):
        pod = make_pod(name)
        pod["spec"] |= {"tolerations": "none", **more}
        backend._take_pod(Change("ADDED", pod, "7"))
    ((name, message),) = said(backend.book)
    assert name == "waits"
    assert message.startswith("pod 'waits': expected an object as the API describes it, found ")
