"""Which devices a control plane uses: what was asked for, else what is configured, else what the machine has."""

import os

import pytest

from clearway.bootstrap.machine import find_devices
from clearway.model.errors import InputError
from clearway.model.units import DEVICES_PER_MODEL_MAX, MILLI
from clearway.wire.config import Config, parse_config

CONFIGURED = parse_config("cluster: 2x2:V100", source="c.yaml")


def models_of(nodes):
    return [(group.model, group.count) for node in nodes for group in node.groups]


def test_without_a_word_the_machine_has_a_device_for_each_gpu_or_else_each_cpu(tmp_path):
    devices = find_devices(Config(), "", tmp_path)
    (node,) = devices.nodes()
    if devices.is_virtual:
        assert node.device_count == min(os.cpu_count(), DEVICES_PER_MODEL_MAX)
    else:
        assert node.device_count >= 1
    assert node.cpu_milli == os.cpu_count() * MILLI
    assert node.memory_bytes > 0


@pytest.mark.parametrize(
    ("asked", "models"),
    [("3", [("gpu", 3)]), ("V100:4", [("V100", 4)]), ("2x4:A100", [("A100", 4), ("A100", 4)]), ("0", [])],
)
def test_the_command_line_goes_before_the_configuration(tmp_path, asked, models):
    assert models_of(find_devices(CONFIGURED, asked, tmp_path).nodes()) == models


def test_the_configuration_goes_before_what_the_machine_has(tmp_path):
    assert models_of(find_devices(CONFIGURED, "", tmp_path).nodes()) == [("V100", 2), ("V100", 2)]
    own = parse_config("devices: H100:2", source="c.yaml")
    assert models_of(find_devices(own, "", tmp_path).nodes()) == [("H100", 2)]


@pytest.mark.parametrize("asked", ["x4", "V100:x", "2y", "99"])
def test_what_is_no_set_of_devices_is_refused(tmp_path, asked):
    with pytest.raises(InputError, match="expected"):
        find_devices(Config(), asked, tmp_path)
