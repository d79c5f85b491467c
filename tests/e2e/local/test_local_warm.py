"""Tasks from a warm interpreter: as a cold start in all that they can see, but without the imports."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clearway.model.events import DeviceDown, JobFinished, JobStarted, JobStopped
from clearway.model.jobs import JobKind, Outcome, Request, StopCause
from clearway.model.plan import Stop
from support.benches import wait_until
from support.local import QUICK, LocalBench, is_alive, let_others_pass, local_bench

SCRIPT = """
import os, sys
warm = "decimal" in sys.modules
print("warm" if warm else "cold", sys.argv, __name__, os.getcwd() == os.environ["HERE"], os.environ["RANK"], flush=True)
print("error", file=sys.stderr, flush=True)
if "wait" in sys.argv:
    import time
    time.sleep(600)
if "fork" in sys.argv:
    import subprocess
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
if "raise" in sys.argv:
    raise ValueError("on purpose")
sys.exit(4 if "fail" in sys.argv else 0)
"""


PYTHON = Path("/usr/bin/python3")


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        skip_without_groups(bench)
        (bench.workdir / "task.py").write_text(SCRIPT)
        yield bench


def add(bench: LocalBench, job: int, words: str = "", warm: str = "decimal", **spec: object) -> None:
    environment = (("CLEARWAY_WARM", warm), ("HERE", str(bench.workdir)))
    bench.add(job, f"{sys.executable} task.py {words}", run={"environment": environment}, kind=JobKind.TASK, **spec)


def change_run(bench: LocalBench, **changes: str) -> None:
    spec, run = bench.jobs[5]
    bench.jobs[5] = (spec, dataclasses.replace(run, **changes))


def finish(bench: LocalBench, job: int) -> JobFinished:
    event = bench.wait(JobFinished, job)
    assert isinstance(event, JobFinished)
    return event


def test_task_runs_in_an_interpreter_that_has_imported_already(bench):
    add(bench, 5, "'a b' c")
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.COMPLETED
    assert bench.output(5) == "warm ['task.py', 'a b', 'c'] __main__ True 0\nerror\n"
    assert [type(event) for event in bench.of(5)] == [JobStarted, JobFinished]


def test_exit_codes_and_exceptions_are_those_of_python(bench):
    add(bench, 5, "fail")
    add(bench, 6, "raise")
    bench.start(5)
    bench.start(6)
    assert finish(bench, 5).exit_code == 4
    assert finish(bench, 6).exit_code == 1
    assert "ValueError: on purpose" in bench.output(6)


def test_what_a_warm_task_leaves_behind_is_ended(bench):
    add(bench, 5, "fork")
    bench.start(5)
    finish(bench, 5)
    assert not is_alive(int(bench.output(5).splitlines()[-1]))


def test_warm_task_is_cancelled_as_any_other(bench):
    add(bench, 5, "wait")
    bench.start(5)
    bench.wait(JobStarted, 5)
    wait_until(lambda: "warm" in bench.output(5), "output")
    bench.perform(Stop(5, 1, 0, None))
    assert finish(bench, 5).outcome is Outcome.CANCELLED


def test_limits_hold_for_warm_tasks(bench):
    (bench.workdir / "task.py").write_text("import decimal\nx = bytearray(300 << 20)\n")
    add(bench, 5, request=Request(devices=1, memory_bytes=64 << 20))
    bench.start(5)
    assert finish(bench, 5).outcome in (Outcome.OUT_OF_MEMORY, Outcome.COMPLETED)
    if not bench.backend.notes:
        assert finish(bench, 5).outcome is Outcome.OUT_OF_MEMORY


def test_start_that_fails_in_a_warm_runner_says_why(bench):
    add(bench, 5)
    change_run(bench, workdir="/no/such/folder")
    bench.start(5)
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.UNSTARTABLE
    assert "/no/such/folder: No such file or directory" in stopped.reason


def test_module_that_cannot_be_imported_is_left_to_the_task(bench):
    add(bench, 5, warm="no_such_module,decimal")
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.COMPLETED
    assert bench.output(5).startswith("warm")


@pytest.mark.parametrize(
    "script", ["{python} task.py | cat", "{python} task.py; true", "{python} -c 'print(1)'", "true"]
)
def test_script_that_needs_a_shell_starts_cold(bench, script):
    add(bench, 5)
    change_run(bench, script=script.format(python=sys.executable))
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.COMPLETED
    assert "warm" not in bench.output(5)


def test_without_control_groups_tasks_start_cold(tmp_path):
    settings = type(QUICK)(kill_wait_ms=400, leftover_wait_ms=100, idle_exit_ms=0, is_without_cgroups=True)
    with local_bench(tmp_path, settings=settings) as bench:
        (bench.workdir / "task.py").write_text(SCRIPT)
        add(bench, 5)
        bench.start(5)
        finish(bench, 5)
        assert bench.output(5).startswith("cold")


@pytest.mark.skipif(os.geteuid() != 0 or not PYTHON.exists(), reason="needs root, and a Python that everybody may run")
def test_each_user_has_runners_of_his_own(bench, tmp_path):
    let_others_pass(tmp_path)
    bench.workdir.chmod(0o777)
    (bench.workdir / "task.py").write_text(
        "import os, sys\nprint(os.getuid(), os.getgroups(), 'decimal' in sys.modules)"
    )
    for job, user in ((5, "root"), (6, "nobody"), (7, "root")):
        bench.add(job, f"{PYTHON} task.py", user=user, run={"environment": (("CLEARWAY_WARM", "decimal"),)})
        bench.start(job)
        finish(bench, job)
    assert bench.output(5) == bench.output(7)
    assert bench.output(5).startswith("0 ")
    assert bench.output(5).endswith("True\n")
    assert bench.output(6) == "65534 [65534] True\n"


def test_tasks_of_one_runner_do_not_draw_the_same_random_numbers(bench):
    (bench.workdir / "task.py").write_text("import random, numpy\nprint(random.random(), numpy.random.random())")
    for job in (5, 6):
        add(bench, job, warm="numpy,random")
        bench.start(job)
        finish(bench, job)
    assert not set(bench.output(5).split()) & set(bench.output(6).split())


def test_variables_of_the_task_are_heeded_though_the_interpreter_has_started(bench):
    (bench.workdir / "mine").mkdir()
    (bench.workdir / "mine" / "my_module.py").write_text("answer = 42")
    (bench.workdir / "task.py").write_text("import my_module; print(my_module.answer)")
    environment = (("CLEARWAY_WARM", "python"), ("PYTHONPATH", str(bench.workdir / "mine")))
    bench.add(5, f"{sys.executable} task.py", run={"environment": environment})
    bench.start(5)
    finish(bench, 5)
    assert bench.output(5) == "42\n"


def test_threads_and_exit_handlers_of_a_task_are_waited_for(bench):
    script = """
