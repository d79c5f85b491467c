"""Parts of the commands of a running control plane that need none: finding it, reading command lines, drawing."""

import dataclasses
import io
import json

import pytest
import yaml
from rich.console import Console

from clearway.bootstrap.configuration import find_config_file, read_config_file, resolve_policy
from clearway.bootstrap.places import Places, Running, find_connection, find_state_dir, read_running, write_running
from clearway.cli.connection import submitted_environment
from clearway.cli.live_jobs import parse_state
from clearway.cli.live_submit import exit_code_of, read_submission, wait_for
from clearway.cli.live_up import say_ready
from clearway.cli.messages import Language
from clearway.cli.session import Session
from clearway.cli.show_live import show_explanation, show_job, show_nodes
from clearway.cli.show_report import advise
from clearway.cli.show_top import Scene, draw_scene
from clearway.cli.slurm.arguments import UsageError, read_options
from clearway.cli.slurm.common import wants_data, write_data
from clearway.cli.slurm.sbatch import OWN, split_line
from clearway.cli.slurm.sinfo import OPTIONS as SINFO
from clearway.cli.slurm.srun import count_tasks, run_step
from clearway.client.errors import UnreachableError
from clearway.model.errors import InputError
from clearway.model.ids import JobId, NodeName
from clearway.model.jobs import JobKind
from clearway.model.units import HOUR_MS, MINUTE_MS
from clearway.ports.views import ClusterView, DeviceState, DeviceView, JobState, JobView, NodeState, NodeView
from clearway.wire.config import parse_config

NOON = 1_800_000_000_000


def make_view(number: int = 12, **changes) -> JobView:
    plain = JobView(
        id=JobId(number),
        name="train",
        user="ada",
        tenant="root",
        queue="production",
        kind=JobKind.TRAIN,
        state=JobState.RUNNING,
        priority=0,
        replicas=1,
        device_milli=1_000,
        cpu_milli=0,
        memory_bytes=0,
        submit_ms=NOON - 2 * HOUR_MS,
        start_ms=NOON - HOUR_MS,
        nodes=("gpu1",),
        devices=(("gpu1", (0,)),),
    )
    return dataclasses.replace(plain, **changes)


# --- finding it -------------------------------------------------------------------------------------------------------


def test_the_state_directory_is_what_was_asked_then_the_environments_then_xdgs(tmp_path):
    environment = {"CLEARWAY_STATE_DIR": "/a", "XDG_STATE_HOME": "/b"}
    assert find_state_dir(environment, tmp_path) == tmp_path
    assert str(find_state_dir(environment)) == "/a"
    assert str(find_state_dir({"XDG_STATE_HOME": "/b"})) == "/b/clearway"


def test_a_connection_comes_from_the_environment_or_the_files(tmp_path):
    found = find_connection({"CLEARWAY_URL": "http://127.0.0.1:1", "CLEARWAY_TOKEN": "cw_a_b"})
    assert (found.url, found.token) == ("http://127.0.0.1:1", "cw_a_b")
    places = Places(tmp_path)
    with pytest.raises(UnreachableError, match="clearway up"):
        find_connection({}, tmp_path)
    write_running(places, Running(url="http://127.0.0.1:2", pid=7))
    assert read_running(places).pid == 7
    assert places.server.stat().st_mode & 0o777 == 0o600
    places.token.write_text("secret\n")
    places.token.chmod(0o644)
    with pytest.raises(InputError, match="0644"):
        find_connection({}, tmp_path)
    places.token.chmod(0o600)
    assert find_connection({}, tmp_path).token == "secret"


def test_a_configuration_is_looked_for_in_its_places(tmp_path):
    (tmp_path / "clearway").mkdir()
    own = tmp_path / "clearway" / "clearway.toml"
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    own.write_text('policy = "easy"\n')
    assert find_config_file(environment, None) == own
    assert find_config_file({**environment, "CLEARWAY_CONFIG": "/c.yaml"}, None).name == "c.yaml"
    assert resolve_policy(read_config_file(own)).name == "easy"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listen: 1\npolicy: easi\n", "c.yaml:2: policy: .*easy"),
        ("policy:\n  like: easy\n  backfill: {reservation_dept: 4}\n", "c.yaml:3: policy: .*reservation_depth"),
        ("policy: 7\n", "c.yaml:1: policy: expected a name, a path or settings"),
    ],
)
def test_a_policy_that_is_wrong_is_told_with_its_line(text, message):
    with pytest.raises(InputError, match=message):
        resolve_policy(parse_config(text, source="c.yaml"))


def test_a_job_does_not_inherit_the_token(monkeypatch):
    monkeypatch.setenv("CLEARWAY_TOKEN", "cw_a_b")
    monkeypatch.setenv("LEARNING_RATE", "3e-4")
    inherited = submitted_environment()
    assert "CLEARWAY_TOKEN" not in inherited
    assert inherited["LEARNING_RATE"] == "3e-4"


# --- reading command lines --------------------------------------------------------------------------------------------


