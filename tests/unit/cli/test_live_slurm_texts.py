"""The texts of the Slurm-named commands, to the blank: scripts parse them."""

import contextlib
import dataclasses
import datetime
import json

import pytest

from clearway.cli import connection
from clearway.cli.slurm import scontrol
from clearway.cli.slurm.arguments import Options, UsageError, read_options
from clearway.cli.slurm.sacct_text import BRIEF_FIELDS, render_field_list, render_sacct
from clearway.cli.slurm.scontrol_text import render_job, render_node, render_partition
from clearway.cli.slurm.sinfo_text import render_sinfo
from clearway.cli.slurm.squeue_text import render_squeue
from clearway.cli.slurm.values import STATE_CODES, render_host_list, render_time_limit, render_time_used
from clearway.model.ids import JobId
from clearway.model.jobs import JobKind
from clearway.model.units import DAY_MS, GIB, HOUR_MS, MINUTE_MS, SECOND_MS
from clearway.ports.views import ClusterView, DeviceState, DeviceView, JobState, JobView, NodeState, NodeView, QueueView

NOON = 1_800_000_000_000
"""2027-01-15T08:00:00Z"""
NOW = {"now_ms": NOON, "zone": datetime.UTC}


def job(number: int, **changes) -> JobView:
    plain = JobView(
        id=JobId(number),
        name="train",
        user="ada",
        tenant="vision",
        queue="production",
        kind=JobKind.TRAIN,
        state=JobState.RUNNING,
        priority=0,
        replicas=1,
        device_milli=1_000,
        cpu_milli=2_000,
        memory_bytes=4 * GIB,
        submit_ms=NOON - 2 * HOUR_MS,
        start_ms=NOON - HOUR_MS - 23 * SECOND_MS,
        limit_ms=DAY_MS,
        nodes=("gpu01",),
        devices=(("gpu01", (0,)),),
        workdir="/home/ada",
        output="/home/ada/slurm-12.out",
    )
    return dataclasses.replace(plain, **changes)


def waiting(number: int, **changes) -> JobView:
    nowhere = {"start_ms": None, "nodes": (), "devices": (), "state": JobState.PENDING, "reason": "Resources"}
    return job(number, **{**nowhere, **changes})


JOBS = [
    job(12),
    job(13, name="a-long-name", replicas=2, nodes=("gpu01", "gpu02"), user="grace", limit_ms=None),
    waiting(14, queue="debug", reason="Priority"),
    *(waiting(20 + i, name="sweep", array=JobId(20), array_index=i, priority=3) for i in range(4)),
    job(24, name="sweep", array=JobId(20), array_index=7, start_ms=NOON - 5 * SECOND_MS),
]


def test_squeue_prints_its_default_columns():
    assert render_squeue(JOBS, **NOW) == (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "                14     debug    train      ada PD       0:00      1 (Priority)\n"
        "          20_[0-3] productio    sweep      ada PD       0:00      1 (Resources)\n"
        "                12 productio    train      ada  R    1:00:23      1 gpu01\n"
        "                13 productio a-long-n    grace  R    1:00:23      2 gpu[01-02]\n"
        "              20_7 productio    sweep      ada  R       0:05      1 gpu01\n"
    )


def test_squeue_without_header_and_with_a_format_prints_only_that():
    assert render_squeue(JOBS[:2], format_short="%i|%T|%l", has_header=False, **NOW) == (
        "12|RUNNING|1-00:00:00\n13|RUNNING|UNLIMITED\n"
    )


def test_squeue_spreads_arrays_when_asked():
    shown = render_squeue(JOBS[3:7], format_short="%i %K", are_arrays_spread=True, has_header=False, **NOW)
    assert shown == "20_0 0\n20_1 1\n20_2 2\n20_3 3\n"


def test_squeue_takes_long_formats_and_orders():
    shown = render_squeue(JOBS[:3], format_long="JobID:6,UserName:.8,TimeLeft", sort="-i", has_header=False, **NOW)
    assert shown == (
        "14         ada1-00:00:00          \n13       graceUNLIMITED           \n12         ada22:59:37            \n"
    )


