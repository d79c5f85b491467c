from clearway.model.jobs import JobKind, Outcome
from clearway.model.units import DAY_MS, GIB, MIB
from clearway.sim.traces import detect_format, read_workload
from support.files import write_lines

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def test_a_share_models_and_times_are_read(tmp_path):
    path = write_lines(
        tmp_path / "pods.csv",
        HEADER,
        "a,6000,12288,1,460,V100M16|V100M32,LS,Running,100,400,150",
        "b,4000,1024,8,1000,,BE,Failed,90,400,",
        "c,4000,1024,0,0,,Burstable,Succeeded,110,120,110",
    )
    workload = read_workload(path)
    b, a, c = workload.jobs
    assert detect_format(path) == "openb"
    assert (a.spec.request.share_milli, a.spec.request.device_models) == (460, ("V100M16", "V100M32"))
    assert (a.spec.request.cpu_milli, a.spec.request.memory_bytes) == (6_000, 12_288 * MIB)
    assert (a.submit_ms, a.run_ms, a.spec.kind, a.spec.preemptible) == (10_000, 250_000, JobKind.SERVICE, False)
    assert (b.run_ms, b.outcome, b.spec.preemptible, b.spec.request.devices) == (310_000, Outcome.FAILED, True, 8)
    assert c.spec.request.devices == 0


def test_pods_that_make_no_sense_are_counted(tmp_path):
    path = write_lines(
        tmp_path / "pods.csv",
        HEADER,
        "a,6000,12288,1,1000,,LS,Running,100,400,150",
        "b,6000,12288,1,1460,,LS,Running,100,400,150",
        "c,6000,12288,2,500,,LS,Running,100,400,150",
        "d,6000,12288,1,1000,,LS,Running,100,140,150",
        "e,6000,12288,1,1000,,LS,Running,,,",
    )
    workload = read_workload(path)
    assert [part.lines for part in workload.skipped] == [(3, 4), (5,), (6,)]


def test_a_list_without_times_fills_the_cluster_in_order(tmp_path):
    path = write_lines(tmp_path / "p.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli", "a,1,1,1,460", "b,1,1,2,1000")
    workload = read_workload(path)
    assert [(job.submit_ms, job.run_ms) for job in workload.jobs] == [(0, 365 * DAY_MS), (1_000, 365 * DAY_MS)]
    assert workload.notes


def test_the_node_list_beside_the_pods_is_their_cluster(tmp_path):
    write_lines(tmp_path / "openb_node_list_all_node.csv", "sn,cpu_milli,memory_mib,gpu,model", "n1,64000,1024,4,T4")
    path = write_lines(tmp_path / "p.csv", HEADER, "a,6000,12288,1,1000,,LS,Running,100,400,150")
    assert read_workload(path).cluster.device_count == 4


def test_recommendation_instances_that_outlive_the_trace_end_with_it(tmp_path):
    path = write_lines(
        tmp_path / "d.csv",
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time",
        "i0,HN,app_0,12,12,1,1,25,25,120.0,120.0,1,1,8,,,",
        "i1,CN,app_1,64,64,0,0,25,25,320.5,321.0,1,1,-1,50,60,90",
    )
    first, second = read_workload(path).jobs
    assert (first.submit_ms, first.run_ms, first.spec.request.devices, first.spec.kind) == (
        0, 90_000, 1, JobKind.SERVICE,
    )  # fmt: skip
    assert (second.submit_ms, second.run_ms, second.spec.request.memory_bytes) == (50_000, 40_000, 641 * GIB // 2)