import atexit, threading, time
atexit.register(lambda: print("at exit"))
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("main")
"""
    (bench.workdir / "task.py").write_text(script)
    add(bench, 5)
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.COMPLETED
    assert bench.output(5) == "main\nthread\nat exit\n"


@pytest.mark.parametrize(("end", "code", "output"), [("None", 0, ""), ("7", 7, ""), ("'no data'", 1, "no data\n")])
def test_task_exits_as_sys_exit_says(bench, end, code, output):
    (bench.workdir / "task.py").write_text(f"import sys\nsys.exit({end})\n")
    add(bench, 5)
    bench.start(5)
    assert finish(bench, 5).exit_code == code
    assert bench.output(5) == output


def test_burst_of_tasks_is_handed_over_as_the_runner_takes_it(bench):
    for job in range(1, 61):
        add(bench, job)
        bench.start(job, 1, (0, (job % 4,)))
    bench.wait(JobFinished, count=60)
    assert all(bench.output(job).startswith("warm") for job in range(1, 61))


def test_tasks_of_a_runner_that_is_killed_start_cold(bench):
    (bench.workdir / "first.py").write_text("import os, time\nprint(os.getppid(), flush=True)\ntime.sleep(600)")
    environment = (("CLEARWAY_WARM", "python"),)
    bench.add(1, f"{sys.executable} first.py", run={"environment": environment})
    bench.start(1)
    bench.wait(JobStarted, 1)
    keeper = bench.keeper_pid()
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    (runner,) = [int(pid) for pid in children if not writes_output(int(pid))]
    os.kill(runner, signal.SIGKILL)
    for job in range(2, 12):
        add(bench, job, warm="python")
        bench.start(job, 1, (1, (job % 4,)))
    for job in range(2, 12):
        assert finish(bench, job).outcome is Outcome.COMPLETED


def writes_output(pid: int) -> bool:
    """Tells the task, which has the job's output open, from its runner."""
    return os.readlink(f"/proc/{pid}/fd/1").endswith("slurm-1.out")


