"""More than one record holds: what nobody can refuse is cut before it is decided upon."""

from dataclasses import fields, replace

import pytest

from clearway.live.books import each_part
from clearway.live.writing import OF_NUMBERS, RECORD_CHARACTERS_MAX, REPORT_CHARACTERS, cut_reports
from clearway.model.cluster import LinkSpec, NodeSpec, QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.model.events import (
    Batch,
    BudgetsChanged,
    DeviceDown,
    JobFinished,
    JobStarted,
    JobStopped,
    LinksSet,
    NodeAdded,
    NodeChanged,
    NodeClosed,
    NodeDown,
    NodeDrained,
    NodeOpened,
    NodeUp,
    QueueSet,
    TenantSet,
)
from clearway.model.jobs import Outcome, StopCause
from clearway.ports.storage import StorageError
from clearway.ports.views import JobState
from clearway.wire.codec import Texts, dump_json, encode_event
from support.fake_backend import FakeBackend
from support.live import Plane, make_spec, make_submission
from support.worlds import make_cluster

STORE_CHARACTERS = 2 * RECORD_CHARACTERS_MAX
"""What a store takes of one record: reports and requests of a turn together."""

LONG = "x" * 50_000


def submit_patiently(plane, count, *, name=LONG):
    """So many jobs, one by one, as pods come."""
    one = replace(make_submission(make_spec(name=name)), is_patient=True)
    return [plane.control.submit(one) for _ in range(count)]


def make_plane(**options):
    plane = Plane(**options)
    plane.store.record_characters_max = STORE_CHARACTERS
    return plane


def test_more_pods_than_one_record_holds_are_taken_in_several_turns_and_none_is_forgotten():
    plane = make_plane(devices=2).start()
    answers = submit_patiently(plane, 100)
    plane.control.turn(0)
    assert [answer.result(0) for answer in answers] == [(job,) for job in range(1, 101)]
    assert not plane.control.problem
    assert sorted(plane.backend.runs) == [1, 2]
    assert plane.start().state(100) is JobState.PENDING, "a new control plane reads the same"


def test_pods_that_come_beside_a_request_are_cut_as_well():
    plane = make_plane(devices=2).start()
    answers = [*submit_patiently(plane, 100), plane.control.submit(make_submission(make_spec()))]
    plane.control.turn(0)
    assert [answer.result(0) for answer in answers] == [(job,) for job in range(1, 102)]


def test_a_pod_that_is_too_long_by_itself_is_refused_and_others_are_taken():
    plane = make_plane().start()
    before, long = submit_patiently(plane, 1), submit_patiently(plane, 1, name="x" * STORE_CHARACTERS)
    after = submit_patiently(plane, 1)
    plane.control.turn(0)
    with pytest.raises(InputError, match="nothing of this request was taken"):
        long[0].result(0)
    assert [before[0].result(0), after[0].result(0)] == [(1,), (2,)]


def test_where_the_storage_fails_between_two_parts_the_rest_is_refused_and_the_first_is_kept():
    plane = make_plane().start()
    answers = submit_patiently(plane, 100)
    append, calls = plane.store.append, []

    def fail_first(changes):
        calls.append(changes)
        if len(calls) == 1:
            raise StorageError("disk full")
        return append(changes)

    plane.store.append = fail_first
    plane.control.turn(0)
    refused = [answer for answer in answers if answer.done()]
    assert refused
    assert all(isinstance(answer.exception(0), StorageError) for answer in refused)
    plane.clock.set(plane.control.next_due_ms())
    plane.control.turn(plane.clock.now_ms())
    kept = [answer.result(0)[0] for answer in answers if answer not in refused]
    assert kept == list(range(1, len(kept) + 1))
    assert set(kept) == plane.store.rows.keys()


def make_labelled(name="n0", labels=400):
    return NodeSpec(name=name, labels=tuple((f"clearway.io/admits-{number:016}", "true") for number in range(labels)))


def test_nodes_of_a_large_cluster_are_told_in_several_records():
    nodes = [replace(node, labels=make_labelled().labels) for node in make_cluster(400, 1).nodes]
    plane = make_plane(backend=FakeBackend(nodes)).start()
    assert not plane.control.problem
    assert len(plane.control.cluster().nodes) == len(nodes)
    plane.submit(make_spec())
    assert plane.state(1) is JobState.RUNNING


def test_reports_of_a_cluster_that_changed_as_a_whole_are_decided_upon_in_parts_in_their_order():
    nodes = make_cluster(400, 1).nodes
    plane = make_plane(backend=FakeBackend(nodes)).start()
    changed = [NodeChanged(1, replace(node, labels=make_labelled().labels)) for node in nodes]
    plane.backend.observe = lambda _now_ms: [changed.pop(0) for _ in range(len(changed))]
    plane.control.turn(1)
    assert not plane.control.problem
    known = [event for record in plane.store.events for event in each_part(record) if isinstance(event, NodeChanged)]
    assert [event.node.name for event in known] == [node.name for node in nodes]
    assert sum(isinstance(record, Batch) for record in plane.store.events) > 2


