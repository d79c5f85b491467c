"""Disruption budgets: who counts in which, and what the engine is told of them."""

import pytest

from clearway.adapters.kubernetes.book import Book
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.disruptions import SEVERAL
from clearway.adapters.kubernetes.errors import UnreadableError
from clearway.adapters.kubernetes.parse import parse_node, parse_pod
from clearway.model.events import BudgetsChanged, JobFinished
from clearway.model.ids import JobId, NodeName
from support.kubernetes import make_node, make_pod

CONFIG = KubernetesConfig()
WEB = "disruption budget vision/web"


def make_budget(name="web", allowed=0, app="web", *, gone=(), observed=1, namespace="vision"):
    return {
        "metadata": {"uid": f"uid-{name}", "name": name, "namespace": namespace, "generation": 1},
        "spec": {"selector": None if app is None else {"matchLabels": {"app": app} if app else {}}},
        "status": {
            "disruptionsAllowed": allowed,
            "observedGeneration": observed,
            "disruptedPods": dict.fromkeys(gone, "2026-07-01T11:00:00Z"),
        },
    }


@pytest.fixture
def book():
    found = Book(CONFIG)
    found.nodes.put(parse_node(make_node("n1", gpus=8), CONFIG))
    found.settle(1)
    return found


def put(book, name, **more):
    book.put_pod(parse_pod(make_pod(name, **{"labels": {"app": "web"}, **more}), CONFIG))


def run(book, *names, phase="Running"):
    """Pods of these names, each a job that runs, numbered from 1."""
    for number, name in enumerate(names, start=1):
        put(book, name)
        book.settle(number)
        (arrival,) = book.take_arrivals()
        book.accept(number, arrival, JobId(number))
        book.start(number, JobId(number), 1, [(NodeName("n1"), (number,))], arrival.key)
        put(book, name, node="n1", phase=phase)


def budget(book, *args, is_gone=False, **more):
    book.put_other("poddisruptionbudgets", make_budget(*args, **more), is_gone=is_gone)


def told(book, now_ms=9):
    return [(one.budgets, one.jobs) for one in book.settle(now_ms) if isinstance(one, BudgetsChanged)]


def test_pods_that_run_count_in_the_budget_that_chooses_them_and_are_told_once(book):
    budget(book, allowed=1)
    run(book, "a", "b")
    put(book, "other", labels={"app": "db"}, node="n1", phase="Running")
    assert told(book) == [((), ((2, ((WEB, 1),)),))]
    assert book.disruptions._told == {WEB: 1}
    assert book.disruptions._told_jobs == {1: ((WEB, 1),), 2: ((WEB, 1),)}
    assert told(book) == []


def test_budget_that_comes_later_changes_or_goes_is_told(book):
    run(book, "a")
    assert told(book) == []
    budget(book, allowed=1)
    assert told(book) == [(((WEB, 1),), ((1, ((WEB, 1),)),))]
    budget(book, allowed=0)
    assert told(book) == [(((WEB, 0),), ())]
    budget(book, is_gone=True)
    assert told(book) == [(((WEB, None),), ((1, ()),))]
    assert told(book) == []


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({"app": ""}, ((WEB, 1),)),  # an empty selector chooses every pod of the namespace
        ({"app": None}, ()),
        ({"app": "db"}, ()),
        ({"namespace": "other"}, ()),
        ({"gone": ("a",)}, ()),
    ],
)
def test_who_counts(book, more, counts):
    run(book, "a")
    told(book)
    budget(book, **more)
    told(book)
    assert book.disruptions._told_jobs.get(1, ()) == counts


@pytest.mark.parametrize("state", [{"phase": "Pending"}, {"phase": "Running", "leaving": True}])
def test_pod_that_does_not_run_yet_or_is_told_to_go_counts_nowhere(book, state):
    budget(book, allowed=1)
    run(book, "a")
    told(book)
    put(book, "a", node="n1", **state)
    told(book)
    assert book.disruptions._told_jobs == {}


def test_pod_of_several_budgets_can_not_be_evicted_at_all(book):
    run(book, "a")
    budget(book, allowed=5)
    budget(book, "all", allowed=5, app="")
    told(book)
    assert book.disruptions._told_jobs == {1: ((SEVERAL, 1),)}
    assert book.disruptions._told[SEVERAL] == 0


def test_budget_whose_controller_has_not_seen_its_last_change_lets_nobody_go(book):
    budget(book, allowed=3, observed=0)
    assert told(book) == [(((WEB, 0),), ())]


def test_job_that_is_over_is_forgotten(book):
    budget(book, allowed=1)
    run(book, "a")
    told(book)
    put(book, "a", node="n1", phase="Succeeded")
    events = book.settle(10)
    assert [one.job for one in events if isinstance(one, JobFinished)] == [1]
    assert (book.disruptions._told_jobs, told(book)) == ({}, [])


def test_object_that_is_no_budget_is_left_out(book):
    with pytest.raises(UnreadableError, match="expected one as the API describes it"):
        book.put_other("poddisruptionbudgets", {"metadata": {"name": "x"}})
