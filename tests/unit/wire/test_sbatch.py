"""Batch scripts as people have them: what each option becomes, what is noted, what is refused."""

import pytest

from clearway.model.errors import InputError
from clearway.model.jobs import Checkpoint, Dependency, DependencyKind, DomainLevel, JobSpec, Network, Request
from clearway.model.runs import Launch, LimitSignal
from clearway.model.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MINUTE_MS
from clearway.wire.sbatch import parse_sbatch

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00Z


def parse_text(text, first_id=1):
    return parse_sbatch(text, source="jobs/train.sh", now_ms=NOW_MS, first_id=first_id, user="ann")


def parse(*options, first_id=1):
    lines = "".join(f"#SBATCH {option}\n" for option in options)
    return parse_text(f"#!/bin/bash\n{lines}srun python train.py\n", first_id)


def job_of(*options):
    return parse(*options).jobs[0]


def refuse(*options):
    with pytest.raises(InputError) as caught:
        parse(*options)
    return str(caught.value).splitlines()


def test_a_script_without_options_is_one_cpu_without_gpus():
    submission = parse()
    assert submission.jobs == (JobSpec(id=1, request=Request(devices=0, cpu_milli=1000), name="train.sh", user="ann"),)
    assert submission.run.launch is Launch.FIRST_REPLICA
    assert submission.run.script == "#!/bin/bash\nsrun python train.py\n"


def test_minus_t_thirty_zero_is_thirty_minutes():
    submission = parse("-t 30:00")
    assert submission.jobs[0].limit_ms == 30 * MINUTE_MS
    assert "--time 30:00 is 30 minutes" in submission.notes


def test_minus_t_two_twelve_is_sixty_hours():
    assert job_of("-t 2-12").limit_ms == 60 * HOUR_MS


def test_a_limit_is_rounded_up_to_minutes_and_zero_is_none():
    assert job_of("-t 0:30").limit_ms == MINUTE_MS
    assert job_of("-t 0").limit_ms is None


def test_mem_of_512k_is_not_nothing():
    assert job_of("--mem=512K").request.memory_bytes == 512 * KIB


def test_a_bad_unit_is_an_error_with_file_line_expectation_and_hint():
    (line,) = refuse("-N 1", "--mem=64X")
    assert line == (
        "jobs/train.sh:3: --mem: expected a whole number with K, M, G, T or P (1024-based; without a letter: MiB), "
        "found '64X'; for one and a half GiB write 1536M"
    )


@pytest.mark.parametrize("option", ["--nodes=3", "--nodes 3", "-N3", "-N 3", '--nodes="3"', "'-N' 3  # three nodes"])
def test_every_way_to_write_a_value_is_read(option):
    assert job_of(option).replicas == 3


def test_options_end_at_the_first_command():
    text = "#!/bin/sh\n\n# comment\n## SBATCH -N 9\n#SBATCH -N 2\n  # indented\ncd /tmp\n#SBATCH -N 5\n"
    submission = parse_text(text)
    assert submission.jobs[0].replicas == 2
    assert "line 8: not read, as in Slurm: options end at the first command (line 7)" in submission.notes


def test_of_an_option_given_twice_the_later_counts():
    assert job_of("-N 2", "-N 4").replicas == 4


def test_flags_in_one_word_are_read():
    submission = parse("-HQ")
    assert submission.jobs[0].held
    assert "line 2: --quiet is known, but not acted upon" in submission.notes


@pytest.mark.parametrize(
    ("options", "replicas", "devices", "cpus"),
    [
        (["-N 2", "--gres=gpu:4"], 2, 4, 1),
        (["-N 2", "--gres=gpu", "--ntasks-per-node=4", "-c 8"], 2, 1, 32),
        (["-N 2", "--gpus-per-node=4", "--cpus-per-gpu=6"], 2, 4, 24),
        (["-N 2", "-G 8"], 2, 4, 1),
        (["-n 8", "--ntasks-per-node=4", "--gpus-per-task=1"], 2, 4, 4),
        (["-G 8", "--gpus-per-node=4"], 2, 4, 1),
        (["-G 8", "--gpus-per-task=1", "--ntasks-per-node=4"], 2, 4, 4),
        (["-n 16"], 16, 0, 1),
        (["-n 16", "--gpus-per-task=1"], 16, 1, 1),
        (["-n 16", "--mem=4G"], 1, 0, 16),
        (["-n 4", "--gres=gpu:2"], 1, 2, 4),
        (["-G 8"], 1, 8, 1),
        (["-N 4", "-n 2"], 2, 0, 1),
        (["-N 3", "-n 7"], 3, 0, 3),
        (["-N 2-4"], 2, 0, 1),
    ],
)
def test_nodes_tasks_and_gpus_become_equal_replicas(options, replicas, devices, cpus):
    job = job_of(*options)
    assert (job.replicas, job.request.devices, job.request.cpu_milli) == (replicas, devices, cpus * 1000)


