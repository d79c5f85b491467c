"""Every command through Typer's runner: what it prints, what it writes, and how it ends."""

import csv
import json

import pytest
import typer
import yaml
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.cli.errors import CommandGroup
from clearway.cli.outputs import ready_outputs, write_secret_json
from clearway.cli.session import make_session
from clearway.model.errors import InternalError, MissingExtraError
from clearway.policies.named import POLICY_NAMES

SWF = """; MaxProcs: 4
1 0 -1 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1
2 10 -1 50 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1
3 20 -1 30 1 -1 -1 1 30 -1 1 1 1 -1 1 -1 -1 -1
4 30 -1 -1 1 -1 -1 1 30 -1 0 1 1 -1 1 -1 -1 -1
"""
JOB = """name: tune
kind: finetune
resources:
  gpus: 2
time_limit: "30:00"
run: python tune.py
"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "small.swf"
    path.write_text(SWF)
    return str(path)


def run(*arguments, language="en"):
    return CliRunner().invoke(app, ["--language", language, *arguments])


def test_version_is_one_line():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("clearway ")


SLURMS = ("sbatch", "squeue", "sinfo", "scancel", "sacct", "scontrol", "srun", "salloc")


def each_command(command, name=""):
    below = getattr(command, "commands", {})
    if not below or getattr(command, "invoke_without_command", False):
        yield name.strip(), command
    for word, inner in below.items():
        yield from each_command(inner, f"{name} {word}")


def test_every_command_can_answer_in_json_but_those_that_keep_slurms_options():
    """The root and the groups alone print nothing but help."""
    without = {
        name
        for name, command in each_command(typer.main.get_command(app))
        if name and not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == set(SLURMS)


@pytest.mark.parametrize("was_there", [False, True])
def test_file_with_a_token_is_for_its_owner_alone(tmp_path, was_there):
    path = tmp_path / "made" / "token.json"
    if was_there:
        path.parent.mkdir()
        path.touch(0o644)
    write_secret_json(make_session("en"), {"token": "secret"}, str(path))
    assert (path.stat().st_mode & 0o777, json.loads(path.read_text())) == (0o600, {"token": "secret"})


def test_example_of_a_configuration_is_the_same_as_json():
    as_yaml, as_json = run("config", "example"), run("config", "example", "--json", "-")
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)


def test_what_a_check_of_a_configuration_found_is_told_as_json(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("kill_wait: 10s\n")
    assert json.loads(run("config", "check", str(path), "--json", "-").stdout) == {"file": str(path), "is_good": True}
    path.write_text("kil_wait: 10s\n")
    assert run("config", "check", str(path), "--json", "-").exit_code == 2


def test_simulate_prints_only_json_where_json_goes_to_standard_output(trace):
    result = run("simulate", trace, "--cluster", "1x4", "--policy", "fifo", "--json", "-")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["jobs_total"] == document["jobs_finished"] == 3
    assert set(document) >= {"wait_s", "jct_s", "makespan_s", "device_allocation_ratio", "preemptions"}
    assert set(document["wait_s"]) == {"mean", "p50", "p90", "p99", "max"}
    assert set(document["run"]) >= {"wall_s", "events", "jobs_per_s", "peak_rss_bytes"}
    assert set(document["bounds"]) >= {"jct_mean_s", "makespan_s", "device_allocation_ratio"}


def test_simulate_shows_metrics_limits_and_what_was_left_out(trace):
    result = run("simulate", trace, "--cluster", "1x4", "--policy", "easy")
    assert result.exit_code == 0
    assert "Makespan" in result.stdout
    assert "limits that no schedule can pass" in result.stdout
    assert "Left out 1" in result.stderr


def test_simulate_says_how_many_jobs_never_started_and_why(trace):
    arguments = ("simulate", trace, "--cluster", "1x2", "--policy", "easy")
    told = run(*arguments).stderr
    assert "1 job(s) never started, the first of them job 2: NeverFits: asks for 4 replicas of 1 device" in told
    assert "1 个作业从未启动，其中第一个是作业 2：NeverFits" in run(*arguments, language="zh").stderr
    assert "never started" not in run("simulate", trace, "--cluster", "1x4", "--policy", "easy").stderr


def test_simulate_writes_a_row_per_job_from_the_first_submit(trace, tmp_path):
    path = tmp_path / "new folder" / "jobs.csv"
    result = run("simulate", trace, "--cluster", "1x4", "--policy", "fifo", "--jobs-csv", str(path))
    assert result.exit_code == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert list(rows[0])[:5] == ["job", "submit_s", "start_s", "end_s", "devices"]
    assert [(row["start_s"], row["devices"]) for row in rows] == [("0", "2"), ("100", "4"), ("150", "1")]


def test_simulate_under_the_checkers_gives_the_same_schedule(trace):
    plain, checked = (
        json.loads(run("simulate", trace, "--cluster", "1x4", "--policy", "easy", "--json", "-", *more).stdout)
        for more in ((), ("--check",))
    )
    assert plain["decisions_digest"] == checked["decisions_digest"]


def test_simulate_takes_a_policy_from_a_file(trace, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nlike: easy\nbackfill:\n  reservation_depth: 3\n")
    result = run("simulate", trace, "--cluster", "1x4", "--policy", str(path), "--json", "-")
    assert json.loads(result.stdout)["policy"] == "mine"


def test_simulate_speaks_chinese_when_asked(trace):
    result = run("simulate", trace, "--cluster", "1x4", "--policy", "fifo", language="zh")
    assert "总完工时间" in result.stdout
    assert "略去 1 条" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "fifo"], ["--cluster", "1250x8"]),
        (["--policy", "fifo", "--cluster", "4 nodes"], ["nodes x devices", "4 nodes"]),
        (["--policy", "fifoo", "--cluster", "1x4"], ["--policy", "fifoo", "multifactor"]),
        (["--policy", "none.yaml", "--cluster", "1x4"], ["none.yaml"]),
        (["--policy", "fifo", "--cluster", "1x4", "--format", "swg"], ["--format", "swg"]),
        (["--policy", "fifo", "--cluster", "1x4", "--faults", "some"], ["--faults", "some"]),
        (["--policy", "fifo", "--cluster", "1x4", "--site", "none.yaml"], ["none.yaml"]),
    ],
)
def test_what_cannot_be_understood_ends_with_two_and_says_why(trace, arguments, words):
    result = run("simulate", trace, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for word in ("Input error", *words):
        assert word in result.stderr


def test_a_wrong_line_of_a_policy_file_is_named(trace, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nlike: easy\nbackfill:\n  reservation_dept: 3\n")
    result = run("simulate", trace, "--cluster", "1x4", "--policy", str(path))
    assert result.exit_code == 2
    assert "reservation_depth" in result.stderr
    assert f"{path}:" in result.stderr


def test_a_report_that_cannot_be_written_is_refused_before_the_run(trace, tmp_path):
    result = run("simulate", trace, "--cluster", "1x4", "--policy", "fifo", "--html", str(tmp_path))
    assert result.exit_code == 2
    assert "found a folder" in result.stderr


def test_compare_marks_the_best_and_keeps_the_order_of_policies(trace, tmp_path):
    path = tmp_path / "compared.json"
    result = run(
        "compare", trace, "--cluster", "1x4", "--policies", "fifo,easy", "--processes", "1", "--json", str(path)
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    fifo, easy = (next(line for line in lines if line.lstrip().startswith(name)) for name in ("fifo", "easy"))
    assert "*" in easy
    assert "*" not in fifo
    document = json.loads(path.read_text())
    assert list(document["policies"]) == ["fifo", "easy"]
    assert document["policies"]["easy"]["figures"]["wait_mean_s"]["is_best"]


def test_compare_says_that_seeds_change_nothing_in_a_trace_without_chance(trace):
    result = run("compare", trace, "--cluster", "1x4", "--policies", "fifo", "--seeds", "3", "--json", "-")
    assert json.loads(result.stdout)["seeds"] == [0]
    assert "one seed says all" in result.stderr


@pytest.mark.parametrize("policies", ["fifo,,easy", "fifo,fifo", "fifo,unknown"])
def test_compare_refuses_policies_that_are_empty_doubled_or_unknown(trace, policies):
    result = run("compare", trace, "--cluster", "1x4", "--policies", policies)
    assert result.exit_code == 2


def test_describe_shows_sizes_and_what_was_left_out(trace):
    result = run("trace", "describe", trace)
    assert result.exit_code == 0
    assert "Arrivals by hour" in result.stdout
    document = json.loads(run("trace", "describe", trace, "--json", "-").stdout)
    assert document["jobs"] == 3
    assert document["skipped"][0]["count"] == 1


def test_a_generated_trace_can_be_read_again(tmp_path):
    path = tmp_path / "made.swf"
    result = run("trace", "generate", "synthetic:philly-like?jobs=50", "--out", str(path), "--seed", "3")
    assert result.exit_code == 0
    assert json.loads(run("trace", "describe", str(path), "--json", "-").stdout)["jobs"] == 50


def test_a_model_is_fitted_and_taken_by_every_command_that_reads_traces(tmp_path):
    trace, model, again = (str(tmp_path / name) for name in ("made.swf", "made.yaml", "again.swf"))
    run("trace", "generate", "synthetic:philly-like?jobs=300", "--out", trace)
    shown = run("trace", "fit", trace, "--out", model)
    assert shown.exit_code == 0
    assert "Bunching per minute" in shown.stdout
    assert f"synthetic:{model}?jobs=300" in shown.stderr
    document = json.loads(run("trace", "fit", trace, "--out", model, "--json", "-").stdout)
    assert document["jobs"] == 300
    assert document["figures"]["devices_p50"] == {"trace": 1.0, "drawn": 1.0, "ratio": 1.0}
    assert run("trace", "generate", f"synthetic:{model}?jobs=40", "--out", again).exit_code == 0
    simulated = run("simulate", f"synthetic:{model}?jobs=40", "--cluster", "8x8", "--policy", "fifo", "--json", "-")
    assert json.loads(simulated.stdout)["jobs_total"] == 40
    described = run("trace", "describe", model, "--limit", "30", "--json", "-")
    assert json.loads(described.stdout)["jobs"] == 30


def test_a_model_with_a_fault_is_refused_by_line(tmp_path):
    path = tmp_path / "model.yaml"
    path.write_text("synthetic_model: 1\nname: mine\nusers: 0\n")
    result = run("simulate", f"synthetic:{path}", "--cluster", "8x8", "--policy", "fifo")
    assert result.exit_code == 2
    assert "model.yaml:3: users: expected a number greater than or equal to 1, found 0" in result.stderr


def test_history_is_imported_with_what_was_left_out_said(trace, tmp_path):
    out = tmp_path / "made" / "site.swf"
    result = run("import", trace, "--out", str(out), "--json", "-")
    assert (result.exit_code, json.loads(result.stdout)["jobs"]) == (0, 3)
    again = json.loads(run("trace", "describe", str(out), "--json", "-").stdout)
    assert again["jobs"] == 3


def test_formats_are_listed_by_the_name_that_the_option_takes():
    result = run("trace", "formats", "--json", "-")
    assert "swf" in [entry["name"] for entry in json.loads(result.stdout)]


def test_policies_lists_every_name_with_a_line_about_it():
    result = run("policies")
    assert result.exit_code == 0
    names = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert names == list(POLICY_NAMES)
    assert [entry["name"] for entry in json.loads(run("policies", "--json", "-").stdout)] == list(POLICY_NAMES)


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_a_shown_policy_is_a_file_that_gives_the_same_policy(name, tmp_path):
    path = tmp_path / "shown.yaml"
    path.write_text(run("policies", "show", name).stdout)
    again = json.loads(run("policies", "show", str(path), "--json", "-").stdout)
    assert again == yaml.safe_load(path.read_text())
    assert again["name"] == name


def test_job_check_echoes_how_units_were_understood(tmp_path):
    path = tmp_path / "tune.yaml"
    path.write_text(JOB)
    result = run("job", "check", str(path))
    assert result.exit_code == 0
    assert "tune" in result.stdout
    assert "30 minutes" in result.stdout
    document = json.loads(run("job", "check", str(path), "--json", "-").stdout)
    assert document[0]["jobs"][0]["limit_ms"] == 30 * 60_000


def test_job_check_reads_batch_scripts(tmp_path):
    path = tmp_path / "train.sh"
    path.write_text("#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gpus-per-node=8\n#SBATCH -t 2-12\nsrun true\n")
    document = json.loads(run("job", "check", str(path), "--json", "-").stdout)
    (job,) = document[0]["jobs"]
    assert job["limit_ms"] == 60 * 3_600_000


def test_job_check_lists_the_errors_of_all_files(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(JOB.replace("gpus: 2", "gpus: -1"))
    second.write_text(JOB.replace("kind: finetune", "kind: tune"))
    result = run("job", "check", str(first), str(second), str(tmp_path / "third.yaml"))
    assert result.exit_code == 2
    for words in (f"{first}:4", f"{second}:2", "third.yaml"):
        assert words in result.stderr


def test_scenarios_are_listed():
    assert "case-study" in run("scenario", "list").stdout
    assert [entry["name"] for entry in json.loads(run("scenario", "list", "--json", "-").stdout)] == ["case-study"]


def failing(error):
    """An application whose only commands fail."""
    broken = typer.Typer(cls=CommandGroup)

    @broken.callback()
    def root():
        """A group."""

    @broken.command()
    def fail():
        raise error

    return CliRunner().invoke(broken, ["fail"])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MissingExtraError('pip install "clearway[twin]"'), 3, 'pip install "clearway[twin]"'),
        (InternalError("the books do not agree"), 70, "the books do not agree"),
        (ZeroDivisionError("by chance"), 70, "Traceback"),
        (typer.Exit(5), 5, ""),
    ],
)
def test_each_way_of_failing_has_its_exit_code(error, code, words):
    result = failing(error)
    assert result.exit_code == code
    assert words in result.stderr


@pytest.mark.parametrize("option", ["--json", "--jobs-csv", "--html"])
def test_an_output_that_cannot_be_written_is_refused_before_the_run(trace, tmp_path, option, monkeypatch):
    monkeypatch.setattr("clearway.bootstrap.simulation.run_prepared", lambda *_, **__: pytest.fail("it ran"))
    (tmp_path / "a file").write_text("")
    for path, word in ((tmp_path, "found a folder"), (tmp_path / "a file" / "out", "found a file")):
        result = run("simulate", trace, "--cluster", "1x4", "--policy", "fifo", option, str(path))
        assert result.exit_code == 2
        assert word in result.stderr


def test_the_trial_of_an_output_leaves_nothing_and_touches_nothing(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("kept")
    ready_outputs(str(old), new, None)
    assert (old.read_text(), new.exists()) == ("kept", False)


def test_files_are_written_before_a_screen_that_is_gone_ends_the_command(trace, tmp_path, monkeypatch):
    def broken(*_):
        raise BrokenPipeError

    monkeypatch.setattr("clearway.cli.show_runs.show_run", broken)
    paths = [tmp_path / name for name in ("run.json", "jobs.csv")]
    run("simulate", trace, "--cluster", "1x4", "--policy", "fifo", "--json", str(paths[0]), "--jobs-csv", str(paths[1]))
    assert all(path.read_text() for path in paths)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ("", "found nothing"),
        (".", "found a folder"),
        ("no/such.yaml", "no such file"),
        ("cluster.yaml", "no such file"),
    ],
)
def test_a_cluster_that_is_none_is_explained(trace, cluster, message):
    result = run("simulate", trace, "--cluster", cluster, "--policy", "fifo")
    assert result.exit_code == 2
    assert message in result.stderr