def test_squeue_long_begins_with_the_date():
    first, second, *_ = render_squeue(JOBS, is_long=True, **NOW).splitlines()
    assert first == "Fri Jan 15 08:00:00 2027"
    assert second == (
        "             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)"
    )


@pytest.mark.parametrize(
    "wrong", [{"format_short": "%.5?"}, {"format_short": "%y"}, {"format_long": "Foo"}, {"sort": "y"}]
)
def test_squeue_refuses_what_it_does_not_have(wrong):
    with pytest.raises(UsageError, match="Invalid"):
        render_squeue(JOBS, **wrong, **NOW)


def test_every_state_has_a_code():
    assert set(STATE_CODES) == set(JobState)
    assert len(set(STATE_CODES.values())) == len(STATE_CODES)


DEVICES = tuple(DeviceView(index=index, model="H100", state=DeviceState.FREE) for index in range(2))
USED = dataclasses.replace(DEVICES[0], state=DeviceState.USED, owners=((JobId(12), 1_000),))
NODES = [
    NodeView(name="gpu01", state=NodeState.MIXED, devices=(USED, DEVICES[1]), cpu_milli=8_000, cpu_free_milli=6_000),
    NodeView(name="gpu02", state=NodeState.IDLE, devices=DEVICES, cpu_milli=8_000, cpu_free_milli=8_000),
    NodeView(name="gpu03", state=NodeState.IDLE, devices=DEVICES, cpu_milli=8_000, cpu_free_milli=8_000),
    NodeView(name="gpu04", state=NodeState.DRAINED, devices=DEVICES, reason="fan broken"),
]
QUEUES = [QueueView(name="debug", priority=0, limit_max_ms=30 * MINUTE_MS), QueueView(name="production", priority=0)]


def test_sinfo_groups_nodes_by_state_in_each_partition():
    assert render_sinfo(NODES, QUEUES, **NOW) == (
        "PARTITION   AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"
        "debug          up      30:00      1  drain gpu04\n"
        "debug          up      30:00      1    mix gpu01\n"
        "debug          up      30:00      2   idle gpu[02-03]\n"
        "production*    up   infinite      1  drain gpu04\n"
        "production*    up   infinite      1    mix gpu01\n"
        "production*    up   infinite      2   idle gpu[02-03]\n"
    )


def test_sinfo_counts_in_summary():
    assert render_sinfo(NODES, QUEUES[:1], is_summary=True, **NOW) == (
        "PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST\ndebug        up      30:00          1/2/1/4 gpu[01-04]\n"
    )


def test_sinfo_by_node():
    assert render_sinfo(NODES[:1], QUEUES[:1], by_node=True, **NOW) == (
        "NODELIST   NODES PARTITION STATE \ngpu01          1     debug mix   \n"
    )


def test_sinfo_gives_reasons_and_devices():
    assert render_sinfo(NODES, QUEUES, are_reasons=True, **NOW) == (
        "REASON               USER      TIMESTAMP           NODELIST\n"
        "fan broken           Unknown   Unknown             gpu04\n"
    )
    assert render_sinfo(NODES[:1], QUEUES[:1], format_short="%G %C", has_header=False, **NOW) == "gpu:H100:2 2/6/0/8\n"


ENDED = [
    job(12, state=JobState.COMPLETED, end_ms=NOON),
    job(13, name="a-long-name", state=JobState.FAILED, end_ms=NOON, exit_code=2),
    job(24, array=JobId(20), array_index=7, state=JobState.OUT_OF_MEMORY, end_ms=NOON, signal=9),
]


