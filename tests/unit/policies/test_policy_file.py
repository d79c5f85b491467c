"""Policies as plain data: round trips, and errors that say what to do."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.engine.policy import Policy, PreemptMode, Qos
from clearway.model.errors import InputError
from clearway.policies import orders
from clearway.policies.named import POLICY_NAMES, named_policy
from clearway.policies.policy_file import ORDER_TYPES, PolicyError, describe_policy, make_policy


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_description_of_a_policy_makes_the_same_policy(name):
    described = describe_policy(named_policy(name))
    assert make_policy(described) == named_policy(name)
    assert list(described) == [field.name for field in fields(Policy)], "no field is left out"


@pytest.mark.parametrize("kind", ORDER_TYPES.values(), ids=list(ORDER_TYPES))
def test_each_order_is_described_without_loss(kind):
    policy = Policy(name="x", order=kind())
    assert make_policy(describe_policy(policy)) == policy


@given(st.builds(orders.BoundedSlowdown, deadline_margin=st.floats(0, 100), defer_max_ms=st.integers(0, 10**12)))
def test_any_settings_of_an_order_come_back(order):
    policy = Policy(name="x", order=order)
    assert make_policy(describe_policy(policy)) == policy


def test_tuples_choices_and_absence_come_back():
    order = orders.LeastAttained(levels_device_ms=(1, 5), promote_after=None)
    described = describe_policy(Policy(name="x", order=order))["order"]
    assert described["levels_device_ms"] == [1, 5]
    assert described["promote_after"] is None
    shortest = Policy(name="x", order=orders.Shortest(by=orders.RuntimeKnowledge.ORACLE))
    assert describe_policy(shortest)["order"]["by"] == "oracle"


def test_qos_have_names_and_priorities_and_come_back():
    policy = make_policy({"name": "mine", "like": "multifactor", "qos": {"high": 100, "normal": 10, "low": 0}})
    assert policy.qos[:2] == (Qos(name="high", priority=100), Qos(name="normal", priority=10))
    assert policy.qos_factors() == {"high": 1.0, "normal": 0.1, "low": 0.0}
    assert make_policy(describe_policy(policy)) == policy


def test_qos_that_all_have_priority_0_have_factor_0():
    assert make_policy({"name": "mine", "like": "multifactor", "qos": {"low": 0}}).qos_factors() == {"low": 0.0}


def test_what_is_left_out_has_its_default():
    policy = make_policy({"name": "mine", "order": "fifo", "backfill": {"reservation_depth": 4}})
    assert policy.order == orders.Fifo()
    assert policy.backfill.reservation_depth == 4
    assert policy.placement == Policy(name="", order=orders.Fifo()).placement


def test_like_starts_from_a_named_policy():
    policy = make_policy({"name": "mine", "like": "las", "preemption": {"protection_ms": 7}, "order": "least_attained"})
    assert policy.name == "mine"
    assert policy.preemption.mode is PreemptMode.ORDER
    assert policy.preemption.protection_ms == 7


def test_like_keeps_settings_of_an_order_of_the_same_type_only():
    again = make_policy({"name": "x", "like": "srpt", "order": {"type": "shortest", "weigh_by_devices": True}})
    assert again.order.remaining
    assert again.order.weigh_by_devices
    other = make_policy({"name": "x", "like": "srpt", "order": {"type": "gittins"}})
    assert other.order == orders.Gittins()


def make_data(**settings):
    return {"name": "mine", "order": {"type": "multifactor"}, **settings}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"^policy: expected keys with values, found \[\]"),
        ({"order": "fifo"}, r"expected the key 'name', found \('order',\); add `name:`"),
        ({"name": "x"}, r"expected the key 'order'"),
        (make_data(qos=["high"]), r"^qos: expected keys with values, found \['high'\]"),
        (make_data(qos={"high": -1}), r"^qos.high: expected a whole number of at least 0, found -1"),
        (make_data(qos={"": 1}), r"^qos: expected names that are not empty"),
        (make_data(name=""), r"^name: expected a text that is not empty, found ''"),
        (make_data(preempt={}), r"^policy: expected one of name, .*found 'preempt'; did you mean 'preemption'\?"),
        (make_data(order={"typ": "fifo"}), r"^order: expected the key 'type'"),
        (make_data(order="fivo"), r"^order.type: expected one of fifo, .*found 'fivo'; did you mean 'fifo'\?"),
        (make_data(order={"type": ["fifo"]}), r"^order.type: expected one of"),
        (make_data(order={"type": "gittins", "quantum_ms": 1}), r"^order: .*did you mean 'quantum_device_ms'\?"),
        (make_data(order={"type": "multifactor", "age": "big"}), r"^order.age: expected a number, found 'big'"),
        (make_data(order={"type": "multifactor", "age": float("nan")}), r"^order.age: expected a number"),
        (make_data(order={"type": "multifactor", "age": -1}), r"^order.age: expected a number of at least 0"),
        (make_data(order={"type": "multifactor", "age_max_ms": 0}), r"at least 1, found 0; times are in milliseconds"),
        (make_data(order={"type": "multifactor", "favor_small": 1}), r"expected true or false, found 1"),
        (make_data(order={"type": "least_attained", "levels_device_ms": "5"}), r"expected a list of whole numbers"),
        (make_data(order={"type": "least_attained", "levels_device_ms": [5, 5]}), r"expected numbers that rise"),
        (make_data(backfill={"reservation_depth": 1.5}), r"^backfill.reservation_depth: expected a whole number"),
        (make_data(backfill={"reservation_depth": True}), r"expected a whole number of at least 0, found True"),
        (make_data(backfill=4), r"^backfill: expected keys with values, found 4"),
        (make_data(runtime="predict"), r"^runtime: expected one of limit, .*did you mean 'predicted'\?"),
        (make_data(runtime_quantile=1), r"^runtime_quantile: expected a number between 0 and 1, found 1"),
        (make_data(scan_max=None), r"^scan_max: expected a whole number of at least 1, found None"),
        (make_data(like="esay"), r"^like: expected one of fifo, .*did you mean 'easy'\?"),
    ],
)
def test_wrong_values_are_refused_with_place_and_hint(data, message):
    with pytest.raises(PolicyError, match=message):
        make_policy(data)


def test_error_names_its_place_for_readers_that_know_lines():
    with pytest.raises(PolicyError) as caught:
        make_policy(make_data(backfill={"reservation_depth": "deep"}))
    assert caught.value.place == ("backfill", "reservation_depth")


def test_order_that_is_not_ours_cannot_be_described():
    class Backwards:
        refresh_ms = None
        by_priority = False

    with pytest.raises(InputError, match="found Backwards"):
        describe_policy(Policy(name="x", order=Backwards()))
