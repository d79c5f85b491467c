"""Jobs as real processes: what they see, how they end, and what is told of it."""

import os
import signal
from pathlib import Path

import pytest

from clearway.model.events import JobFinished, JobPreparing, JobStarted, JobStopped
from clearway.model.jobs import Outcome, Request, StopCause
from clearway.model.plan import Stop
from clearway.model.runs import Launch, LimitSignal
from support.benches import wait_until
from support.local import LocalBench, let_others_pass, local_bench

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        yield bench


def finish(bench: LocalBench, job: int) -> JobFinished:
    event = bench.wait(JobFinished, job)
    assert isinstance(event, JobFinished)
    return event


def test_job_that_ends_well_is_completed_with_its_output_in_the_working_directory(bench):
    bench.add(1, "echo hello from $PWD; echo error >&2")
    bench.start(1)
    assert finish(bench, 1).outcome is Outcome.COMPLETED
    assert bench.output(1) == f"hello from {bench.workdir}\nerror\n"
    assert [type(event) for event in bench.of(1)] == [JobStarted, JobFinished]


def test_exit_code_and_signal_are_told(bench):
    bench.add(1, "exit 3")
    bench.add(2, "kill -9 $$")
    bench.start(1)
    bench.start(2)
    assert (finish(bench, 1).exit_code, finish(bench, 1).signal) == (3, 0)
    assert (finish(bench, 2).exit_code, finish(bench, 2).signal) == (0, 9)
    assert finish(bench, 2).outcome is Outcome.FAILED


def test_script_is_run_by_the_interpreter_that_it_names(bench):
    bench.add(1, "#!/usr/bin/env python3\nimport sys; print('python', sys.argv[1:])", run={"args": ("a b", "$c")})
    bench.start(1)
    finish(bench, 1)
    assert bench.output(1) == "python ['a b', '$c']\n"


def test_gang_meets_by_the_variables_that_every_replica_gets(bench):
    bench.add(5, "echo $RANK/$WORLD_SIZE on $SLURMD_NODENAME gpus $CUDA_VISIBLE_DEVICES local $LOCAL_RANK", replicas=3,
              request=Request(devices=2))  # fmt: skip
    bench.start(5, 1, (0, (0, 1)), (0, (2, 3)), (1, (1, 3)))
    finish(bench, 5)
    assert sorted(bench.output(5).splitlines()) == [
        "0/3 on n0 gpus 0,1 local 0",
        "1/3 on n0 gpus 2,3 local 1",
        "2/3 on n1 gpus 1,3 local 0",
    ]


def test_first_replica_alone_runs_a_script_that_starts_the_rest(bench):
    bench.add(5, "echo $SLURM_NTASKS $SLURM_JOB_NODELIST", replicas=2, run={"launch": Launch.FIRST_REPLICA})
    bench.start(5, 1, (0, (0,)), (1, (0,)))
    finish(bench, 5)
    assert bench.output(5) == "2 n0,n1\n"


def test_script_that_starts_the_rest_sees_all_that_the_job_holds_of_its_node(bench):
    script = "echo $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS $SLURM_GPUS_ON_NODE $SLURM_CPUS_ON_NODE $SLURM_NNODES"
    bench.add(5, script, replicas=3, request=Request(devices=1, cpu_milli=2000),
              run={"launch": Launch.FIRST_REPLICA})  # fmt: skip
    bench.start(5, 1, (0, (2,)), (1, (0,)), (0, (1,)))
    finish(bench, 5)
    assert bench.output(5) == "1,2 1,2 2 4 2\n"


def test_job_without_devices_sees_none(bench):
    bench.add(5, 'echo "<${CUDA_VISIBLE_DEVICES-unset}>"', request=Request(devices=0))
    bench.start(5, 1, (0, ()))
    finish(bench, 5)
    assert bench.output(5) == "<>\n"


def test_gang_ends_when_one_member_fails_and_tells_that_one(bench):
    for job in range(5, 15):  # now and then one has failed before the other was executed
        bench.add(job, "if [ $RANK = 1 ]; then exit 7; fi; sleep 600", replicas=2)
        bench.start(job, 1, (0, (0,)), (1, (0,)))
        event = finish(bench, job)
        assert (event.outcome, event.exit_code, event.signal) == (Outcome.FAILED, 7, 0)


