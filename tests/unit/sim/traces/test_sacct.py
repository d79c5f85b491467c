import pytest

from clearway.model.errors import InputError
from clearway.model.jobs import Outcome
from clearway.model.units import GIB, MIB
from clearway.sim.traces import detect_format, read_workload
from clearway.sim.traces.sacct import parse_elapsed_ms
from support.files import write_lines

HEADER = "JobID|User|Account|Partition|State|Submit|Start|Elapsed|Timelimit|NNodes|NCPUS|ReqMem|AllocTRES|SubmitLine"


def record(
    job="11",
    state="COMPLETED",
    start="2024-01-01T00:00:09",
    limit="1-00:00:00",
    nodes="2",
    memory="8Gn",
    tres="gres/gpu=8",
    line="x",
):
    times = f"2024-01-01T00:00:00|{start}|01:00:00|{limit}"
    return f"{job}|ann|lab|gpu|{state}|{times}|{nodes}|16|{memory}|{tres}|{line}"


def read(tmp_path, *records, header=HEADER):
    return read_workload(write_lines(tmp_path / "s.txt", header, *records))


def test_a_job_of_eight_devices_on_two_nodes_is_two_replicas_of_four(tmp_path):
    job = read(tmp_path, record()).jobs[0]
    assert (job.spec.id, job.spec.replicas, job.spec.request.devices) == (11, 2, 4)
    assert (job.spec.request.cpu_milli, job.spec.request.memory_bytes) == (8_000, 8 * GIB)
    assert (job.run_ms, job.spec.limit_ms) == (3_600_000, 86_400_000)
    assert (job.spec.user, job.spec.tenant, job.spec.queue) == ("ann", "lab", "gpu")


def test_devices_counted_by_type_alone_are_added_up(tmp_path):
    assert read(tmp_path, record(tres="gres/gpu:a100=2,gres/gpu:h100=2")).jobs[0].spec.request.devices == 2


def test_an_uneven_job_is_one_device_replicas(tmp_path):
    job = read(tmp_path, record(tres="gres/gpu=5", nodes="2")).jobs[0]
    assert (job.spec.replicas, job.spec.request.devices) == (5, 1)


def test_steps_unended_jobs_and_requeued_runs_are_counted(tmp_path):
    workload = read(
        tmp_path,
        record(),
        record(job="11.batch"),
        record(job="12", state="RUNNING"),
        record(job="13", state="PREEMPTED"),
        record(job="14", state="ODD"),
        record(job="15", state="CANCELLED by 7", start="Unknown"),
        record(job="16", memory="lots"),
        "17|too|short",
    )
    assert len(workload.jobs) == 1
    reasons = {part.reason: part.lines for part in workload.skipped}
    assert len(reasons) == 7, "each kind of line has a reason of its own, with its numbers"
    assert (reasons["had not ended (RUNNING)"], reasons["a state that is none of Slurm's (ODD)"]) == ((4,), (6,))


def test_a_cancelled_run_keeps_its_outcome(tmp_path):
    assert read(tmp_path, record(state="CANCELLED by 7")).jobs[0].outcome is Outcome.CANCELLED


def test_a_record_broken_over_lines_is_put_together(tmp_path):
    head, tail = record(job="20", line="srun a\nb").split("\n")
    assert [job.spec.id for job in read(tmp_path, head.rpartition("|")[0], "|" + tail).jobs] == [20]


def test_the_other_delimiter_is_understood(tmp_path):
    workload = read(tmp_path, record().replace("|", "|#"), header=HEADER.replace("|", "|#"))
    assert workload.jobs[0].spec.user == "ann"


@pytest.mark.parametrize(
    ("text", "bytes_per_replica"), [("4Gc", 32 * GIB), ("16G", 8 * GIB), ("2147483658Mn", 80 * MIB)]
)
def test_memory_counts_per_cpu_per_job_or_by_the_old_flag(tmp_path, text, bytes_per_replica):
    assert read(tmp_path, record(memory=text)).jobs[0].spec.request.memory_bytes == bytes_per_replica


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", ""])
def test_no_limit_is_no_limit(tmp_path, limit):
    assert read(tmp_path, record(limit=limit)).jobs[0].spec.limit_ms is None


def test_headerless_columns_with_and_without_qos_and_gres(tmp_path):
    times = "2020-01-01T00:00:00|2020-01-01T00:00:00|2020-01-01T00:00:02|2020-01-01T00:01:02|00:01:00|0:0|COMPLETED"
    size = "2|32|32|1000Mc"
    lines = (
        f"1|1|c|part|normal|acc|grp|3|bob|4|{times}|{size}|cpu=32|cpu=32,gres/gpu=4|1-00:00:00|n[1-2]|a|b",
        f"2|2|c|part|acc|grp|3|bob|4|{times}|{size}|gpu:2||cpu=32,gres/gpu=4|1-00:00:00|n[1-2]|job",
        f"3|3|c|part|normal|acc|grp|3|bob|4|{times}|{size}|gpu:2||cpu=32|1-00:00:00|n[1-2]|job",
    )
    path = write_lines(tmp_path / "x.log", *lines)
    workload = read_workload(path)
    assert detect_format(path) == "sacct"
    assert [(j.spec.id, j.spec.request.devices, j.spec.replicas, j.spec.user) for j in workload.jobs] == [
        (1, 2, 2, "bob"),
        (2, 2, 2, "bob"),
        (3, 2, 2, "bob"),
    ]
    assert workload.jobs[0].spec.name == "a|b"


def test_columns_that_are_missing_are_named_with_a_command_that_exports_them(tmp_path):
    with pytest.raises(InputError, match=r"expected State, Submit.*sacct -a -P -o"):
        read_workload(write_lines(tmp_path / "s.txt", "JobID|State|Start|End", "1|COMPLETED|a|b"))


def test_eagle_columns(tmp_path):
    path = write_lines(
        tmp_path / "e.csv",
        "job_id,user,account,partition,qos,wallclock_req,nodes_req,processors_req,gpus_req,mem_req,submit_time,"
        "start_time,end_time,run_time,state,name,work_dir,submit_line",
        "5,u,a,p,normal,3600.0,2,72,4,0.0,2019-01-01 08:00:00,2019-01-01 08:00:01,2019-01-01 08:01:01,60.0,TIMEOUT,"
        "n,w,s",
    )
    job = read_workload(path).jobs[0]
    assert (job.spec.id, job.spec.replicas, job.spec.request.devices, job.run_ms) == (5, 2, 2, 60_000)
    assert (job.spec.limit_ms, job.outcome) == (3_600_000, Outcome.TIMEOUT)


def test_elapsed_times():
    assert parse_elapsed_ms("2-03:04:05") == 183_845_000
    assert parse_elapsed_ms("04:05.678") == 245_000
    with pytest.raises(ValueError, match="elapsed"):
        parse_elapsed_ms("5 min")