def test_sacct_prints_its_default_columns():
    assert render_sacct(ENDED, **NOW) == (
        "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n"
        "------------ ---------- ---------- ---------- ---------- ---------- -------- \n"
        "12                train production     vision          2  COMPLETED      0:0 \n"
        "13           a-long-na+ production     vision          2     FAILED      2:0 \n"
        "20_7              train production     vision          2 OUT_OF_ME+      0:9 \n"
    )


def test_sacct_parsable_has_no_blanks():
    assert render_sacct(ENDED[:1], fields="jobid,state,elapsed,start,alloctres", delimiter="|", **NOW) == (
        "JobID|State|Elapsed|Start|AllocTRES\n"
        "12|COMPLETED|01:00:23|2027-01-15T06:59:37|billing=2,cpu=2,gres/gpu=1,mem=4G,node=1\n"
    )
    shown = render_sacct(
        ENDED[:1], fields=BRIEF_FIELDS, delimiter="|", ends_with_delimiter=True, has_header=False, **NOW
    )
    assert shown == "12|COMPLETED|0:0|\n"


def test_sacct_takes_widths():
    assert render_sacct(ENDED[1:2], fields="jobname%-12,user%3", has_header=False, **NOW) == "a-long-name  ada \n"


@pytest.mark.parametrize("fields", ["jobid,foo", "jobid%", "jobid%x", "jobid%0"])
def test_sacct_refuses_an_unknown_field(fields):
    with pytest.raises(UsageError, match="Invalid field requested"):
        render_sacct(ENDED, fields=fields, **NOW)


def test_sacct_lists_its_fields():
    assert render_field_list().startswith("Account             AllocCPUS ")


def test_qos_and_priority_are_those_of_the_job():
    jobs = [
        waiting(1, qos="high", order_priority=4_211),
        waiting(2, priority=7),
        waiting(3, reason="JobHeldUser", priority=7),
        waiting(4, reason="launch failed requeued held", state=JobState.REQUEUE_HOLD),
        job(5),
    ]
    text = render_squeue(jobs, format_short="%i %q %Q %p", has_header=False, sort="i", **NOW)
    assert text.splitlines() == [
        "1 high 4211 0.00000098044984",
        "2 normal 7 0.00000000162981",
        "3 normal 0 0.00000000000000",
        "4 normal 0 0.00000000000000",
        "5 normal 1 0.00000000023283",
    ]
    assert (
        render_sacct(jobs[:1], fields="jobid,qos,priority", delimiter="|", has_header=False, **NOW) == "1|high|4211\n"
    )
    assert "   Priority=4211 Nice=0 Account=vision QOS=high\n" in render_job(jobs[0], **NOW)


def test_squeue_lists_what_the_order_looks_at_first_first():
    jobs = [waiting(1, order_priority=10), waiting(2, order_priority=30), waiting(3, order_priority=20)]
    text = render_squeue(jobs, format_short="%i", has_header=False, **NOW)
    assert text.split() == ["2", "3", "1"]


def test_scontrol_shows_a_job():
    assert render_job(job(12), uid=1001, **NOW) == (
        "JobId=12 JobName=train\n"
        "   UserId=ada(1001) GroupId=(null) MCS_label=N/A\n"
        "   Priority=1 Nice=0 Account=vision QOS=normal\n"
        "   JobState=RUNNING Reason=None Dependency=(null)\n"
        "   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0\n"
        "   RunTime=01:00:23 TimeLimit=1-00:00:00 TimeMin=N/A\n"
        "   SubmitTime=2027-01-15T06:00:00 EligibleTime=2027-01-15T06:00:00\n"
        "   StartTime=2027-01-15T06:59:37 EndTime=2027-01-16T06:59:37 Deadline=N/A\n"
        "   PreemptEligibleTime=N/A PreemptTime=None Preemptions=0\n"
        "   Partition=production AllocNode:Sid=N/A\n"
        "   ReqNodeList=(null) ExcNodeList=(null)\n"
        "   NodeList=gpu01\n"
        "   BatchHost=gpu01\n"
        "   NumNodes=1 NumCPUs=2 NumTasks=1 CPUs/Task=N/A\n"
        "   TRES=billing=2,cpu=2,gres/gpu=1,mem=4G,node=1\n"
        "   MinMemoryNode=4G\n"
        "     Nodes=gpu01 GRES=gpu(IDX:0)\n"
        "   WorkDir=/home/ada\n"
        "   StdErr=/home/ada/slurm-12.out\n"
        "   StdIn=/dev/null\n"
        "   StdOut=/home/ada/slurm-12.out\n"
        "   TresPerNode=gres/gpu:1\n"
        "\n"
    )