def test_setup_runs_once_per_node_before_all_replicas(bench):
    script, setup = "echo run $RANK", "echo setup $SLURMD_NODENAME"
    bench.add(5, script, replicas=3, run={"setup": setup})
    bench.start(5, 1, (0, (0,)), (0, (1,)), (1, (0,)))
    finish(bench, 5)
    lines = bench.output(5).splitlines()
    assert sorted(lines[:2]) == ["setup n0", "setup n1"]
    assert sorted(lines[2:]) == ["run 0", "run 1", "run 2"]


def test_setup_that_takes_long_is_told_when_it_runs(bench):
    bench.add(5, "true", run={"setup": "while [ ! -e go ]; do sleep 0.01; done"})
    bench.start(5)
    bench.wait(JobPreparing, 5)
    assert not [event for event in bench.events if isinstance(event, JobStarted)]
    (bench.workdir / "go").touch()
    bench.wait(JobStarted, 5)
    finish(bench, 5)
    assert len([event for event in bench.events if isinstance(event, JobPreparing)]) == 1


def test_failed_setup_is_a_failed_start(bench):
    bench.add(5, "echo never", run={"setup": "exit 9"})
    bench.start(5)
    event = bench.wait(JobStopped, 5)
    assert event.cause is StopCause.UNSTARTABLE
    assert event.reason == "the setup step ended with exit code 9; see the job's output"
    assert "never" not in bench.output(5)


@pytest.mark.parametrize(
    ("script", "run", "reason"),
    [
        ("#!/no/such/program\n", {}, "execute /no/such/program: No such file or directory"),
        ("true", {"workdir": "/no/such/folder"}, "working directory /no/such/folder: No such file or directory"),
        ("true", {"output": "missing/out"}, "open {workdir}/missing/out: No such file or directory"),
        ("true", {"input": "missing"}, "open {workdir}/missing: No such file or directory"),
    ],
)
def test_start_that_cannot_be_carried_out_says_why(bench, script, run, reason):
    bench.add(5, script, run=run)
    bench.start(5)
    event = bench.wait(JobStopped, 5)
    assert event.cause is StopCause.UNSTARTABLE
    assert reason.format(workdir=bench.workdir) in event.reason


def test_user_without_account_is_a_failed_start(bench):
    bench.add(5, "true", user="nobody-of-this-name")
    bench.start(5)
    event = bench.wait(JobStopped, 5)
    assert event.cause is StopCause.UNSTARTABLE
    assert "found user 'nobody-of-this-name'" in event.reason


@pytest.mark.skipif(not IS_ROOT, reason="only root can run jobs as others")
def test_job_runs_as_its_user_with_the_rights_of_that_user_alone(tmp_path):
    tmp_path.chmod(0o755)
    let_others_pass(tmp_path)
    with local_bench(tmp_path) as bench:
        bench.workdir.chmod(0o777)
        secret = tmp_path / "secret"
        secret.write_text("secret")
        secret.chmod(0o600)
        script = f"id -un; id -G; cat {secret}; ls {bench.state}; touch $CLEARWAY_JOB_DIR/mine && echo mine"
        bench.add(5, script, user="nobody")
        bench.start(5)
        finish(bench, 5)
        output = bench.output(5)
        assert output.startswith("nobody\n65534\n")
        assert output.count("Permission denied") == 2
        assert output.endswith("mine\n")
        assert (bench.workdir / "slurm-5.out").owner() == "nobody"
        bench.add(6, "true", user="nobody", run={"output": str(secret)})
        bench.start(6)
        assert "Permission denied" in bench.wait(JobStopped, 6).reason
        assert secret.read_text() == "secret"


@pytest.mark.skipif(not IS_ROOT, reason="only root can run jobs as others")
def test_link_that_a_job_leaves_where_root_tidies_up_leads_nowhere(tmp_path):
    tmp_path.chmod(0o755)
    let_others_pass(tmp_path)
    precious = tmp_path / "precious"
    precious.mkdir(0o700)
    (precious / "config.json").write_text("kept")
    with local_bench(tmp_path) as bench:
        bench.workdir.chmod(0o777)
        bench.add(5, f"ln -s {precious} $CLEARWAY_JOB_DIR/.bundle.1; echo $?", user="nobody")
        bench.start(5)
        finish(bench, 5)
        assert bench.output(5) == "0\n"
        bench.observe()
        wait_until(lambda: not (bench.state / "jobs" / "5").exists(), "the job's directory to go")
    assert (precious / "config.json").read_text() == "kept"


