from itertools import pairwise

import numpy as np
import pytest

from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.ids import NodeName
from clearway.model.units import DAY_MS, HOUR_MS
from clearway.sim.faults import DEFAULT_FAULTS, EXPONENTIAL_GAPS, FaultModel, UnitFaults, sample_faults
from clearway.sim.quantiles import PROBABILITIES


def cluster(nodes, devices=8):
    groups = (DeviceGroup(model="V100", count=devices),) if devices else ()
    return ClusterSpec(nodes=tuple(NodeSpec(name=NodeName(f"n{i}"), groups=groups) for i in range(nodes)))


def often(days=2.0):
    unit = UnitFaults(
        mtbf_ms=round(days * DAY_MS),
        gap_quantiles=EXPONENTIAL_GAPS,
        repair_quantiles_ms=(HOUR_MS,) * len(PROBABILITIES),
    )
    return FaultModel(node=unit, device=unit, source="test")


def sample(model, nodes=20, days=100, seed=0):
    return sample_faults(model, cluster(nodes), days * DAY_MS, np.random.default_rng(seed))


def test_the_same_seed_gives_the_same_faults():
    assert sample(often(), seed=3) == sample(often(), seed=3)
    assert sample(often(), seed=3) != sample(often(), seed=4)


def test_faults_are_sorted_and_never_overlap_on_a_node():
    faults = sample(often(0.2))
    assert [(fault.at_ms, fault.node_index) for fault in faults] == sorted((f.at_ms, f.node_index) for f in faults)
    for node in range(20):
        own = [fault for fault in faults if fault.node_index == node]
        assert all(before.until_ms <= after.at_ms for before, after in pairwise(own))
    assert {fault.device for fault in faults} == {None, *range(8)}
    assert all(fault.at_ms < 100 * DAY_MS and fault.until_ms > fault.at_ms for fault in faults)


def test_failures_come_at_the_fitted_rate_from_the_start():
    model = FaultModel(node=DEFAULT_FAULTS.node, device=None, source="test")
    expected = 20_000 * 60 * DAY_MS / DEFAULT_FAULTS.node.mtbf_ms
    assert len(sample(model, nodes=20_000, days=60)) == pytest.approx(expected, rel=0.1)


def test_nothing_fails_in_a_model_without_units():
    assert sample(FaultModel(node=None, device=None, source="test")) == []


def test_nodes_without_devices_have_no_device_faults():
    model = FaultModel(node=None, device=often().device, source="test")
    assert sample_faults(model, cluster(5, devices=0), 100 * DAY_MS, np.random.default_rng(0)) == []