def test_options_end_where_the_script_begins():
    line = split_line("sbatch", ["-p", "debug", "--time=5", "-N1", "--parsable", "job.sh", "-x", "7"], OWN)
    assert line.words == ("--partition=debug", "--time=5", "--nodes=1")
    assert dict(line.own) == {"parsable": ""}
    assert line.rest == ("job.sh", "-x", "7")


def test_options_are_completed_and_optional_values_stay_with_their_equals_sign():
    assert split_line("sbatch", ["--part", "debug", "--exclusive", "--nice=5", "x"], OWN).words == (
        "--partition=debug",
        "--exclusive",
        "--nice=5",
    )


@pytest.mark.parametrize("words", [["--foo"], ["-Z"], ["--time"], ["-Hx"], ["--gpus-per=2"]])
def test_a_wrong_option_is_refused(words):
    with pytest.raises(UsageError):
        split_line("sbatch", words, OWN)


def test_rows_are_the_same_as_json_and_as_yaml(capsys):
    nodes = [NodeView(name=NodeName("n1"), state=NodeState.IDLE)]
    given = [read_options("sinfo", [f"--{word}"], SINFO) for word in ("json", "yaml")]
    assert all(map(wants_data, given))
    assert not wants_data(read_options("sinfo", ["-N"], SINFO))
    write_data(given[0], nodes=nodes, partitions=[])
    rows = json.loads(capsys.readouterr().out)
    write_data(given[1], nodes=nodes, partitions=[])
    assert yaml.safe_load(capsys.readouterr().out) == rows
    assert (rows["nodes"][0]["name"], rows["partitions"]) == ("n1", [])


def test_a_step_starts_its_tasks_with_their_ranks(capfd):
    line = split_line(
        "sbatch",
        ["-n", "3", "sh", "-c", "echo $SLURM_PROCID/$SLURM_NTASKS $RANK/$WORLD_SIZE $LOCAL_RANK; exit $SLURM_PROCID"],
        OWN,
    )
    of_the_job = {"PATH": "/usr/bin:/bin", "SLURM_NNODES": "1", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    assert run_step(line, of_the_job) == 2
    assert sorted(capfd.readouterr().out.splitlines()) == [f"{rank}/3 {rank}/3 {rank}" for rank in range(3)]


def test_a_step_over_several_nodes_is_refused_with_what_to_use():
    with pytest.raises(UsageError, match="replicas"):
        run_step(split_line("sbatch", ["true"], OWN), {"SLURM_NNODES": "2"})
    with pytest.raises(UsageError, match="--ntasks"):
        count_tasks(["--ntasks=many"], {})


def test_options_describe_a_command_and_not_a_file(tmp_path):
    (submitted,) = read_submission(["python", "x.py"], {"resources": {"gpus": "1"}}, has_command=True)
    assert submitted.job == {"name": "python", "resources": {"gpus": "1"}, "command": ["python", "x.py"]}
    with pytest.raises(InputError, match="expected a command after `--`"):
        read_submission(["job.yaml"], {"queue": "debug"}, has_command=False)
    with pytest.raises(InputError, match="found nothing"):
        read_submission([], {}, has_command=False)


def test_a_state_has_a_long_and_a_short_name():
    assert parse_state("failed") is parse_state("F") is JobState.FAILED
    with pytest.raises(InputError, match="OUT_OF_MEMORY"):
        parse_state("broken")


class WaitingClient:
    def __init__(self, job):
        self.job = job

    def wait(self, _, *, poll_s):
        return [self.job]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": JobState.FAILED, "reason": "NonZeroExitCode"}, "Job 12 ended as FAILED: NonZeroExitCode"),
        ({"state": JobState.CANCELLED, "reason": "None"}, "Job 12 ended as CANCELLED"),
        ({"state": JobState.FAILED, "message": "no such file"}, "Job 12 ended as FAILED: no such file"),
    ],
)
def test_a_wait_says_why_a_job_ended_badly(changes, text):
    screen = Console(file=io.StringIO(), width=150)
    session = Session(language=Language.ENGLISH, screen=screen, notes=screen)
    assert wait_for(session, WaitingClient(make_view(**changes)), [12], follow=False) != 0
    assert screen.file.getvalue() == f"{text}\n"


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(scene: Scene, language: Language = Language.ENGLISH) -> str:
    screen = Console(file=io.StringIO(), width=150)
    session = Session(language=language, screen=screen, notes=screen)
    screen.print(draw_scene(session, scene))
    return screen.file.getvalue()


class LimitedPlane:
    """What `up` asks of a control plane on a machine that lacks something."""

    is_first_start = False
    notes = ("cgroup v1: memory cannot be limited here",)

    def __init__(self, folder):
        self.places = Places(folder)

    def summary(self):
        return {"url": "http://127.0.0.1:8642", "devices": 1, "nodes": 1, "policy": "clearway"}


def said_by_up(folder) -> list[str]:
    screen = Console(file=io.StringIO(), width=150)
    say_ready(Session(language=Language.ENGLISH, screen=screen, notes=screen), LimitedPlane(folder))
    return screen.file.getvalue().splitlines()