def test_memory_is_counted_per_node_per_cpu_or_per_gpu():
    assert job_of("-N 2", "--mem=100").request.memory_bytes == 100 * MIB
    assert job_of("-c 4", "--mem-per-cpu=2G").request.memory_bytes == 8 * GIB
    assert job_of("--gres=gpu:4", "--mem-per-gpu=32G").request.memory_bytes == 128 * GIB


def test_mem_of_zero_takes_the_whole_node():
    submission = parse("--mem=0")
    assert submission.jobs[0].request.exclusive
    assert "--mem 0 is all memory of the node, which is then not shared" in submission.notes


def test_types_of_gpus_become_models():
    assert job_of("--gres=gpu:a100:2").request.device_models == ("a100",)
    assert job_of("-G h100:2").request.device_models == ("h100",)
    assert job_of("--gres=gpu:a100").request.devices == 1


def test_who_and_where_reach_the_job():
    job = job_of("-J 'my run'", "-p gpu,long", "-A vision", "-q high", "--nice=5", "-C 'ib&zone=a'", "--exclusive")
    assert (job.name, job.queue, job.tenant, job.qos, job.priority) == ("my run", "gpu", "vision", "high", -5)
    assert job.request.node_labels == (("feature", "ib"), ("zone", "a"))
    assert job.request.exclusive


def test_any_one_dependency_may_be_enough():
    job = job_of("-d 'afterok:12:13?afterany:14'")
    assert [dependency.job for dependency in job.dependencies] == [12, 13, 14]
    assert job.depends_on_any
    assert not job_of("-d afterok:12:13,afterany:14").depends_on_any


def test_minutes_after_a_start_and_single_tasks_reach_the_job():
    job = job_of("-d after:12+30:13,afterok:14_3,after:15_0+1")
    assert job.dependencies == (
        Dependency(kind=DependencyKind.AFTER, job=12, delay_ms=30 * MINUTE_MS),
        Dependency(kind=DependencyKind.AFTER, job=13),
        Dependency(kind=DependencyKind.AFTER_OK, job=14, task=3),
        Dependency(kind=DependencyKind.AFTER, job=15, task=0, delay_ms=MINUTE_MS),
    )


def test_times_and_dependencies_reach_the_job():
    job = job_of("--begin=now+1hour", "--deadline=2026-01-02", "-d afterok:12:13,singleton,5", "-H", "--no-requeue")
    assert (job.not_before_ms, job.deadline_ms) == (NOW_MS + HOUR_MS, NOW_MS + DAY_MS)
    assert job.dependencies == (
        Dependency(kind=DependencyKind.AFTER_OK, job=12),
        Dependency(kind=DependencyKind.AFTER_OK, job=13),
        Dependency(kind=DependencyKind.SINGLETON),
        Dependency(kind=DependencyKind.AFTER_ANY, job=5),
    )
    assert job.held
    assert (job.preemptible, job.requeue) == (False, False)


@pytest.mark.parametrize(
    ("options", "network"),
    [
        (["-N 4", "--switches=1"], Network(widest=DomainLevel.LEAF)),
        (["-N 4", "--switches=1@10"], Network(preferred=DomainLevel.LEAF)),
        (["-N 4", "--switches=2"], Network(preferred=DomainLevel.LEAF)),
        (["-N 4", "--segment=4"], Network(widest=DomainLevel.BLOCK)),
        (["-N 4", "--segment=2"], Network(preferred=DomainLevel.BLOCK)),
    ],
)
def test_switches_and_segments_become_network_domains(options, network):
    assert job_of(*options).network == network


def test_an_array_becomes_numbered_members():
    jobs = parse("-a 1-10:4%2", first_id=50).jobs
    assert [(job.id, job.array.array, job.array.index, job.array.parallel_max) for job in jobs] == [
        (50, 50, 1, 2),
        (51, 50, 5, 2),
        (52, 50, 9, 2),
    ]