def test_tasks_that_come_together_are_each_a_process_of_its_own(bench):
    (bench.workdir / "task.py").write_text("import os, random\nprint(os.getpid(), os.getpgid(0), random.random())")
    jobs = range(5, 45)
    for job in jobs:
        add(bench, job, request=Request(devices=0))
    for job in jobs:
        bench.start(job)
    assert {finish(bench, job).outcome for job in jobs} == {Outcome.COMPLETED}
    told = [bench.output(job).split() for job in jobs]
    assert all(pid == group for pid, group, _ in told)
    assert [len(set(column)) for column in zip(*told, strict=True)] == [len(jobs)] * 3


SAYS = """
import os, socket, sys
control = socket.socket(fileno=os.dup(0))
while True:
    data, links, _, _ = socket.recv_fds(control, 1 << 20, 1)
    if not data:
        os._exit(0)
    {says}
    os.read(links[0], 1)
    os.close(links[0])
"""

AS_NOBODY = pytest.mark.skipif(
    os.geteuid() != 0 or not PYTHON.exists(), reason="needs root, and a Python that everybody may run"
)


def add_hostile(bench: LocalBench, job: int, says: str, **more: object) -> None:
    """A job of nobody, whose module takes the runner's place."""
    let_others_pass(bench.folder)
    version = subprocess.check_output((PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"), text=True)
    site = bench.folder / f"home/.local/lib/python{version.strip()}/site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (site / f"says{job}.py").write_text(SAYS.format(says=says))
    for folder in (bench.workdir, *site.parents[:5], site):
        if bench.folder in folder.parents:
            folder.chmod(0o777)
    environment = (("CLEARWAY_WARM", f"says{job}"), ("HOME", str(bench.folder / "home")))
    bench.add(job, f"{PYTHON} task.py", user="nobody", run={"environment": environment}, **more)


def groups_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cgroup").read_text()


@AS_NOBODY
def test_process_of_somebody_else_is_no_task_of_a_runner_that_says_so(bench):
    with subprocess.Popen(["/bin/sleep", "600"]) as victim:
        before = groups_of(victim.pid)
        add_hostile(bench, 5, f'os.write(links[0], b"pid {victim.pid}\\n")')
        bench.start(5)
        stopped = bench.wait(JobStopped, 5)
        assert (stopped.cause, groups_of(victim.pid), victim.poll()) == (StopCause.UNSTARTABLE, before, None)
        assert "has not forked" in stopped.reason
        victim.kill()


@AS_NOBODY
@pytest.mark.parametrize(
    "says",
    [
        'os.write(links[0], b"pid %d\\n" % os.getpid())',
        'os.write(links[0], b"pid %d\\n" % os.getppid())',
        'os.write(links[0], b"pid -1\\n")',
        'os.write(links[0], b"pid 0\\n")',
        'os.write(links[0], b"pid %d0" % os.getpid())',
        'os.write(links[0], b"\\xff" * 100_000)',
        'os.write(links[0], b"pid %d\\n" % (os.fork() or __import__("time").sleep(600)))',
    ],
    ids=["itself", "the keeper", "all", "none", "torn", "garbage", "child of its own"],
)
def test_runner_that_does_not_tell_the_truth_ends_its_own_job_alone(bench, says):
    add_hostile(bench, 5, says)
    (bench.workdir / "task.py").write_text(SCRIPT)
    bench.start(5)
    assert bench.wait(JobStopped, 5).cause is StopCause.UNSTARTABLE
    bench.add(6, "true")
    bench.start(6)
    assert finish(bench, 6).outcome is Outcome.COMPLETED


@AS_NOBODY
def test_process_of_another_job_of_the_same_user_stays_that_jobs(bench):
    bench.workdir.chmod(0o777)
    bench.add(4, "echo $$ > main; exec sleep 600", user="nobody")
    let_others_pass(bench.folder)
    bench.start(4, 1, (0, (1,)))
    bench.wait(JobStarted, 4)
    main = bench.workdir / "main"
    wait_until(lambda: main.exists() and main.read_text().endswith("\n"), "the pid of job 4")
    pid = int(main.read_text())
    before = groups_of(pid)
    add_hostile(bench, 5, f'os.write(links[0], b"pid {pid}\\n")')
    bench.start(5)
    assert bench.wait(JobStopped, 5).cause is StopCause.UNSTARTABLE
    assert groups_of(pid) == before
    bench.perform(Stop(4, 1, 0, None))
    assert finish(bench, 4).outcome is Outcome.CANCELLED


@AS_NOBODY
def test_job_of_which_the_process_is_gone_when_its_runner_names_it_starts_cold(bench):
    pid = int(Path("/proc/sys/kernel/pid_max").read_text()) - 1
    add_hostile(bench, 5, f'os.write(links[0], b"pid {pid}\\n")')
    (bench.workdir / "task.py").write_text("print('cold')")
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.COMPLETED
    assert bench.output(5) == "cold\n"


def add_slow(bench: LocalBench, job: int) -> Path:
    """A job whose runner does not come to an end of importing. Returns what is there when that has begun: its pid."""
    modules, begun = bench.workdir / "modules", bench.workdir / "begun"
    modules.mkdir(exist_ok=True)
    lines = ("import os, time", f"file = open({str(begun)!r}, 'a')", "print(os.getpid(), file=file, flush=True)")
    (modules / "slow.py").write_text("\n".join((*lines, "time.sleep(0 if 'CLEARWAY_JOB_ID' in os.environ else 600)")))
    environment = (("CLEARWAY_WARM", "slow"), ("PYTHONPATH", str(modules)))
    bench.add(job, f"{sys.executable} task.py", run={"environment": environment})
    return begun


def wait_for_runner(begun: Path) -> int:
    wait_until(lambda: begun.exists() and begun.read_text().endswith("\n"), "the import")
    return int(begun.read_text().split()[0])


def test_task_whose_keeper_dies_while_its_runner_imports_is_stopped_and_has_not_completed(bench):
    begun = add_slow(bench, 5)
    bench.start(5)
    runner = wait_for_runner(begun)
    keeper = bench.keeper_pid()
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not is_alive(keeper), "the keeper's death")
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.NODE_FAILED
    assert stopped.reason == "the keeper was ended while it started the job"
    wait_until(lambda: not is_alive(runner), "the end of the runner")


ORPHAN = """
import time
if os.fork() == 0:
    between = os.getpid()
    if os.fork() == 0:
        while os.getppid() == between:
            pass
        os.write(links[0], b"pid %d\\n" % os.getpid())
        time.sleep(600)
    os._exit(0)
"""


def skip_without_groups(bench: LocalBench) -> None:
    if "no cgroup" in "".join(bench.backend.notes):
        pytest.skip(bench.backend.notes[0])


def test_runner_that_does_not_come_to_an_end_of_importing_is_ended_and_its_tasks_start_cold(tmp_path):
    with local_bench(tmp_path, settings=dataclasses.replace(QUICK, warm_wait_ms=700)) as bench:
        skip_without_groups(bench)
        (bench.workdir / "task.py").write_text("print('cold')")
        begun = add_slow(bench, 5)
        bench.start(5)
        runner = wait_for_runner(begun)
        assert finish(bench, 5).outcome is Outcome.COMPLETED
        assert bench.output(5) == "cold\n"
        wait_until(lambda: not is_alive(runner), "the end of the runner")
        add_slow(bench, 6)
        bench.start(6)
        assert finish(bench, 6).outcome is Outcome.COMPLETED
        assert begun.read_text().split() == [str(runner)], "another one was made"


def test_job_is_cancelled_at_once_while_its_runner_imports(bench):
    begun = add_slow(bench, 5)
    bench.start(5)
    wait_for_runner(begun)
    bench.perform(Stop(5, 1, 0, None))
    assert finish(bench, 5).outcome is Outcome.CANCELLED
    assert not [event for event in bench.events if isinstance(event, DeviceDown)]


@AS_NOBODY
def test_task_that_never_says_that_it_has_begun_counts_as_begun(tmp_path):
    with local_bench(tmp_path, settings=dataclasses.replace(QUICK, warm_wait_ms=700)) as bench:
        skip_without_groups(bench)
        add_hostile(bench, 5, f"exec({ORPHAN!r})", limit_ms=500)
        bench.start(5)
        bench.wait(JobStarted, 5)
        assert finish(bench, 5).outcome is Outcome.TIMEOUT


SHOWS = "import mine, os; print(mine.__file__, mine.THREADS, os.environ.get('OMP_NUM_THREADS'))"


def test_tasks_get_the_modules_that_their_own_environment_says(bench):
    (bench.workdir / "task.py").write_text(SHOWS)
    for name in ("a", "b"):
        (bench.workdir / name).mkdir()
        (bench.workdir / name / "mine.py").write_text("import os; THREADS = os.environ.get('OMP_NUM_THREADS')")
    for job, folder, threads in ((5, str(bench.workdir / "a"), "1"), (6, "b", "1"), (7, "b", "2")):
        environment = (("CLEARWAY_WARM", "mine"), ("PYTHONPATH", folder), ("OMP_NUM_THREADS", threads))
        bench.add(job, f"{sys.executable} task.py", run={"environment": environment})
        bench.start(job)
        finish(bench, job)
        assert bench.output(job) == f"{bench.workdir}/{folder[-1]}/mine.py {threads} {threads}\n"


def add_with_module(bench: LocalBench, job: int, text: str, threads: int = 1, **more: object) -> None:
    (bench.workdir / "mine.py").write_text(text)
    (bench.workdir / "task.py").write_text("import mine")
    environment = (("CLEARWAY_WARM", "mine"), ("PYTHONPATH", "."), ("OMP_NUM_THREADS", str(threads)))
    bench.add(job, f"{sys.executable} task.py", run={"environment": environment}, **more)


def test_memory_limit_of_a_job_is_that_of_its_runner_too(bench):
    if bench.backend.notes:
        pytest.skip(bench.backend.notes[0])
    add_with_module(bench, 5, "held = bytearray(300 << 20)", request=Request(devices=1, memory_bytes=64 << 20))
    bench.start(5)
    assert finish(bench, 5).outcome is Outcome.OUT_OF_MEMORY


def test_runner_that_goes_on_after_its_end_is_killed_with_the_children_of_its_modules(bench):
    lingers = """
import os, threading, time
if "CLEARWAY_JOB_ID" not in os.environ:
    threading.Thread(target=time.sleep, args=(600,)).start()
    child = os.fork() or time.sleep(600)
    print(os.getpid(), child, file=open("PIDS", "a"))
"""
    pids = bench.workdir / "pids"
    for job in range(1, 10):
        add_with_module(bench, job, lingers.replace("PIDS", str(pids)), threads=job)
        bench.start(job)
        assert finish(bench, job).outcome is Outcome.COMPLETED
    first = [int(pid) for pid in pids.read_text().splitlines()[0].split()]
    wait_until(lambda: not any(map(is_alive, first)), "the end of the runner that made room")


def test_first_replica_has_emptied_the_output_that_all_share_before_another_begins(bench):
    (bench.workdir / "task.py").write_text("import os; print('from', os.environ['RANK'])")
    for rank in range(4):
        (bench.workdir / f"in-{rank}").touch()
    (bench.workdir / "in-0").unlink()
    os.mkfifo(bench.workdir / "in-0")
    environment = (("CLEARWAY_WARM", "python"),)
    bench.add(5, f"{sys.executable} task.py", replicas=4, run={"environment": environment, "input": "in-%t"})
    bench.start(5, 1, *((0, (place,)) for place in range(4)))
    bench.pass_time(0.3)
    wait_until(lambda: opens(bench.workdir / "in-0"), "the first replica")
    assert finish(bench, 5).outcome is Outcome.COMPLETED
    assert sorted(bench.output(5).splitlines()) == [f"from {rank}" for rank in range(4)]


def opens(fifo: Path) -> bool:
    """Whether somebody reads there."""
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def test_warm_task_whose_input_nobody_opens_is_stopped_as_a_cold_one(bench):
    os.mkfifo(bench.workdir / "in")
    run = {"environment": (("CLEARWAY_WARM", "python"),), "input": "in"}
    bench.add(5, f"{sys.executable} task.py", run=run)
    bench.start(5)
    stopped = bench.wait(JobStopped, 5)
    assert stopped.cause is StopCause.UNSTARTABLE
    assert stopped.reason == f"open {bench.workdir}/in: nobody opened its other end within 10 s"


def test_interrupted_task_ends_as_in_a_shell(bench):
    (bench.workdir / "task.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    add(bench, 5)
    bench.start(5)
    assert finish(bench, 5).exit_code == 130
    assert "KeyboardInterrupt" in bench.output(5)