def test_environment_of_the_job_cannot_change_what_is_ours(bench):
    bench.add(5, "echo $RANK $MINE", run={"environment": (("RANK", "9"), ("MINE", "yes"))})
    bench.start(5)
    finish(bench, 5)
    assert bench.output(5) == "0 yes\n"


def test_output_is_replaced_at_first_and_extended_after_a_restart(bench):
    (bench.workdir / "slurm-5.out").write_text("old\n")
    bench.add(5, "echo generation $CLEARWAY_GENERATION restarts $SLURM_RESTART_COUNT; sleep 600")
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_until(lambda: "generation" in bench.output(5), "output")
    bench.perform(Stop(5, 1, 0, StopCause.PREEMPTED))
    bench.wait(JobStopped, 5)
    bench.start(5, 2)
    wait_until(lambda: "generation 2" in bench.output(5), "output")
    assert bench.output(5) == "generation 1 restarts 0\ngeneration 2 restarts 1\n"


def test_time_limit_is_sigterm_then_sigkill(bench):
    bench.add(5, "trap 'echo term' TERM; while :; do sleep 0.05; done", limit_ms=150)
    bench.start(5)
    started = bench.wait(JobStarted, 5)
    event = finish(bench, 5)
    assert (event.outcome, event.signal) == (Outcome.TIMEOUT, signal.SIGKILL)
    assert "term" in bench.output(5)
    assert event.at_ms - started.at_ms >= 150 + 400


def test_limit_signal_comes_before_the_limit(bench):
    bench.add(5, "trap 'echo saved; exit 0' USR1; while :; do sleep 0.02; done", limit_ms=60_000,
              run={"limit_signal": LimitSignal(signal="USR1", before_ms=59_800, shell_only=True)})  # fmt: skip
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.COMPLETED
    assert bench.output(5) == "saved\n"


def test_more_memory_than_asked_for_is_out_of_memory(bench):
    if unlimited := [note for note in bench.backend.notes if "memory" in note]:
        pytest.skip(unlimited[0])
    script = "#!/usr/bin/env python3\nb = bytearray(200 << 20)\nprint(len(b))"
    bench.add(5, script, request=Request(devices=1, memory_bytes=64 << 20))
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.OUT_OF_MEMORY


def test_cancelled_job_gets_sigterm_and_is_cancelled(bench):
    bench.add(5, "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done")
    bench.start(5)
    wait_until(lambda: (bench.workdir / "slurm-5.out").exists() and bench.output(5), "output")
    bench.perform(Stop(5, 1, 0, None))
    assert finish(bench, 5).outcome is Outcome.CANCELLED
    assert bench.output(5).splitlines()[-1] == "bye"


def test_nothing_of_a_job_is_left_in_the_state_directory_when_its_end_was_told(bench):
    bench.add(5, "true")
    bench.start(5)
    finish(bench, 5)
    bench.observe()
    wait_until(lambda: not list((bench.state / "runs").iterdir()), "records to go")
    assert not list((bench.state / "jobs").iterdir())


def test_files_that_a_job_left_in_its_directory_stay(bench):
    bench.add(5, "echo model > $CLEARWAY_JOB_DIR/model; echo '{}' > $CLEARWAY_JOB_DIR/progress.json")
    bench.start(5)
    finish(bench, 5)
    bench.observe()
    folder = bench.state / "jobs" / "5"
    wait_until(lambda: [path.name for path in folder.iterdir()] == ["model"], "protocol files to go")


def test_state_is_closed_to_others(bench):
    modes = {path.name: path.stat().st_mode & 0o777 for path in bench.state.iterdir()}
    assert modes["runs"] == modes["saved"] == 0o700
    assert modes["keeper.sock"] == modes["keeper.log"] == 0o600
    assert Path(bench.state).stat().st_mode & 0o066 == 0