def test_up_says_in_one_line_what_the_machine_cannot_do():
    assert LimitedPlane.notes[0] in said_by_up(find_state_dir({}))


def test_up_says_what_other_terminals_need_where_its_folder_is_not_the_usual_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    other = tmp_path / "of a test"
    monkeypatch.setenv("CLEARWAY_STATE_DIR", str(other))
    wanted = "In other terminals, so that commands find it: export CLEARWAY_STATE_DIR="
    assert wanted + f"'{other}'" in said_by_up(other)
    assert not any(line.startswith(wanted) for line in said_by_up(tmp_path / "clearway"))


def make_scene(**changes) -> Scene:
    states = [DeviceState.USED, DeviceState.FREE, DeviceState.DOWN]
    owners = [((JobId(12), 1_000),), (), ()]
    devices = tuple(
        DeviceView(index=index, model="H100", state=state, owners=owners[index]) for index, state in enumerate(states)
    )
    cluster = ClusterView(
        at_ms=NOON,
        seq=1,
        nodes=(NodeView(name="gpu1", state=NodeState.MIXED, devices=devices),),
        pending=1,
        running=1,
        policy="clearway",
    )
    waiting = make_view(13, state=JobState.PENDING, reason="Resources", start_ms=None, nodes=(), devices=())
    plain = Scene(cluster=cluster, running=[make_view(progress=0.25)], waiting=[waiting], now_ms=NOON)
    return dataclasses.replace(plain, **changes)


def test_the_picture_shows_devices_jobs_and_reasons():
    shown = draw(make_scene())
    assert "1/3 devices in use, 1 down" in shown
    assert "M · ✗" in shown  # the letter of job 12, a free device, one that is down
    assert "Resources" in shown
    assert "25%" in shown
    assert "1:00:00" in shown


def test_devices_of_nodes_that_take_no_jobs_are_not_counted_as_free():
    devices = tuple(DeviceView(index=index, model="V100", state=DeviceState.FREE) for index in range(2))
    nodes = [NodeView(name=state.value, state=state, devices=devices) for state in NodeState]
    screen = Console(file=io.StringIO(), width=120)
    show_nodes(Session(language=Language.ENGLISH, screen=screen, notes=screen), nodes)
    assert "6 of 12 devices are free" in screen.file.getvalue()


def test_what_is_not_enforced_on_nodes_is_said_once():
    (note,) = LimitedPlane.notes
    nodes = [NodeView(name=name, state=NodeState.IDLE, notes=(note,)) for name in ("n0", "n1")]
    screen = Console(file=io.StringIO(), width=120)
    show_nodes(Session(language=Language.ENGLISH, screen=screen, notes=screen), nodes)
    assert screen.file.getvalue().splitlines()[-1] == note
    assert screen.file.getvalue().count(note) == 1


def test_the_picture_speaks_chinese():
    assert "设备在用" in draw(make_scene(), Language.CHINESE)


def test_a_storage_that_fails_is_seen_at_the_top():
    scene = make_scene()
    broken = dataclasses.replace(scene.cluster, storage_error="disk full")
    assert "disk full" in "\n".join(draw(make_scene(cluster=broken)).splitlines()[:3])


# --- advising ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": JobState.TIMEOUT, "limit_ms": 30 * MINUTE_MS}, "--time=1:00:00"),
        ({"state": JobState.OUT_OF_MEMORY, "memory_bytes": 4 << 30}, "--mem=4096M"),
        ({"state": JobState.FAILED}, "clearway logs --tail 20 12"),
        ({"preemptions": 2}, "save checkpoints"),
        ({"state": JobState.COMPLETED, "limit_ms": 24 * HOUR_MS, "end_ms": NOON}, "--time=2:00:00"),
    ],
)
def test_a_report_says_what_to_change(changes, words):
    notes = [note.text.format(**note.values) for note in advise(make_view(**changes), NOON)]
    assert any(words in note for note in notes), notes


def test_a_job_that_did_well_needs_no_advice():
    assert advise(make_view(state=JobState.COMPLETED, end_ms=NOON, saved_ms=HOUR_MS), NOON) == []


def test_exit_codes_are_those_of_a_shell():
    assert exit_code_of(make_view(exit_code=3)) == 3
    assert exit_code_of(make_view(signal=9)) == 137
    assert exit_code_of(make_view(state=JobState.CANCELLED)) == 1


def test_progress_is_shown_of_jobs_that_run_not_of_those_that_completed():
    def shown(state):
        text = io.StringIO()
        screen = Console(file=text, width=120)
        session = Session(language=Language.ENGLISH, screen=screen, notes=screen)
        job = make_view(progress=0.91, state=state, start_ms=NOON, end_ms=NOON)
        show_job(session, job, NOON)
        show_explanation(session, job, None, NOON)
        return text.getvalue()

    assert shown(JobState.RUNNING).count("91%") == 2
    assert "91%" not in shown(JobState.COMPLETED)