def test_how_to_run_reaches_the_run():
    run = parse(
        "-D /work -i in -o out-%j -e err-%j --open-mode=append",
        "--export=ALL,SEED=1,PATH",
        "--signal=B:USR1@120",
        "-w gpu[1-2] -x gpu9",
        "-N 2 --ntasks-per-node=4",
    ).run
    assert (run.workdir, run.input, run.output, run.error, run.append) == ("/work", "in", "out-%j", "err-%j", True)
    assert (run.environment, run.inherited_names, run.inherits_environment) == ((("SEED", "1"),), ("PATH",), True)
    assert run.limit_signal == LimitSignal(signal="SIGUSR1", before_ms=120_000, shell_only=True)
    assert (run.nodes, run.nodes_excluded, run.tasks_per_replica) == (("gpu1", "gpu2"), ("gpu9",), 4)


def test_named_nodes_are_part_of_what_the_planner_is_asked():
    request = parse("-w gpu[1-2] -x gpu9").jobs[0].request
    assert (request.nodes, request.nodes_excluded) == (("gpu1", "gpu2"), ("gpu9",))


def test_a_signal_without_a_time_comes_sixty_seconds_before_the_limit():
    assert parse("--signal=10").run.limit_signal == LimitSignal(signal="SIGUSR1", before_ms=60_000)


def test_a_signal_beside_requeue_says_that_the_job_saves_when_it_comes():
    submission = parse("--signal=B:USR1@120 --requeue -t 60")
    assert submission.jobs[0].checkpoint == Checkpoint(interval_ms=HOUR_MS, cost_ms=120_000, grace_ms=120_000)
    assert any("has 120 s to save" in note for note in submission.notes)
    assert job_of("--signal=B:USR1@120").checkpoint is None
    assert job_of("--requeue").checkpoint is None


def test_tasks_of_an_array_see_how_large_it_is():
    assert ("SLURM_ARRAY_TASK_COUNT", "3") in parse("-a 1-3").run.environment
    assert not parse().run.environment


def test_export_none_inherits_nothing():
    run = parse("--export=NONE").run
    assert not run.inherits_environment


def test_parts_that_may_share_a_node_are_noted():
    said = "--nodes 2: parts may share a node that has room for them"
    assert said in parse("-N 2").notes
    assert said not in parse("-N 2 --exclusive").notes
    assert not any("share" in note for note in parse("-N 1").notes)


def test_tasks_that_are_not_even_on_their_nodes_are_said_to_be_counted_as_if_they_were():
    said = "3 tasks are not even on 2 nodes: 2 on each are counted"
    assert said in parse("-N 2 -n 3").notes
    assert not any("even" in note for note in parse("-N 2 -n 4").notes)


def test_what_is_known_but_not_acted_upon_is_noted_with_its_line():
    notes = parse("--mail-type=ALL", "--time-min=10 -t 20", "--gres=gpu:1,nvme:1", "--exclusive=user").notes
    assert "line 2: --mail-type is known, but not acted upon" in notes
    assert "--time-min 10 is 10 minutes, but not acted upon: -t counts" in notes
    assert "--gres nvme is known, but not acted upon" in notes
    assert "--exclusive=user is taken as --exclusive: no other job at all" in notes


def test_the_shape_is_told():
    assert (
        "2 replicas, each on one node, each of 4 GPUs, 8 CPUs, 64GiB memory"
        in parse("-N 2 --gres=gpu:4 -c 8 --mem=64G").notes
    )


def test_nothing_is_told_of_memory_that_was_not_asked_for():
    assert "2 replicas, each on one node, each of 4 GPUs, 8 CPUs" in parse("-N 2 --gres=gpu:4 -c 8").notes


def test_an_unknown_option_is_an_error_with_its_line_and_the_nearest_name():
    assert refuse("-N 1", "--gpu-per-node=2") == [
        "jobs/train.sh:3: expected an option of sbatch, found '--gpu-per-node'; did you mean '--gpus-per-node'?"
    ]


