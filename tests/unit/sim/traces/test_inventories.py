import pytest

from clearway.model.errors import InputError
from clearway.model.units import GIB, KIB, MIB
from clearway.sim.traces import is_inventory, read_cluster
from support.files import write_lines


def shape(cluster):
    return [(node.name, [(group.model, group.count) for group in node.groups]) for node in cluster.nodes]


def test_openb_nodes(tmp_path):
    path = write_lines(tmp_path / "n.csv", "sn,cpu_milli,memory_mib,gpu,model", "a,32000,1024,0,", "b,64000,2048,8,G2")
    cluster = read_cluster(path)
    assert shape(cluster) == [("a", []), ("b", [("G2", 8)])]
    assert (cluster.nodes[1].cpu_milli, cluster.nodes[1].memory_bytes) == (64_000, 2048 * MIB)


def test_spot_nodes(tmp_path):
    path = write_lines(tmp_path / "n.csv", "gpu_model,gpu_capacity_num,cpu_num,node_name", "A10,1,128,2")
    assert shape(read_cluster(path)) == [("node2", [("A10", 1)])]
    assert read_cluster(path).nodes[0].memory_bytes is None


def test_pai_machines(tmp_path):
    path = write_lines(
        tmp_path / "n.csv", "machine,gpu_type,cap_cpu,cap_mem,cap_gpu", "x,CPU,96,512,0", "y,T4,96,512,2"
    )
    cluster = read_cluster(path)
    assert shape(cluster) == [("x", []), ("y", [("T4", 2)])]
    assert cluster.nodes[0].memory_bytes == 512 * GIB


def test_gavel_totals_become_nodes_of_four(tmp_path):
    path = write_lines(tmp_path / "c.json", "{", '  "philly": ["5:4:0"]', "}")
    assert shape(read_cluster(path)) == [
        ("v100-0000", [("V100", 4)]), ("v100-0001", [("V100", 1)]), ("p100-0000", [("P100", 4)]),
    ]  # fmt: skip


def test_a_machine_of_many_cores_becomes_equal_parts(tmp_path):
    cluster = read_cluster(write_lines(tmp_path / "x.machines", "0\tbig\t2\t80\t1\t1024"))
    assert shape(cluster)[:2] == [("big0000-0", [("processor", 40)]), ("big0000-1", [("processor", 40)])]
    assert (len(cluster.nodes), cluster.device_count, cluster.nodes[0].memory_bytes) == (4, 160, 512 * KIB)


def test_another_file_is_an_error_that_says_what_is_known(tmp_path):
    path = write_lines(tmp_path / "n.csv", "a,b,c", "1,2,3")
    assert not is_inventory(path)
    with pytest.raises(InputError, match="expected a node list"):
        read_cluster(path)


@pytest.mark.parametrize("line", ["a,many,1024,0,", "a,32000,1024", "a,32000,1024,63,G2"])
def test_a_bad_node_is_an_error_with_its_line(tmp_path, line):
    with pytest.raises(InputError, match=r"n\.csv:3"):
        read_cluster(write_lines(tmp_path / "n.csv", "sn,cpu_milli,memory_mib,gpu,model", "b,1,1,1,G1", line))