def test_scontrol_counts_the_tasks_of_all_replicas():
    text = render_job(job(12, replicas=2, tasks_per_replica=4, cpu_milli=8_000), uid=1001, **NOW)
    assert " NumCPUs=8 NumTasks=8 " in text


def test_scontrol_names_files_as_the_backend_does():
    text = render_job(job(12, name="a/b", output="o/%x-%4j-%N-%t.txt", error="%N.err"), uid=1001, **NOW)
    assert "   StdOut=/home/ada/o/a_b-0012-gpu01-0.txt\n" in text
    assert "   StdErr=/home/ada/gpu01.err\n" in text
    assert "StdErr=/home/ada/%N.err\n" in render_job(waiting(12, error="%N.err"), uid=1001, **NOW)


def test_scontrol_shows_nodes_and_partitions():
    assert "   State=IDLE+DRAIN\n   Reason=fan broken\n" in render_node(NODES[3])
    assert "   Gres=gpu:H100:2\n   GresUsed=gpu:H100:1\n" in render_node(NODES[0])
    assert "Default=YES DefaultTime=NONE MaxTime=UNLIMITED" in render_partition(QUEUES[1], NODES)


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [(0, "0:00"), (59_999, "0:59"), (12 * MINUTE_MS, "12:00"), (HOUR_MS, "1:00:00"), (2 * DAY_MS, "2-00:00:00")],
)
def test_time_used_is_written_as_squeue_does(time_ms, text):
    assert render_time_used(time_ms) == text


def test_limits_are_rounded_up_to_minutes():
    assert render_time_limit(90 * SECOND_MS) == "2:00"
    assert render_time_limit(None, "infinite") == "infinite"


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu01", "gpu02", "gpu03", "gpu07"], "gpu[01-03,07]"),
        (["a1", "a2", "b1"], "a[1-2],b1"),
        (["node9", "node10"], "node[9-10]"),
        (["login"], "login"),
        ([], ""),
    ],
)
def test_host_lists_are_short(names, text):
    assert render_host_list(names) == text


OPTIONS = Options(flags=(("h", "noheader"),), values=(("u", "user"), ("", "name")))


def test_options_follow_the_rules_of_getopt():
    given = read_options("squeue", ["-hu", "ada", "--na=x", "rest"], OPTIONS)
    assert given.has("noheader")
    assert (given.get("user"), given.get("name"), given.operands) == ("ada", "x", ("rest",))


def test_an_unknown_option_is_refused():
    with pytest.raises(UsageError, match="--help"):
        read_options("squeue", ["--foo"], OPTIONS)


class OneCluster:
    """A client that answers what `scontrol show` asks."""

    def cluster(self):
        node = NodeView(name="n1", state=NodeState.IDLE)
        return ClusterView(at_ms=0, seq=1, nodes=(node,), queues=(QueueView(name="debug", priority=5),))

    def all_jobs(self, _wanted):
        return iter(())


@pytest.mark.parametrize(("kind", "names"), [("node", ["n1"]), ("partition", ["debug"]), ("jobs", [])])
def test_scontrol_shows_rows_as_json(kind, names, capsys, monkeypatch):
    monkeypatch.setattr(connection, "connect", lambda: contextlib.nullcontext(OneCluster()))
    assert scontrol.run(["--json", "show", kind]) == 0
    (rows,) = json.loads(capsys.readouterr().out).values()
    assert [row["name"] for row in rows] == names
