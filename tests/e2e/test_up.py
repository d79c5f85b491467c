"""A real control plane with real jobs: starting, using, stopping and starting it again."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from clearway.bootstrap.places import is_running, read_running
from support.control_plane import MAIN, ControlPlane, wait_until

SCRIPT = "#!/bin/bash\n#SBATCH -J hello --gres=gpu:1 -t 5 -o hello-%j.txt\necho job=$SLURM_JOB_ID $1\n"


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    plane = ControlPlane(tmp_path_factory.mktemp("plane"))
    plane.start()
    yield plane
    plane.tidy()


@pytest.fixture
def own_plane(tmp_path):
    """For tests that stop it."""
    plane = ControlPlane(tmp_path)
    yield plane
    plane.tidy()


def count_lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_the_first_start_makes_a_private_token_and_says_how_to_use_it(plane):
    assert plane.places.token.stat().st_mode & 0o777 == 0o600
    assert plane.places.tokens.stat().st_mode & 0o777 == 0o600
    wait_until(lambda: "clearway token" in plane.log.read_text(), "the last line of what it says")
    said = plane.log.read_text()
    assert str(plane.places.token) in said
    assert "clearway submit" in said
    assert plane.places.token.read_text().strip() not in said


def test_a_second_start_on_the_same_folder_is_refused_with_what_to_do(plane):
    second = plane.run("up", "--listen", "0")
    assert second.returncode == 2
    assert f"process {plane.process.pid}" in second.stderr
    assert "clearway down" in second.stderr


def test_a_start_on_an_address_that_is_taken_ends_and_lets_go_of_its_folder(plane, tmp_path):
    other = ControlPlane(tmp_path)
    taken = read_running(plane.places).url.rpartition(":")[2]
    ended = other.run("up", "--listen", taken, "--devices", "1")
    assert ended.returncode == 2
    assert "choose another port" in ended.stderr
    assert not is_running(other.places)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("nosuchprogram", 127)]
)
def test_submit_and_wait_ends_as_the_job_ended(plane, script, code):
    assert plane.run("submit", "--wait", "--", "sh", "-c", script).returncode == code


def test_words_reach_the_job_as_they_are(plane):
    words = ["a b", "$HOME", "*", "'", '"', "; echo no", "\\"]
    shown = plane.run("submit", "--follow", "--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
    assert str(words) in shown.stdout


def test_a_script_is_submitted_and_listed_as_slurm_does(plane):
    (plane.work / "hello.sh").write_text(SCRIPT)
    said = plane.run("sbatch", "--wait", "hello.sh", "there")
    number = said.stdout.removeprefix("Submitted batch job ").strip()
    assert said.stdout == f"Submitted batch job {number}\n"
    assert said.returncode == 0
    assert f"job={number} there" in (plane.work / f"hello-{number}.txt").read_text()
    row = plane.say("sacct", "-j", number, "-nPo", "jobid,jobname,state,exitcode")
    assert row == f"{number}|hello|COMPLETED|0:0\n"
    assert f"StdOut={plane.work}/hello-{number}.txt" in plane.say("scontrol", "show", "job", number)
    assert plane.say("sbatch", "--parsable", "hello.sh").strip() == str(int(number) + 1)


def test_options_of_the_command_line_go_before_those_of_the_script(plane):
    (plane.work / "hello.sh").write_text(SCRIPT)
    number = plane.say("sbatch", "--parsable", "-J", "other", "-n", "2", "-H", "hello.sh").strip()
    assert plane.say("squeue", "-h", "-j", number, "-o", "%j %t %r") == "other PD JobHeldUser\n"
    assert " NumTasks=2 " in plane.say("scontrol", "show", "job", number)
    assert plane.run("scancel", number).returncode == 0
    assert plane.say("squeue", "-h", "--me", "-o", "%i") == ""


def test_arrays_have_slurms_numbers(plane):
    number = plane.say("sbatch", "--parsable", "-H", "-a", "1-3", "--wrap", "true").strip()
    assert plane.say("squeue", "-h", "-o", "%i") == f"{number}_[1-3]\n"
    assert plane.say("squeue", "-h", "-r", "-S", "i", "-o", "%i").split() == [f"{number}_{i}" for i in (1, 2, 3)]
    assert plane.run("scancel", f"{number}_2").returncode == 0
    assert plane.say("squeue", "-h", "-o", "%i") == f"{number}_[1,3]\n"
    assert plane.run("scancel", number).returncode == 0


def test_srun_shows_the_output_and_ends_alike(plane):
    ended = plane.run("srun", "--gres=gpu:1", "sh", "-c", "echo on $CUDA_VISIBLE_DEVICES; exit 4")
    assert ended.stdout.startswith("on ")
    assert ended.returncode == 4


def test_job_that_is_requeued_and_held_waits_until_it_is_released(plane):
    number = plane.say("sbatch", "--parsable", "--requeue", "--gres=gpu:1", "--wrap", "sleep 60").strip()
    state = lambda: plane.say("squeue", "-h", "-j", number, "-o", "%t %r").strip()  # noqa: E731
    wait_until(lambda: state().startswith("R "), "a job that runs")
    assert plane.run("scontrol", "requeuehold", number).returncode == 0
    wait_until(lambda: state() == "PD JobHeldUser", "a job that is held")
    assert plane.run("scontrol", "release", number).returncode == 0
    wait_until(lambda: state().startswith("R "), "a job that runs again")
    assert plane.run("scancel", number).returncode == 0


def test_job_ends_with_the_srun_that_is_told_to(plane):
    words = [sys.executable, "-c", MAIN, "srun", "-J", "endless", "sh", "-c", "echo begun; sleep 600"]
    process = subprocess.Popen(words, env=plane.environment(), cwd=plane.work, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    process.stdout.close()
    wait_until(lambda: plane.say("squeue", "-h", "-n", "endless") == "", "a job that has ended")


def test_what_is_unknown_is_refused_as_slurm_does(plane):
    for words, start in (
        (["scancel", "abc"], "scancel: error: "),
        (["squeue", "-j", "999999"], "slurm_load_jobs error: "),
        (["squeue", "--foo"], "squeue: unrecognized option "),
        (["salloc"], "salloc: error: "),
        (["sbatch", "no.sh"], "sbatch: error: "),
    ):
        answer = plane.run(*words)
        assert answer.returncode == 1, words
        assert answer.stderr.startswith(start), answer.stderr


def test_a_waiting_job_says_why_and_starts_when_it_can(plane):
    first = plane.say("sbatch", "--parsable", "--gres=gpu:4", "--wrap", "sleep 60").strip()
    second = plane.say("sbatch", "--parsable", "--gres=gpu:1", "--wrap", "true").strip()
    wait_until(lambda: "Resources" in plane.say("squeue", "-h", "-j", second, "-o", "%R"), "a reason")
    why = plane.say("why", second)
    assert "Resources" in why
    assert first in why
    assert plane.run("cancel", first).returncode == 0
    assert plane.run("wait", second).returncode == 0


def test_json_is_alone_on_standard_output(plane):
    for words in (
        ["queue"],
        ["jobs"],
        ["nodes"],
        ["queues"],
        ["tenants"],
        ["audit"],
        ["users", "list"],
        ["config", "show"],
        ["journal", "snapshot"],
        ["snapshot"],
    ):
        json.loads(plane.say(*words, "--json", "-"))
    for command in ("squeue", "sinfo", "sacct"):
        json.loads(plane.say(command, "--json"))
    assert "jobs:" in plane.say("squeue", "--yaml")
    for kind in ("job", "node", "partition"):
        assert f"{kind}s" in json.loads(plane.say("scontrol", "--json", "show", kind))


def test_what_became_of_a_job_is_told_as_json(plane):
    (number,) = json.loads(plane.say("submit", "--json", "-", "--", "sh", "-c", "echo out; echo err >&2; exit 3"))[
        "jobs"
    ]
    ended = plane.run("wait", str(number), "--json", "-")
    assert (ended.returncode, json.loads(ended.stdout)[0]["exit_code"]) == (3, 3)
    written = json.loads(plane.say("logs", str(number), "--json", "-"))
    assert written == {"job": number, "stream": "output", "replica": 0, "text": "out\nerr\n"}
    assert json.loads(plane.say("logs", "-f", str(number), "--json", "-"))["text"] == "out\nerr\n"


def test_where_to_call_is_told_as_json(plane):
    found = json.loads(plane.say("token", "--json", "-"))
    assert found == {"url": read_running(plane.places).url, "token": plane.places.token.read_text().strip()}


def test_devices_of_a_node_that_is_drained_stay_free(plane):
    name = json.loads(plane.say("nodes", "--json", "-"))[0]["name"]
    drained = json.loads(plane.say("drain", name, "--reason", "fan", "--json", "-"))
    assert (drained["name"], drained["reason"]) == (name, "fan")
    assert drained["state"] in ("drained", "draining")  # where a job of another test is just ending
    assert plane.say("sinfo", "-h", "-p", "production", "-o", "%t %E") == "drain fan\n"
    number = plane.say("sbatch", "--parsable", "--gres=gpu:1", "--wrap", "true").strip()
    assert plane.say("squeue", "-h", "-j", number, "-o", "%t") == "PD\n"
    assert plane.run("scontrol", "update", f"nodename={name}", "state=resume").returncode == 0
    assert plane.run("wait", number).returncode == 0


def test_a_user_sees_his_own_and_loses_his_token_at_once(plane):
    token = plane.say("users", "add", "ada", "--tenant", "root").strip()
    assert json.loads(plane.say("users", "list", "--json", "-"))[-1]["user"] == "ada"
    with plane.client() as client:
        url = client.whoami() and json.loads(plane.places.server.read_text())["url"]
    environment = {**plane.environment(), "CLEARWAY_URL": url, "CLEARWAY_TOKEN": token}

    def try_queue() -> int:
        return subprocess.run(
            [sys.executable, "-c", MAIN, "queue"], env=environment, cwd=plane.work, capture_output=True
        ).returncode

    assert try_queue() == 0
    assert plane.run("users", "revoke", "ada").returncode == 0
    assert try_queue() == 77


def test_the_picture_is_drawn(plane, tmp_path):
    assert "devices in use" in plane.say("top", "--once")
    plane.say("top", "--svg", str(tmp_path / "top.svg"))
    assert (tmp_path / "top.svg").read_text().startswith("<svg")


def test_twin_goes_on_from_a_snapshot_of_what_runs(plane, tmp_path):
    job = plane.say("sbatch", "--parsable", "--gres=gpu:1", "--wrap", "sleep 1000").strip()
    path = tmp_path / "made" / "now.jsonl"
    plane.say("snapshot", str(path))
    assert "Against the limits" in plane.say("simulate", str(path), "--policy", "easy")
    assert plane.say("snapshot", "-").count("\n") == path.read_text().count("\n")
    assert plane.run("snapshot", str(tmp_path)).returncode == 2  # a folder
    waiting = plane.say("sbatch", "--parsable", "--gres=gpu:4", "--wrap", "true").strip()
    found = json.loads(plane.say("whatif", "--policies", "easy,fifo", "--json", "-"))
    assert [one["job"] for one in found["waiting"]] == [int(waiting)]
    assert found["waiting"][0]["starts_in_s"]["easy"] >= 60, "after the job that runs"
    shown = plane.say("whatif", "--policies", "easy", "--cluster", "2x4")
    assert "How long until what waits would start" in shown
    assert plane.run("whatif", "--policies", "easier").returncode == 2
    plane.say("cancel", job, waiting)


def test_slurm_named_programs_are_made_in_an_own_folder(plane):
    folder = plane.work / "bin"
    plane.say("slurm", "install", str(folder))
    shown = subprocess.run([folder / "squeue", "-h"], env=plane.environment(), capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    (folder / "sinfo").unlink()
    (folder / "sinfo").write_text("mine")
    assert plane.run("slurm", "install", str(folder)).returncode == 2


def test_the_journal_is_whole_and_decides_again_as_it_did(plane):
    number = plane.say("sbatch", "--parsable", "-H", "--wrap", "true").strip()
    assert "1 row(s) of jobs that wait or run" in plane.say("journal", "verify")
    assert plane.run("scancel", number).returncode == 0
    assert json.loads(plane.say("journal", "verify", "--json", "-"))["rows_left"] == 0
    assert "all decided again as they were" in plane.say("journal", "replay")


def test_a_changed_journal_is_found(own_plane, plane):
    plane.say("submit", "--gpus", "1", "--", "true")  # a line of the audit log
    own_plane.folder.mkdir()
    with sqlite3.connect(plane.places.database) as source, sqlite3.connect(own_plane.places.database) as copy:
        source.backup(copy)
        copy.execute("update audit set payload = payload || ' ' where seq = 1")
    shutil.copy(plane.places.tokens, own_plane.places.tokens)
    answer = own_plane.run("journal", "verify")
    assert (answer.returncode, "audit record 1" in answer.stderr) == (65, True), answer.stderr
    with copy:
        copy.execute("update journal set payload = replace(payload, 'NodeAdded', 'NodeEdded')")
    source.close()
    copy.close()
    answer = own_plane.run("journal", "verify")
    assert (answer.returncode, "journal record" in answer.stderr) == (65, True), answer.stderr


def test_jobs_go_on_while_nobody_looks_and_are_taken_over(own_plane):
    own_plane.start()
    done, enough = own_plane.work / "ticks", own_plane.work / "enough"
    script = f"while [ ! -e {enough} ]; do echo $$ >>{done}; sleep 0.1; done"
    number = own_plane.say("sbatch", "--parsable", "--gres=gpu:1", "--wrap", script).strip()
    wait_until(lambda: count_lines(done) > 0, "the job's first line")
    assert own_plane.end(signal.SIGINT) == 0
    assert not own_plane.places.server.exists()
    before = count_lines(done)
    wait_until(lambda: count_lines(done) > before + 3, "lines while nobody looks")
    own_plane.start()
    assert own_plane.say("squeue", "-h", "-o", "%i %t") == f"{number} R\n"
    enough.touch()
    assert own_plane.run("wait", number).returncode == 0
    assert len(set(done.read_text().split())) == 1, "it was one process all the time"
    assert own_plane.say("sacct", "-j", number, "-nXo", "restarts%-1,state%-9").split() == ["0", "COMPLETED"]


def test_down_stops_and_can_end_the_jobs_too(own_plane):
    own_plane.start()
    own_plane.say("submit", "--gpus", "1", "--", "sleep", "1000")
    wait_until(lambda: "RUNNING" in own_plane.say("queue"), "a running job")
    assert own_plane.run("down", "--stop-jobs").returncode == 0
    assert own_plane.process.wait(10) == 0
    assert own_plane.run("queue").returncode == 69
    assert own_plane.run("down").returncode == 0


def test_the_configuration_is_read_again_and_a_bad_one_refused(own_plane):
    config = own_plane.work / "site.yaml"
    config.write_text("queues: [{name: production}, {name: urgent, priority: 100}]\n")
    own_plane.start("--config", str(config))
    config.write_text("queues: [{name: production}, {name: urgent, priorty: 5}]\n")
    refused = own_plane.run("config", "reload")
    assert refused.returncode == 2
    assert "did you mean 'priority'?" in refused.stderr
    config.write_text("queues: [{name: production}, {name: urgent, priority: 100}, {name: debug, priority: 7}]\n")
    os.kill(own_plane.process.pid, signal.SIGHUP)
    wait_until(lambda: "debug" in own_plane.say("queues"), "the new queue")
    assert own_plane.run("config", "check", str(config)).returncode == 0


def test_a_control_plane_in_the_background_is_ready_when_the_command_returns(own_plane):
    found = json.loads(own_plane.say("up", "--background", "--listen", "0", "--json", "-"))
    assert own_plane.places.log.stat().st_mode & 0o777 == 0o600
    assert found["pid"] == read_running(own_plane.places).pid
    assert Path(found["token_file"]).stat().st_mode & 0o777 == 0o600
    assert own_plane.run("submit", "--gpus", "1", "--wait", "--", "true").returncode == 0
    stopped = json.loads(own_plane.say("down", "--json", "-"))
    assert stopped == {"stopped": True, "pid": found["pid"], "cancelled": 0}


def test_a_start_in_the_background_that_fails_says_why_and_ends_alike(own_plane):
    own_plane.folder.mkdir(mode=0o700)
    own_plane.places.log.write_text("what an earlier one wrote\n")
    answer = own_plane.run("up", "--background", "--listen", "0.0.0.0:0")
    assert answer.returncode == 2
    assert "TLS" in answer.stderr
    assert "what an earlier one wrote" not in answer.stderr


def test_a_public_address_without_tls_is_refused(own_plane):
    answer = own_plane.run("up", "--listen", "0.0.0.0:0")
    assert answer.returncode == 2
    assert "TLS" in answer.stderr
