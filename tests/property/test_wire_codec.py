"""Every event, command and plan survives JSON unchanged, whatever its fields hold."""

import dataclasses
import json
import types
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec, TenantSpec
from clearway.model.commands import Command
from clearway.model.events import Batch, Event, JobSubmitted, NodeAdded, PlanAccepted
from clearway.model.jobs import Checkpoint, Dependency, DependencyKind, Elastic, JobSpec, Request
from clearway.model.neighbours import NeighbourRule
from clearway.model.plan import Plan
from clearway.wire.codec import (
    Texts,
    decode_command,
    decode_event,
    decode_plan,
    decode_value,
    dump_json,
    encode_command,
    encode_event,
    encode_plan,
    encode_value,
)

EVENTS = typing.get_args(Event)
COMMANDS = typing.get_args(Command)
COUNTS = st.integers(0, 1 << 60)
SPECIAL_FIELDS = {
    (DeviceGroup, "count"): st.integers(1, 62),
    (DeviceGroup, "speed"): st.floats(min_value=1e-6, allow_nan=False),
    (NodeSpec, "groups"): st.lists(
        st.builds(DeviceGroup, model=st.text(), count=st.integers(1, 62)),
        max_size=3,
        unique_by=lambda group: group.model,
    ).map(tuple),
    (TenantSpec, "weight"): st.floats(min_value=1e-6, allow_nan=False),
    (Request, "cpu_milli"): COUNTS,
    (Request, "memory_bytes"): COUNTS,
    (Request, "device_memory_bytes"): COUNTS,
    (Request, "extras"): st.lists(st.tuples(st.text(max_size=8), st.integers(1, 1 << 60)), max_size=3).map(tuple),
    (Checkpoint, "interval_ms"): st.integers(1, 1 << 60),
    (Checkpoint, "cost_ms"): COUNTS,
    (Checkpoint, "restart_ms"): COUNTS,
    (Checkpoint, "grace_ms"): COUNTS,
    (JobSpec, "id"): st.integers(1, 1 << 60),
    (JobSpec, "replicas"): st.integers(1, 1 << 30),
}
"""Fields whose values must satisfy what their class asserts."""


def build_class(cls):
    """Instances of a dataclass of the model, with fields drawn by their types."""
    hints = typing.get_type_hints(cls)
    fields = {field.name: SPECIAL_FIELDS.get((cls, field.name)) for field in dataclasses.fields(cls)}
    drawn = st.fixed_dictionaries(
        {name: build(hints[name]) if special is None else special for name, special in fields.items()}
    )
    return drawn.map(lambda values: cls(**satisfy(cls, values)))


def satisfy(cls, values):
    """Values that depend on one another, made to agree."""
    if cls is Request:
        share = values["share_milli"] % 1000 + 1
        values |= {"share_milli": share, "devices": abs(values["devices"]) if share == 1000 else 1}
    if cls is Dependency:
        delays = values["kind"] is DependencyKind.AFTER
        values |= {"delay_ms": abs(values["delay_ms"]) if delays else 0}
    if cls is Elastic:
        low, high = sorted((values["replicas_min"] % 10_000 + 1, values["replicas_max"] % 10_000 + 1))
        values |= {"replicas_min": low, "replicas_max": high}
    if cls is NeighbourRule:
        values |= {"skew": abs(values["skew"]) + 1, "weight": abs(values["weight"])}
    return values


def build(kind):
    """Values of a type, as the codec reads types."""
    if isinstance(kind, typing.NewType):
        return build(kind.__supertype__)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([build(argument) for argument in arguments if argument is not Batch])
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return st.lists(build(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*[build(argument) for argument in arguments])
    if origin is np.ndarray:
        return build_array()
    if dataclasses.is_dataclass(kind):
        return st.deferred(lambda: build_class(kind))
    simple = {
        int: st.integers(-(1 << 62), 1 << 62),
        str: st.text(max_size=8),
        bool: st.booleans(),
        float: st.floats(allow_nan=False),
        type(None): st.none(),
    }
    return simple[kind] if kind in simple else st.sampled_from(kind)


def build_array():
    """int64[n]: any numbers, or long runs of consecutive ones."""
    any_numbers = arrays(np.int64, st.integers(0, 40))
    runs = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 60)), max_size=4)
    return any_numbers | runs.map(
        lambda pairs: np.concatenate([np.arange(start, start + count) for start, count in pairs] or [np.empty(0, int)])
    )


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: cls.__name__)
def test_every_event_survives_json(cls):
    @settings(max_examples=40, deadline=None)
    @given(build_class(cls))
    def check(event):
        decoded = decode_event(through_json(encode_event(event)))
        assert decoded == event
        assert repr(decoded) == repr(event)

    check()


@pytest.mark.parametrize("cls", [JobSubmitted, NodeAdded, PlanAccepted], ids=lambda cls: cls.__name__)
def test_texts_of_like_events_are_those_of_each_by_itself(cls):
    @settings(max_examples=20, deadline=None)
    @given(build_class(cls), build_class(cls), st.data())
    def check(event, other, data):
        name = data.draw(st.sampled_from([field.name for field in dataclasses.fields(cls)]))
        changed = dataclasses.replace(event, **{name: getattr(other, name)})
        events = [event, event, changed, other, event, Batch(7, (event, changed))]
        texts = Texts()
        assert [texts.event(one) for one in events] == [dump_json(encode_event(one)) for one in events]

    check()


@pytest.mark.parametrize("cls", COMMANDS, ids=lambda cls: cls.__name__)
def test_every_command_survives_json(cls):
    @settings(max_examples=40, deadline=None)
    @given(build_class(cls))
    def check(command):
        decoded = decode_command(through_json(encode_command(command)))
        assert decoded == command
        assert repr(decoded) == repr(command)

    check()


@settings(max_examples=40, deadline=None)
@given(build_class(Plan))
def test_every_plan_survives_json(plan):
    assert decode_plan(through_json(encode_plan(plan))) == plan


@settings(max_examples=40, deadline=None)
@given(build_class(ClusterSpec))
def test_every_cluster_survives_json(cluster):
    assert decode_value(ClusterSpec, through_json(encode_value(cluster))) == cluster
