import pytest

from clearway.model.errors import InputError
from clearway.sim.collectives import read_collective_costs
from support.files import write_lines
from support.shared import TRACES, needs_traces

HEADER = "time_stats.all_reduce.median,rank,num_workers,size,collective,devices_per_node,max_devices_per_node"


@pytest.fixture
def costs(tmp_path):
    write_lines(
        tmp_path / "x_dgx" / "all_reduce.csv",
        HEADER,
        "1.0,0,2,1000,all_reduce,2,8",
        "3.0,1,2,1000,all_reduce,2,8",
        "8.0,0,2,4000,all_reduce,2,8",
        "99.0,0,2,4000,all_reduce,1,8",
        "5.0,0,4,1000,all_reduce,4,8",
    )
    return read_collective_costs(tmp_path)


def test_measured_sizes_are_medians_and_others_lie_between(costs):
    assert costs.collective_seconds(1000, 2, "x_dgx") == pytest.approx(0.002)
    assert costs.collective_seconds(2000, 2, "x_dgx") == pytest.approx(0.004)
    assert costs.collective_seconds(1, 2, "x_dgx") == pytest.approx(0.002)
    assert costs.collective_seconds(8000, 2, "x_dgx") == pytest.approx(0.016)


def test_workers_not_measured_are_the_next_larger_number(costs):
    assert costs.collective_seconds(1000, 3, "x_dgx") == pytest.approx(0.005)
    assert costs.collective_seconds(1000, 9, "x_dgx") == pytest.approx(0.005)
    assert costs.collective_seconds(1000, 1, "x_dgx") == 0.0


def test_an_unknown_topology_and_an_empty_folder_are_errors(costs, tmp_path):
    with pytest.raises(InputError, match="expected one of x_dgx"):
        costs.collective_seconds(1, 2, "y")
    with pytest.raises(InputError, match="found none"):
        read_collective_costs(tmp_path / "absent")


def test_a_broken_table_is_an_error_with_its_line(tmp_path):
    write_lines(tmp_path / "x" / "all_reduce.csv", HEADER, "fast,0,2,1000,all_reduce,2,8")
    with pytest.raises(InputError, match=r"all_reduce\.csv:2"):
        read_collective_costs(tmp_path)


@needs_traces
def test_pairs_of_nvlink_cost_several_times_what_a_switch_does():
    costs = read_collective_costs(TRACES / "vidur-network")
    size = 64 << 20
    assert costs.collective_seconds(size, 4, "h100_dgx") == pytest.approx(0.00032, rel=0.1)
    assert costs.collective_seconds(size, 4, "h100_pairwise_nvlink") == pytest.approx(0.00206, rel=0.1)
