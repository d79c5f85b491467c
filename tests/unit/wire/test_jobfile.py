"""Job files: every key, arrays, dependencies by name, notes, and errors that a person can act upon."""

import json

import pytest

from clearway.model.errors import InputError
from clearway.model.ids import DEFAULT_QUEUE, ROOT_TENANT
from clearway.model.jobs import (
    ArrayMember,
    Checkpoint,
    Dependency,
    DependencyKind,
    DomainLevel,
    Elastic,
    JobKind,
    JobSpec,
    Network,
    Request,
)
from clearway.model.runs import Launch
from clearway.model.units import DAY_MS, GIB, HOUR_MS, MINUTE_MS
from clearway.wire.jobfile import parse_job_file

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00Z

EVERY_KEY = """
name: llama
kind: finetune
replicas: 4
resources:
  gpus: 8
  gpu_model: [H100, H200]
  gpu_memory: 80GB
  cpus: 96
  memory: 1TB
  labels: {zone: a, disk: nvme}
  exclusive: true
network: {widest: block, preferred: leaf, fabric: infiniband}
elastic: {min: 2, max: 8, speedup: {1: 1.0, 2: 1.9, 8: 6.5}}
checkpoint: {interval: 30m, cost: 20s, restart: 2m, grace: 1m, on_signal: false}
time_limit: 2-12
estimate: 2d
priority: -5
qos: high
queue: urgent
tenant: vision
preemptible: false
suspendable: true
hold: true
depends_on: [12, "afterany:13:14", {afternotok: 15}, singleton]
begin: now+1hour
deadline: 2026-02-01T00:00Z
latency_target: 100ms
command: [python, train.py, --name, "a b"]
setup: pip install -r requirements.txt
workdir: /home/ann/llama
image: pytorch:2
env: {LEARNING_RATE: 1.10, SEED: 007, DEBUG: true, EMPTY: ""}
inherit_env: false
input: /dev/null
output: "log-%j.out"
error: "log-%j.err"
append: true
"""


def parse(text, first_id=1):
    return parse_job_file(text, source="job.yaml", now_ms=NOW_MS, first_id=first_id, user="ann")


def refuse(text):
    with pytest.raises(InputError) as caught:
        parse(text)
    return str(caught.value).splitlines()


def test_every_key_reaches_the_job():
    (job,) = parse(EVERY_KEY, first_id=100).jobs
    assert job == JobSpec(
        id=100,
        request=Request(
            devices=8,
            device_memory_bytes=80 * GIB,
            device_models=("H100", "H200"),
            cpu_milli=96_000,
            memory_bytes=1024 * GIB,
            node_labels=(("disk", "nvme"), ("zone", "a")),
            exclusive=True,
        ),
        replicas=4,
        name="llama",
        user="ann",
        tenant="vision",
        queue="urgent",
        kind=JobKind.FINETUNE,
        priority=-5,
        qos="high",
        limit_ms=60 * HOUR_MS,
        estimate_ms=2 * DAY_MS,
        network=Network(widest=DomainLevel.BLOCK, preferred=DomainLevel.LEAF, fabric="infiniband", is_named=True),
        elastic=Elastic(replicas_min=2, replicas_max=8, speedup=((1, 1.0), (2, 1.9), (8, 6.5))),
        checkpoint=Checkpoint(
            interval_ms=30 * MINUTE_MS, cost_ms=20_000, restart_ms=2 * MINUTE_MS, grace_ms=MINUTE_MS, on_signal=False
        ),
        preemptible=False,
        suspendable=True,
        held=True,
        dependencies=(
            Dependency(kind=DependencyKind.AFTER_OK, job=12),
            Dependency(kind=DependencyKind.AFTER_ANY, job=13),
            Dependency(kind=DependencyKind.AFTER_ANY, job=14),
            Dependency(kind=DependencyKind.AFTER_NOT_OK, job=15),
            Dependency(kind=DependencyKind.SINGLETON),
        ),
        not_before_ms=NOW_MS + HOUR_MS,
        deadline_ms=NOW_MS + 31 * DAY_MS,
        latency_target_ms=100,
    )


def test_every_key_of_running_reaches_the_run():
    run = parse(EVERY_KEY).run
    assert run.script == "python train.py --name 'a b'"
    assert run.setup == "pip install -r requirements.txt"
    assert run.launch is Launch.EVERY_REPLICA
    assert (run.workdir, run.image, run.append) == ("/home/ann/llama", "pytorch:2", True)
    assert (run.input, run.output, run.error) == ("/dev/null", "log-%j.out", "log-%j.err")
    assert not run.inherits_environment