def test_a_report_that_is_too_long_by_itself_is_kept_until_the_storage_takes_as_much_and_nothing_is_lost_meanwhile():
    plane = make_plane(devices=2).start()
    plane.submit(make_spec())
    (node,) = [replace(one.node, labels=(("k", "x" * STORE_CHARACTERS),)) for one in nodes_told(plane)]
    told = [NodeChanged(1, node), DeviceDown(1, node.name, 1, "gone")]
    plane.backend.observe = lambda _now_ms: [told.pop(0) for _ in range(len(told))]
    plane.control.turn(1)
    assert f"expected {STORE_CHARACTERS} characters at most" in plane.control.problem
    plane.store.record_characters_max = 2 * STORE_CHARACTERS
    plane.clock.set(plane.control.next_due_ms())
    plane.control.turn(plane.clock.now_ms())
    assert not plane.control.problem
    known = [event for record in plane.store.events for event in each_part(record)]
    assert NodeChanged(1, node) in known
    assert DeviceDown(1, node.name, 1, "gone") in known
    assert plane.start().state(1) is JobState.RUNNING, "a new control plane reads the same"


def nodes_told(plane):
    return [event for record in plane.store.events for event in each_part(record) if isinstance(event, NodeAdded)]


def test_few_reports_are_one_part_and_none_are_none():
    started = [JobStarted(0, job, 1) for job in range(1_000)]
    assert cut_reports(started) == [started]
    assert cut_reports([]) == []


@pytest.mark.parametrize(("nodes", "labels"), [(60, 0), (60, 10), (60, 900), (3, 40_000)])
def test_no_part_is_longer_than_a_record_may_be_but_for_a_single_report(nodes, labels):
    reports = [NodeAdded(0, make_labelled(f"n{number}", labels)) for number in range(nodes)]
    parts = cut_reports(reports)
    assert [event for part in parts for event in part] == reports
    texts = Texts()
    lengths = [sum(len(texts.event(event)) for event in part) for part in parts]
    assert all(length <= RECORD_CHARACTERS_MAX or len(part) == 1 for part, length in zip(parts, lengths, strict=True))


TEXTS = {"control": "\x01", "quote": '"', "beyond the basic plane": "\U0001f600", "plain": "x"}

REPORTS_WITH_TEXT = {
    "stopped reason": lambda text: JobStopped(0, 1, 1, StopCause.START_FAILED, 0, text),
    "drained reason": lambda text: NodeDrained(0, "n0", text),
    "down node": lambda text: NodeDown(0, text),
    "up node": lambda text: NodeUp(0, text),
    "device reason": lambda text: DeviceDown(0, "n0", 1, text),
    "closed user": lambda text: NodeClosed(0, "n0", text),
    "opened user": lambda text: NodeOpened(0, "n0", text),
    "node name": lambda text: NodeAdded(0, NodeSpec(name=text)),
    "node label": lambda text: NodeAdded(0, NodeSpec(name="n0", labels=(("k", text),))),
    "node label name": lambda text: NodeChanged(0, NodeSpec(name="n0", labels=((text, "v"),))),
    "node group": lambda text: NodeChanged(0, NodeSpec(name="n0", block=text)),
    "queue": lambda text: QueueSet(0, QueueSpec(name=text)),
    "tenant": lambda text: TenantSet(0, TenantSpec(name=text)),
    "links": lambda text: LinksSet(0, ((text, LinkSpec(bandwidth_gbps=1.0, latency_us=1.0)),)),
    "budgets": lambda text: BudgetsChanged(0, ((text, 1),), ((1, ((text, 1),)),)),
}


@pytest.mark.parametrize("make", REPORTS_WITH_TEXT.values(), ids=REPORTS_WITH_TEXT)
@pytest.mark.parametrize("character", TEXTS.values(), ids=TEXTS)
def test_reports_with_long_texts_are_cut_by_what_is_written_of_them(make, character):
    reports = [make(character * 100_000)] * 25 + [make(character * 10)] * 1_000
    parts = cut_reports(reports)
    assert [event for part in parts for event in part] == reports
    lengths = [len(dump_json(encode_event(Batch(0, tuple(part))))) for part in parts if len(part) > 1]
    assert all(length <= RECORD_CHARACTERS_MAX for length in lengths)


@pytest.mark.parametrize("kind", OF_NUMBERS)
def test_a_report_of_numbers_is_shorter_than_it_counts_whatever_they_are(kind):
    values = {field.name: -(2**63) for field in fields(kind)}
    if kind is JobFinished:
        values["outcome"] = max(Outcome, key=lambda one: len(one.value))
    assert len(dump_json(encode_event(kind(**values)))) < REPORT_CHARACTERS
