"""The JSON form of events, commands and plans: compact, tagged, and strict when read."""

import json

import numpy as np
import pytest

from clearway.model.allocation import Allocation
from clearway.model.cluster import TenantSpec
from clearway.model.commands import WakeAt
from clearway.model.errors import InputError
from clearway.model.events import Batch, JobFinished, JobSubmitted, PlanAccepted, TenantSet, TimerFired
from clearway.model.jobs import JobSpec, Outcome, Request, StopCause
from clearway.model.plan import Plan, Start, Stop
from clearway.wire.codec import (
    FORMAT_VERSION,
    check_journal_header,
    decode_command,
    decode_event,
    decode_plan,
    decode_value,
    encode_command,
    encode_event,
    encode_plan,
    encode_value,
    make_journal_header,
)


def test_an_event_says_its_type_and_leaves_out_defaults():
    event = JobSubmitted(7, JobSpec(id=3, request=Request(devices=2)))
    assert encode_event(event) == {"type": "JobSubmitted", "at_ms": 7, "job": {"id": 3, "request": {"devices": 2}}}


def test_enums_are_their_values():
    assert encode_event(JobFinished(1, 2, 3, Outcome.TIMEOUT))["outcome"] == "TIMEOUT"


def test_a_command_is_told_from_the_others_by_its_type():
    assert encode_command(WakeAt(5)) == {"type": "WakeAt", "at_ms": 5}
    assert decode_command({"type": "WakeAt", "at_ms": 5}) == WakeAt(5)


def test_large_allocations_are_written_as_runs():
    allocation = Allocation(nodes=np.arange(5000), devices=np.append(np.arange(8, 40_000), np.arange(8)))
    plan = Plan(parent=1, moves=(Start(1, 1, allocation), Stop(2, 1, 30, StopCause.PREEMPTED, 1)))
    data = json.loads(json.dumps(encode_plan(plan)))
    assert data["moves"][0]["allocation"] == {"nodes": {"runs": [0, 5000]}, "devices": {"runs": [8, 39_992, 0, 8]}}
    assert decode_plan(data) == plan


def test_arrays_read_are_int64_and_cannot_be_written():
    allocation = decode_value(Allocation, {"nodes": [], "devices": [3]})
    assert allocation.nodes.dtype == allocation.devices.dtype == np.int64
    assert not allocation.devices.flags.writeable


def test_a_batch_holds_events_with_their_types():
    batch = Batch(1, (TimerFired(1), PlanAccepted(1, Plan(parent=0))))
    assert decode_event(json.loads(json.dumps(encode_event(batch)))) == batch


def test_infinite_numbers_survive_strict_json():
    event = TenantSet(1, TenantSpec(name="a", weight=float("inf")))
    assert decode_event(json.loads(json.dumps(encode_event(event), allow_nan=False))) == event


def test_numbers_of_numpy_become_plain_ones():
    data = encode_event(TimerFired(np.int64(5)))
    assert type(data["at_ms"]) is int


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "expected a type out of"),
        ([], "expected an object with a `type`"),
        ({"type": ["TimerFired"]}, "expected a type out of"),
        ({"type": "TimerFird"}, "found 'TimerFird'; did you mean 'TimerFired'?"),
        ({"type": "TimerFired", "at": 3}, "TimerFired: expected fields of TimerFired: at_ms, found 'at'"),
        ({"type": "TimerFired"}, "TimerFired: expected field 'at_ms' of TimerFired"),
        ({"type": "TimerFired", "at_ms": True}, "TimerFired.at_ms: expected a whole number, found True"),
        ({"type": "TimerFired", "at_ms": 1.0}, "TimerFired.at_ms: expected a whole number, found 1.0"),
        ({"type": "NodeUp", "at_ms": 1, "node": 5}, "NodeUp.node: expected text, found 5"),
        ({"type": "NodeAdded", "at_ms": 1, "node": 5}, "NodeAdded.node: expected an object of NodeSpec"),
        (
            {"type": "JobSubmitted", "at_ms": 1, "job": {"id": 1, "request": {"devices": "x"}}},
            "JobSubmitted.job.request.devices: expected a whole number, found 'x'",
        ),
        (
            {"type": "JobSubmitted", "at_ms": 1, "job": {"id": 0, "request": {}}},
            "JobSubmitted.job: expected values that make a JobSpec",
        ),
        (
            {"type": "JobSubmitted", "at_ms": 1, "job": {"id": 1, "request": {}, "held": 1}},
            "JobSubmitted.job.held: expected true or false",
        ),
        (
            {"type": "JobSubmitted", "at_ms": 1, "job": {"id": 1, "request": {}, "kind": "game"}},
            "JobSubmitted.job.kind: expected a JobKind out of train, finetune",
        ),
        (
            {"type": "JobSubmitted", "at_ms": 1, "job": {"id": 1, "request": {"node_labels": [["a"]]}}},
            "JobSubmitted.job.request.node_labels.0: expected a list of 2",
        ),
        (
            {"type": "JobSubmitted", "at_ms": 1, "job": {"id": 1, "request": {"device_models": "a"}}},
            "JobSubmitted.job.request.device_models: expected a list",
        ),
        (
            {"type": "TenantSet", "at_ms": 1, "tenant": {"name": "a", "weight": "heavy"}},
            "TenantSet.tenant.weight: expected a number, found 'heavy'",
        ),
        ({"type": "Batch", "at_ms": 1, "events": [{"type": "x"}]}, "Batch.events.0: expected a type out of"),
    ],
)
def test_what_does_not_fit_is_an_error_with_its_place(data, message):
    with pytest.raises(InputError) as caught:
        decode_event(data)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "nodes",
    [5, ["x"], [1.5], [True], [1 << 63], {"runs": [1]}, {"runs": [1, 0]}, {"runs": [0, 10**9]}, {"run": [0, 1]}],
)
def test_an_array_that_is_none_or_would_fill_the_memory_is_an_error(nodes):
    with pytest.raises(InputError, match="nodes: expected"):
        decode_value(Allocation, {"nodes": nodes, "devices": []})


def test_endless_nesting_is_an_error():
    data = {"type": "TimerFired", "at_ms": 1}
    for _ in range(5000):
        data = {"type": "Batch", "at_ms": 1, "events": [data]}
    with pytest.raises(InputError, match="levels"):
        decode_event(data)


def test_a_journal_is_read_by_the_code_that_wrote_it():
    header = json.loads(json.dumps(make_journal_header()))
    assert header["version"] == FORMAT_VERSION
    check_journal_header(header)


def test_a_journal_with_other_defaults_is_refused():
    header = make_journal_header()
    header["defaults"]["Request.devices"] = 2
    with pytest.raises(InputError, match=r"expected Request\.devices = 1, found 'Request\.devices = 2'"):
        check_journal_header(header)


def test_a_journal_from_before_a_field_was_added_is_read():
    header = make_journal_header()
    del header["defaults"]["Request.devices"]
    check_journal_header(header)


@pytest.mark.parametrize(
    "header",
    [
        None,
        {},
        {"format": "tar"},
        {"format": "clearway-journal", "version": 99},
        {"format": "clearway-journal", "version": FORMAT_VERSION},
    ],
)
def test_what_is_not_our_journal_is_refused(header):
    with pytest.raises(InputError, match="expected"):
        check_journal_header(header)


def test_any_value_of_the_model_can_be_written():
    spec = TenantSpec(name="a", parent="b")
    assert decode_value(TenantSpec, encode_value(spec)) == spec