def test_variables_keep_the_text_that_was_written():
    environment = dict(parse(EVERY_KEY).run.environment)
    assert environment == {"LEARNING_RATE": "1.10", "SEED": "007", "DEBUG": "true", "EMPTY": ""}


def test_what_is_left_out_is_the_model_s_default():
    (job,) = parse("run: hostname").jobs
    assert job == JobSpec(id=1, request=Request(devices=0), user="ann")
    assert (job.queue, job.tenant) == (DEFAULT_QUEUE, ROOT_TENANT)


def test_json_is_read_as_yaml_is():
    text = json.dumps({"run": "x", "time_limit": "30:00", "resources": {"gpus": "A100:40GB:2"}}, indent="\t")
    (job,) = parse(text).jobs
    assert job.limit_ms == 30 * MINUTE_MS
    assert (job.request.devices, job.request.device_models) == (2, ("A100",))
    assert job.request.device_memory_bytes == 40 * GIB


def test_units_are_echoed_as_they_were_understood():
    notes = parse(
        "run: x\ntime_limit: 30:00\nestimate: 2-12\nresources: {memory: 64GB, cpus: 0.5, gpu_fraction: 0.4}"
    ).notes
    assert notes == (
        "time_limit: 30:00 is 30 minutes",
        "estimate: 2-12 is 2 days 12 hours",
        "resources.memory: 64GB is 64GiB",
        "resources.gpu_fraction: 0.4 is 400 thousandths of one device",
        "resources.cpus: 0.5 is 500m CPUs",
    )


def test_a_fraction_is_part_of_one_device():
    (job,) = parse("{run: x, resources: {gpu_fraction: 40%, gpu_memory: 10GB..}}").jobs
    assert job.request == Request(devices=1, share_milli=400, device_memory_bytes=10 * GIB)


def test_an_elastic_job_asks_for_its_most_unless_it_says_otherwise():
    assert parse("{run: x, elastic: {min: 2, max: 8}}").jobs[0].replicas == 8
    assert parse("{run: x, replicas: 4, elastic: {min: 2, max: 8}}").jobs[0].replicas == 4


def test_a_network_narrower_than_a_node_prefers_that():
    network = parse("{run: x, network: {widest: nvlink}}").jobs[0].network
    assert network.preferred is DomainLevel.NVLINK


def test_an_array_becomes_numbered_members():
    submission = parse('{name: sweep, run: x, array: "1-10:4%2"}', first_id=50)
    assert [(job.id, job.array) for job in submission.jobs] == [
        (50, ArrayMember(array=50, index=1, parallel_max=2)),
        (51, ArrayMember(array=50, index=5, parallel_max=2)),
        (52, ArrayMember(array=50, index=9, parallel_max=2)),
    ]
    assert len({id(run) for run in submission.runs}) == 1


def test_jobs_of_a_file_name_one_another_even_ahead():
    text = """
jobs:
- {name: last, run: x, depends_on: [middle, "afterany:first"]}
- {name: first, run: x}
- {name: middle, run: x, array: 1-2, depends_on: first}
"""
    jobs = parse(text, first_id=7).jobs
    assert [(job.id, job.name) for job in jobs] == [(7, "last"), (8, "first"), (9, "middle"), (10, "middle")]
    assert jobs[0].dependencies == (
        Dependency(kind=DependencyKind.AFTER_OK, job=9),
        Dependency(kind=DependencyKind.AFTER_OK, job=10),
        Dependency(kind=DependencyKind.AFTER_ANY, job=8),
    )
    assert jobs[3].dependencies == (Dependency(kind=DependencyKind.AFTER_OK, job=8),)


@pytest.mark.parametrize("wanted", ["'afterok:first?afterany:many'", "{any: ['afterok:first', 'afterany:many']}"])
def test_any_one_job_of_a_file_may_be_enough_and_an_array_counts_as_one(wanted):
    text = f"jobs:\n- {{name: last, run: x, depends_on: {wanted}}}\n- {{name: first, run: x}}\n"
    jobs = parse(text + "- {name: many, run: x, array: 1-2}", first_id=7).jobs
    assert jobs[0].depends_on_any
    assert jobs[0].dependencies == (
        Dependency(kind=DependencyKind.AFTER_OK, job=8),
        Dependency(kind=DependencyKind.AFTER_ANY, job=9),
    )
    assert not jobs[1].depends_on_any


