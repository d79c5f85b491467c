import pytest

from clearway.bootstrap.inputs import choose_cluster, is_drawn, read_faults, read_site, read_trace
from clearway.model.cluster import ClusterSpec, DeviceGroup, NodeSpec
from clearway.model.errors import InputError
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobSpec, Request
from clearway.model.units import DAY_MS
from clearway.sim.workload import TraceJob, Workload

NODE = NodeSpec(name=NodeName("own"), groups=(DeviceGroup(model="T4", count=2),))
YEAR = Workload(
    name="a year",
    jobs=[TraceJob(JobSpec(id=JobId(number), request=Request()), number * DAY_MS, DAY_MS) for number in range(1, 366)],
)


def test_a_cluster_is_read_from_its_short_form():
    cluster = choose_cluster("2x8:V100,1x4:A100", YEAR)
    assert cluster.name == "2x8:V100,1x4:A100"
    assert [node.device_count for node in cluster.spec.nodes] == [8, 8, 4]


def test_a_cluster_is_read_from_a_yaml_file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes:\n  - name: gpu[1-3]\n    gpus: H100:8\n")
    assert choose_cluster(str(path), YEAR).spec.device_count == 24


def test_a_cluster_is_read_from_a_node_inventory(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\nn-1,96000,393216,2,P100\nn-2,96000,393216,0,\n")
    cluster = choose_cluster(str(path), YEAR).spec
    assert [node.device_count for node in cluster.nodes] == [2, 0]


def test_without_a_cluster_the_trace_gives_its_own():
    own = Workload(name="own", jobs=(), cluster=ClusterSpec(nodes=(NODE,)))
    assert choose_cluster(None, own).spec.nodes == (NODE,)


def test_without_any_cluster_one_is_asked_for():
    with pytest.raises(InputError, match="--cluster 1250x8"):
        choose_cluster(None, YEAR)


def test_a_generated_workload_keeps_its_first_jobs():
    whole = read_trace("synthetic:philly-like?jobs=100", seed=4)
    assert tuple(read_trace("synthetic:philly-like?jobs=100", seed=4, limit=10).jobs) == tuple(whole.jobs[:10])


def test_a_generated_workload_has_no_format():
    with pytest.raises(InputError, match="--format"):
        read_trace("synthetic:philly-like?jobs=100", format_name="swf")


def test_only_what_is_drawn_differs_by_seed():
    assert is_drawn("synthetic:philly-like", None)
    assert is_drawn("rates.csv", "servegen")
    assert not is_drawn("log.swf", None)


def test_no_faults_are_drawn_unless_asked_for():
    cluster = choose_cluster("100x8", YEAR).spec
    assert read_faults("none", cluster, YEAR, seed=0) == ()


def test_faults_depend_on_the_seed_alone():
    cluster = choose_cluster("100x8", YEAR).spec
    first, again, other = (read_faults("default", cluster, YEAR, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all(0 <= fault.at_ms < fault.until_ms for fault in first)


def test_an_unknown_word_for_faults_is_refused():
    with pytest.raises(InputError, match="'often'"):
        read_faults("often", choose_cluster("1x8", YEAR).spec, YEAR, seed=0)


def test_a_site_without_a_file_sets_nothing():
    assert read_site(None).queues == read_site(None).tenants == ()


def test_a_site_file_gives_queues_and_tenants(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("queues:\n  - name: urgent\n    priority: 10\ntenants:\n  - name: vision\n    guaranteed: 8\n")
    site = read_site(path)
    assert [queue.name for queue in site.queues] == ["urgent"]
    assert [tenant.quota.guaranteed_milli for tenant in site.tenants] == [8_000]
