"""Rows as JSON and back: exactly, for every kind of row; what does not fit is named."""

import json
from dataclasses import is_dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.model.errors import InputError
from clearway.model.plan import Explanation, ReasonCode, Rejection
from clearway.model.runs import LimitSignal, RunSpec
from clearway.ports import storage, views
from clearway.ports.views import ClusterView, DeviceView, JobState, JobView, NodeView, QueueView, TenantView
from clearway.wire import api
from clearway.wire.api_rows import decode_row, encode_row, encode_rows, field_names
from support.stored import make_view

names = st.text(max_size=8)
numbers = st.integers(0, 1 << 53)
maybe = st.none() | numbers
pairs = st.lists(st.tuples(names, names), max_size=3).map(tuple)


def many(strategy, size=3):
    return st.lists(strategy, max_size=size).map(tuple)


jobs = st.builds(
    JobView,
    id=numbers,
    name=names,
    user=names,
    tenant=names,
    queue=names,
    start_ms=maybe,
    end_ms=maybe,
    progress=st.none() | st.floats(0, 1),
    nodes=many(names),
    devices=many(st.tuples(names, many(numbers))),
    array=maybe,
    **dict.fromkeys(("priority", "replicas", "device_milli", "cpu_milli", "memory_bytes", "submit_ms"), numbers),
)
devices = st.builds(DeviceView, index=numbers, model=names, owners=many(st.tuples(numbers, numbers)), reason=names)
nodes = st.builds(NodeView, name=names, devices=many(devices), cpu_milli=maybe, labels=pairs)
clusters = st.builds(
    ClusterView,
    at_ms=numbers,
    seq=numbers,
    nodes=many(nodes),
    queues=many(st.builds(QueueView, name=names, priority=st.integers(-9, 9), running_max=maybe)),
    tenants=many(st.builds(TenantView, name=names, parent=st.none() | names, weight=st.floats(0.1, 9))),
    cycle_ms_p99=st.floats(0, 1e6),
)
files = st.builds(
    api.SubmittedFile,
    text=names,
    form=st.sampled_from(api.Form),
    options=many(names),
    job=st.none() | st.dictionaries(names, names | numbers, max_size=2),
)
rows = st.one_of(
    jobs,
    nodes,
    clusters,
    st.builds(api.JobPage, jobs=many(jobs), next_after=maybe),
    st.builds(api.SubmitRequest, files=many(files), environment=st.dictionaries(names, names, max_size=3), key=names),
    st.builds(api.Submitted, jobs=many(numbers), firsts=many(numbers), notes=many(names), is_test=st.booleans()),
    st.builds(api.JobCounts, counts=st.dictionaries(st.sampled_from(JobState), numbers)),
    st.builds(
        api.PlanView, at_ms=numbers, moves=many(st.builds(api.MoveView, kind=names, job=maybe, nodes=many(names)))
    ),
    st.builds(
        RunSpec,
        script=names,
        args=many(names),
        environment=pairs,
        limit_signal=st.none() | st.builds(LimitSignal, signal=names, before_ms=numbers),
    ),
    st.builds(
        Explanation,
        job=numbers,
        reasons=many(st.builds(Rejection, st.sampled_from(ReasonCode), names, blockers=many(numbers))),
        start_ms=maybe,
    ),
)


@settings(max_examples=200)
@given(rows)
def test_a_row_comes_back_from_json_as_it_was(row):
    assert decode_row(type(row), json.loads(json.dumps(encode_row(row)))) == row


@given(jobs)
def test_every_field_is_written(job):
    assert tuple(encode_row(job)) == field_names(JobView)


def rows_of(module):
    return [
        row
        for row in vars(module).values()
        if isinstance(row, type) and is_dataclass(row) and row.__module__ == module.__name__ and row is not api.LogPart
    ]


@pytest.mark.parametrize("row", [*rows_of(views), *rows_of(api)], ids=lambda row: row.__name__)
def test_every_row_can_be_written_and_read(row):
    """Also rows that come later: a type of field without a converter fails here. A log is sent as it is."""
    with pytest.raises(InputError):
        decode_row(row, [])
    broken = dict.fromkeys(field_names(row), object())
    with pytest.raises(InputError, match=field_names(row)[0]):
        decode_row(row, broken)


def test_only_fields_asked_for_are_written():
    assert encode_rows([make_view(3)], ("id", "state")) == [{"id": 3, "state": "PENDING"}]


def test_fields_of_a_newer_server_are_not_looked_at():
    assert decode_row(JobView, encode_row(make_view(3)) | {"mood": "good"}) == make_view(3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "3"}, "^id: expected int, found '3'"),
        ({"id": True}, "^id: expected int, found True"),
        ({"state": "running"}, "^state: expected a JobState out of PENDING, "),
        ({"nodes": "n1"}, "^nodes: expected a list, found 'n1'"),
        ({"devices": [["n1"]]}, r"^devices: expected a list of 2, found \['n1'\]"),
        ({"progress": "half"}, "^progress: expected float"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(InputError, match=message):
        decode_row(JobView, encode_row(make_view(3)) | change)


def test_a_missing_field_is_named():
    data = encode_row(make_view(3))
    del data["state"]
    with pytest.raises(InputError, match="state"):
        decode_row(JobView, data)


def test_a_page_has_as_many_rows_as_a_storage_gives_at_once():
    assert api.PAGE_ROWS_MAX == storage.JOBS_PER_PAGE_MAX