def test_minutes_after_a_start_and_single_tasks_are_read():
    text = "jobs:\n- {name: first, run: x}\n- {run: x, depends_on: ['after:first+5', 'afterok:12_3']}"
    assert parse(text, first_id=7).jobs[1].dependencies == (
        Dependency(kind=DependencyKind.AFTER, job=7, delay_ms=300_000),
        Dependency(kind=DependencyKind.AFTER_OK, job=12, task=3),
    )


def test_aftercorr_pairs_task_with_task():
    text = """
jobs:
- {name: make, run: x, array: 1-3}
- {name: use, run: x, array: 1-3, depends_on: {aftercorr: make}}
"""
    jobs = parse(text).jobs
    pairs = [(job.id, [dependency.job for dependency in job.dependencies]) for job in jobs[3:]]
    assert pairs == [(4, [1]), (5, [2]), (6, [3])]


def test_aftercorr_of_unequal_arrays_is_an_error():
    (line,) = refuse(
        "jobs:\n- {name: a, run: x, array: 1-3}\n- {name: b, run: x, array: 1-2, depends_on: 'aftercorr:a'}"
    )
    assert line.startswith("job.yaml:3: jobs[1].depends_on: expected an array with the same tasks, found 'a'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "jobs:\n- {name: train, run: x, depends_on: prepar}\n- {name: prepare, run: x}",
            "job.yaml:2: jobs[0].depends_on: expected the name of a job in this file, or a job number, found 'prepar'; "
            "did you mean 'prepare'?",
        ),
        (
            "jobs:\n- {name: a, run: x}\n- {name: a, run: x}\n- {name: b, run: x, depends_on: a}",
            "job.yaml:4: jobs[2].depends_on: expected a name that one job has, found 'a'; "
            "give the jobs different names",
        ),
        (
            "jobs:\n- {name: a, run: x, depends_on: b}\n- {name: b, run: x, depends_on: a}",
            "job.yaml:2: jobs[0].depends_on: expected jobs that do not wait for one another in a circle, "
            "found 'a → b → a'; remove one of them",
        ),
        (
            "name: a\nrun: x\ndepends_on: a",
            "job.yaml:3: depends_on: expected jobs that do not wait for one another in a circle, "
            "found 'a → a'; remove one of them",
        ),
    ],
)
def test_references_that_lead_nowhere_are_told_with_their_place(text, message):
    assert refuse(text) == [message]


def test_an_unknown_key_gives_file_line_what_was_expected_and_a_hint():
    (line,) = refuse("run: x\nresources:\n  gpus: 8\n  memroy: 64GB\n")
    assert line == (
        "job.yaml:4: resources.memroy: expected one of gpus, gpu_model, gpu_memory, gpu_fraction, cpus, memory, "
        "labels, exclusive, found 'memroy'; did you mean 'memory'?"
    )


@pytest.mark.parametrize(("gpus", "part"), [("0.5", "0.5"), ("H100:0.25", "0.25"), ("40%", "40%")])
def test_who_asks_for_part_of_a_gpu_is_told_the_key_that_gives_it(gpus, part):
    (line,) = refuse(f"run: x\nresources: {{gpus: {gpus}}}")
    assert line.startswith("job.yaml:2: resources.gpus: expected a number of devices or MODEL:COUNT")
    assert line.endswith(f"; part of one device is a key of its own: gpu_fraction: {part}")
    assert parse(f"run: x\nresources: {{gpu_fraction: {part}}}").jobs[0].request.share_milli < 1000


@pytest.mark.parametrize("gpus", ["1.5", "2.0.5", "true"])
def test_what_is_no_part_of_one_gpu_is_not_sent_to_the_key_for_parts(gpus):
    assert "gpu_fraction" not in refuse(f"run: x\nresources: {{gpus: {gpus}}}")[0]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("num_nodes", "did you mean 'replicas'?"),
        ("partition", "did you mean 'queue'?"),
        ("walltime", "did you mean 'time_limit'?"),
        ("gpus", "write 'gpus' inside of 'resources'"),
        ("accelerators", "write 'gpus' inside of 'resources'"),
        ("xyzzy", "remove it, or look up the keys of this file"),
    ],
)
def test_words_of_other_systems_are_led_to_ours(key, hint):
    (line,) = refuse(f"run: x\n{key}: 8")
    assert line.startswith(f"job.yaml:2: {key}: expected one of name, kind, replicas")
    assert line.endswith(hint)