def test_all_errors_are_told_at_once_by_line():
    lines = refuse(
        "-t 1h", "--mem=1 --mem-per-cpu=2", "--foo", "--gres=gpu:2 --gpus-per-node=2", "-a 3-1", "'open", "-c"
    )
    assert [line.split(":")[1] for line in lines] == ["2", "3", "4", "5", "6", "7", "8"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mem=1G --mem-per-gpu=1G"], "--mem-per-gpu: expected one of them, found '--mem and --mem-per-gpu'"),
        (["--gres=gpu:1 --gpus-per-node=1"], "--gpus-per-node: expected one of them"),
        (["--gres=gpu:-1"], "--gres: expected resources such as gpu:2 or gpu:a100:2, found 'gpu:-1'"),
        (["--gpus=-1:2"], "--gpus: expected a number of GPUs"),
        (["--requeue --no-requeue"], "--no-requeue: expected one of them"),
        (["-N 2 -G 7"], "--gpus: expected a multiple of 2 (the nodes), found 7"),
        (["-G 7 --gpus-per-node=4"], "--gpus: expected a multiple of 4"),
        (["-N 1 -n 2 -G 4 --gpus-per-task=1"], "--gpus: expected 2 GPUs per node, as --gpus-per-task says, found 4"),
        (["-N 2 --gres=gpu:a100:2 -G h100:4"], "--gpus: expected one type of GPU, found 'a100 and h100'"),
        (["--gpus=a100:2,h100:2"], "--gpus: expected a number of GPUs"),
        (["--gres=gpu:a100:2,gpu:h100:2"], "--gres: expected resources"),
        (["--gres=shard:2"], "--gres: expected resources such as gpu:2 or gpu:a100:2, found 'shard:2'"),
        (["--gpus-per-socket=2"], "--gpus-per-socket: expected options that can be kept"),
        (["-N 2 -n 9 --ntasks-per-node=4"], "--ntasks: expected at most 8 tasks, found 9"),
        (["--mem-per-gpu=1G"], "--mem-per-gpu: expected GPUs with --mem-per-gpu"),
        (["-t 10 --time-min=20"], "--time-min: expected at most the time of -t, found '20'"),
        (["--deadline=2020-01-01"], "--deadline: expected a time after 2026-01-01T00:00:00Z"),
        (["-N 0"], "--nodes: expected a number of nodes"),
        (["-N 4-2"], "--nodes: expected a number of nodes"),
        (["-N x"], "--nodes: expected a number of nodes"),
        (["-c 0"], "--cpus-per-task: expected a whole number of at least 1"),
        (["-C 'a|b'"], "--constraint: expected features that must all be there"),
        (["-d 'afterok:1?afterok:2,after:3'"], "--dependency: expected a dependency"),
        (["-d afterok:1+5"], "--dependency: expected a dependency"),
        (["-d 'afterok:1_*'"], "--dependency: expected a dependency"),
        (["-d after:1+"], "--dependency: expected a dependency"),
        (["-d afterok:train"], "--dependency: expected a dependency"),
        (["-d expand:1"], "--dependency: expected a dependency"),
        (["--signal=FOO@1"], "--signal: expected a signal"),
        (["--signal=USR1@x"], "--signal: expected a signal"),
        (["--signal=99"], "--signal: expected a signal"),
        (["--open-mode=new"], "--open-mode: expected append or truncate"),
        (["--exclusive=all"], "--exclusive: expected --exclusive, or --exclusive=user"),
        (["--nice=low"], "--nice: expected a whole number"),
        (["--export=A-B"], "--export: expected ALL, NONE, or variables"),
        (["--hold=yes"], "--hold: expected no value, found 'yes'"),
        (["-J ''"], "--job-name: expected a text"),
        (["-J '\x1b[2J'"], "--job-name: expected a text of printable characters"),
        (["word"], "expected an option of sbatch, found 'word'"),
        (["-Z"], "expected an option of sbatch, found '-Z'"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_kept_is_an_error(options, message):
    (line,) = refuse(*options)
    assert line.startswith(f"jobs/train.sh:2: {message}")


@pytest.mark.parametrize("text", ["", "srun x\n", "#!/bin/sh\r\nsrun x\r\n"])
def test_what_is_not_a_batch_script_is_an_error(text):
    with pytest.raises(InputError, match=r"jobs/train\.sh:1: expected"):
        parse_text(text)


def submit_with(*options: str, script: str = "#!/bin/sh\n#SBATCH -J night -n 2 --mem=4G\nsrun x\n"):
    return parse_sbatch(script, source="jobs/train.sh", now_ms=NOW_MS, first_id=1, user="ada", options=options)


def test_options_of_the_command_line_go_before_the_scripts_own():
    parsed = submit_with("--job-name=day", "-c", "4")
    assert (parsed.jobs[0].name, parsed.jobs[0].replicas) == ("day", submit_with().jobs[0].replicas)
    assert parsed.jobs[0].request.cpu_milli > submit_with().jobs[0].request.cpu_milli
    assert "#SBATCH -J night" in parsed.run.script


def test_an_option_of_the_command_line_takes_the_place_of_what_it_excludes():
    parsed = submit_with("--mem-per-cpu=1G")
    assert parsed.jobs[0].request.memory_bytes == GIB * parsed.jobs[0].request.cpu_milli // 1000
    with pytest.raises(InputError, match="one of them"):
        submit_with("--mem=4G", "--mem-per-cpu=1G")


def test_an_error_of_the_command_line_names_no_line_of_the_script():
    with pytest.raises(InputError, match=r"^jobs/train\.sh: --nodes: expected a number of nodes"):
        submit_with("-N", "0")
