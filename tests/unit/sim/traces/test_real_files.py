import pytest

from clearway.sim.traces import describe_workload, detect_format, read_cluster, read_workload
from support.shared import TRACES, needs_traces

pytestmark = needs_traces

KNOWN = [
    ("philly/philly_jobs_13vc.csv.gz", "philly", 70_783, 0),
    ("swf/RICC-2010-2.swf.gz", "swf", 447_794, 0),
    ("swf/NASA-iPSC-1993-3.1-cln.swf.gz", "swf", 18_239, 0),
    ("swf/metacentrum-wagap-2013.swf.gz", "swf", 17_898, 2),
    ("swf/hpc2n-2002-subset.swf", "swf", 3_145, 25),
    ("swf/lublin_256.swf.gz", "swf", 10_000, 0),
    ("alibaba-gpu-v2023/openb_pod_list_default.csv.gz", "openb", 8_152, 0),
    ("alibaba-gpu-v2023/openb_pod_list_multigpu50.csv", "openb", 9_061, 0),
    ("alibaba-gpu-v2025-dlrm/disaggregated_DLRM_trace.csv.gz", "alibaba-dlrm", 23_871, 0),
    ("slurm-sacct/xdmod_phillips.sacct.log.gz", "sacct", 4_285, 0),
    ("slurm-sacct/xdmod_edge_cases/accounting-logs-with-gpu-gres.log", "sacct", 24, 0),
    ("slurm-sacct/meta_gcm/sample-sacct-multiple-multiline.txt", "sacct", 1, 5),
    ("slurm-sacct/meta_gcm/sample-sacct-output-invalid-utf8.txt", "sacct", 2, 9),
    ("slurm-sacct/nrel_eagle_sample.csv", "eagle", 1_000, 0),
    ("gavel/traces/msr_seed0/11cb48.trace.gz", "gavel", 2_000, 0),
    ("gavel/traces/physical_cluster/minimize_makespan.trace", "gavel", 100, 0),
    ("pollux/workloads/workload-1.csv", "pollux", 160, 0),
    ("sia/workloads/newtrace/workload-1.csv", "pollux", 960, 0),
    ("azure-llm-2023/AzureLLMInferenceTrace_code.csv.gz", "azure-llm", 8_819, 0),
    ("mooncake/conversation_trace.jsonl.gz", "mooncake", 12_031, 0),
]


@pytest.mark.parametrize(("name", "trace_format", "jobs", "skipped"), KNOWN, ids=[row[0] for row in KNOWN])
def test_every_record_is_a_job_or_is_counted(name, trace_format, jobs, skipped):
    path = TRACES / name
    workload = read_workload(path)
    assert detect_format(path) == trace_format
    assert (len(workload.jobs), sum(part.count for part in workload.skipped)) == (jobs, skipped)
    keys = [(job.submit_ms, job.spec.id) for job in workload.jobs]
    assert keys == sorted(keys)
    assert keys[0][0] == 0


def test_servegen_rates_give_as_many_requests_as_asked():
    path = TRACES / "servegen" / "multimodal_mm-image_client_rates.csv"
    assert len(read_workload(path, limit=5_000).jobs) == 5_000


@pytest.mark.parametrize(
    ("name", "nodes", "devices"),
    [
        ("alibaba-gpu-v2023/openb_node_list_all_node.csv", 1_523, 6_212),
        ("alibaba-gpu-node-inventories/spot_v2026_node_info.csv", 4_278, 10_412),
        ("alibaba-gpu-node-inventories/pai_v2020_machine_spec.csv", 1_897, 6_742),
        ("gavel/traces/cluster_specs_heterogeneous.json", 225, 900),
        ("swf/hpc2n-2002-subset.swf.machines", 120, 240),
    ],
)
def test_node_inventories(name, nodes, devices):
    cluster = read_cluster(TRACES / name)
    assert (len(cluster.nodes), cluster.device_count) == (nodes, devices)


def test_the_description_of_philly():
    described = describe_workload(read_workload(TRACES / "philly" / "philly_jobs_13vc.csv.gz"))
    assert described["tenants"] == 13
    assert described["devices"]["mean"] == pytest.approx(84_724 / 70_783)
    assert described["load_device_s_per_s"] == pytest.approx(245, rel=0.02)
    assert sum(described["arrivals_by_hour"]) == 70_783