def test_all_errors_of_a_file_are_told_at_once_by_line():
    lines = refuse(
        "name: 5\nreplicas: 0\nkind: training\nresources:\n  gpus: true\n  memory: 64\n"
        "time_limit: 30\nelastic: {min: 4, max: 2}\nenv: {1X: a, B: [1]}\nbegin: soon\nrun: x\n"
        "hold: 1\npriority: high\n"
    )
    assert [line.split(": ")[:2] for line in lines] == [
        ["job.yaml:1", "name"],
        ["job.yaml:2", "replicas"],
        ["job.yaml:3", "kind"],
        ["job.yaml:5", "resources.gpus"],
        ["job.yaml:6", "resources.memory"],
        ["job.yaml:7", "time_limit"],
        ["job.yaml:8", "elastic.max"],
        ["job.yaml:9", "env.1X"],
        ["job.yaml:9", "env.B"],
        ["job.yaml:10", "begin"],
        ["job.yaml:12", "hold"],
        ["job.yaml:13", "priority"],
    ]
    assert all("expected" in line and "found" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{run: x, resources: {gpus: 2, gpu_fraction: 0.5}}", "resources.gpus"),
        ("{run: x, resources: {gpus: 0, gpu_model: A100}}", "resources.gpus"),
        ("{run: x, resources: {gpus: 'A100:2', gpu_model: A100}}", "resources.gpu_model"),
        ("{run: x, resources: {gpus: 'A100:40GB:2', gpu_memory: 40GB}}", "resources.gpu_memory"),
        ("{run: x, resources: {gpu_memory: 24GB..40GB}}", "resources.gpu_memory"),
        ("{run: x, network: {widest: leaf, preferred: site}}", "network.preferred"),
        ("{run: x, replicas: 9, elastic: {min: 2, max: 8}}", "replicas"),
        ("{run: x, elastic: {min: 1, max: 2, speedup: {2: 1.0, 1: 2.0}}}", "elastic.speedup"),
        ("{run: x, elastic: {min: 1, max: 2, speedup: [[1]]}}", "elastic.speedup"),
        ("{run: x, elastic: {min: 1, max: 2, speedup: 3}}", "elastic.speedup"),
        ("{run: x, elastic: {max: 2}}", "elastic.min"),
        ("{run: x, checkpoint: {interval: 0}}", "checkpoint.interval"),
        ("{run: x, checkpoint: {interval: 5m, cost: 5}}", "checkpoint.cost"),
        ("{run: x, deadline: 2020-01-01}", "deadline"),
        ("{run: x, begin: 2027-01-01, deadline: 2026-12-01}", "deadline"),
        ("{run: x, array: 3-1}", "array"),
        ("{run: x, time_limit: }", "time_limit"),
        ("{run: x, begin: null}", "begin"),
        ("{run: x, resources: }", "resources"),
        ("{run: x, depends_on: [afterfoo:1]}", "depends_on"),
        ("{run: x, depends_on: [0]}", "depends_on"),
        ("{run: x, depends_on: 'singleton:1'}", "depends_on"),
        ("{run: x, depends_on: 'afterok:12_x'}", "depends_on"),
        ("{run: x, depends_on: 'afterok:12+5'}", "depends_on"),
        ("{run: x, depends_on: ['1?2', 3]}", "depends_on"),
        ("{run: x, depends_on: {any: [1, 2], afterok: 3}}", "depends_on"),
        ("{name: nothing}", "run"),
        ("{run: x, command: [y]}", "run"),
        ("{command: []}", "command"),
        ("{run: x, env: {A: null}}", "env.A"),
        ("{jobs: []}", "jobs"),
        ("{jobs: [{run: x}], run: y}", "run"),
    ],
)
def test_what_contradicts_itself_is_an_error_at_its_key(text, field):
    (line,) = refuse(text)
    assert line.startswith(f"job.yaml:1: {field}: expected ")


def test_an_empty_file_is_an_error():
    assert refuse("") == ["job.yaml: expected a mapping, found nothing; the file is empty"]


def test_a_file_with_more_jobs_than_can_be_kept_is_an_error():
    entries = "\n".join(f"- {{name: a{index}, run: x, array: 0-59999}}" for index in range(2))
    (line,) = refuse(f"jobs:\n{entries}")
    assert "at most 100000 jobs, found 120000" in line
