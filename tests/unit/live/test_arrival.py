"""How the machines differ from the journal when a control plane starts again."""

import pytest

from clearway.engine.inventory import Inventory
from clearway.live.arrival import MISSING, node_events
from clearway.model.cluster import DeviceGroup, NodeSpec
from clearway.model.errors import InputError
from clearway.model.events import DeviceDown, NodeAdded, NodeChanged, NodeDown


def make_node(name="n1", *, gpus=8, **said):
    return NodeSpec(name=name, groups=(DeviceGroup(model="H100", count=gpus),), **said)


def differences(known, *found):
    inventory = Inventory()
    inventory.add(known)
    return list(node_events(5, inventory, found, {}))


def test_node_that_is_as_it_was_needs_no_word():
    assert differences(make_node(cpu_milli=8_000), make_node(cpu_milli=8_000)) == []


@pytest.mark.parametrize(
    "now",
    [
        {"cpu_milli": 4_000},
        {"labels": (("zone", "a"),)},
        {"memory_bytes": 1 << 30},
        {"cpu_milli": 16_000},
        {"crowds": (("web", 2),)},
    ],
)
def test_node_with_other_cpus_memory_labels_or_neighbours_changed(now):
    found = make_node(**{"cpu_milli": 8_000, **now})
    assert differences(make_node(cpu_milli=8_000), found) == [NodeChanged(5, found)]


def test_memory_that_differs_as_from_boot_to_boot_needs_no_word():
    assert differences(make_node(memory_bytes=100_000), make_node(memory_bytes=98_500)) == []


def test_new_node_is_added_and_one_that_is_gone_is_down():
    other = make_node("n2")
    assert [type(event) for event in differences(make_node(), other)] == [NodeDown, NodeAdded]


OTHER_MODEL = NodeSpec(name="n1", groups=(DeviceGroup(model="A100", count=8),))
MIXED = NodeSpec(name="n1", groups=(DeviceGroup(model="A100", count=1), DeviceGroup(model="H100", count=8)))


@pytest.mark.parametrize("found", [make_node(leaf="l2"), OTHER_MODEL, MIXED])
def test_node_whose_place_or_devices_are_those_of_another_machine_refuses_the_start(found):
    with pytest.raises(InputError, match="8 x H100"):
        differences(make_node(), found)


def test_node_that_is_not_the_last_cannot_have_more_devices():
    inventory = Inventory()
    inventory.add(make_node())
    inventory.add(make_node("n2"))
    with pytest.raises(InputError, match="found 9 x H100"):
        list(node_events(5, inventory, [make_node(gpus=9), make_node("n2")], {}))


def test_last_devices_that_are_missing_are_down():
    assert differences(make_node(), make_node(gpus=6)) == [
        DeviceDown(5, "n1", 6, MISSING),
        DeviceDown(5, "n1", 7, MISSING),
    ]


def test_devices_that_came_are_taken_in_behind_the_others():
    groups = (DeviceGroup(model="H100", count=8, memory_bytes=80), DeviceGroup(model="H100-1g.10gb", count=7))
    (changed,) = differences(make_node(), NodeSpec(name="n1", groups=groups))
    assert [(group.model, group.count) for group in changed.node.groups] == [("H100", 8), ("H100-1g.10gb", 7)]
