"""The command as a process: exit codes, streams and start-up, as scripts see them."""

import json
import subprocess
import sys

import pytest

MAIN = "from clearway.cli import main; main()"
SWF = "1 0 -1 100 2 -1 -1 2 200 -1 1 1 1 -1 1 -1 -1 -1\n2 5 -1 20 4 -1 -1 4 60 -1 1 2 1 -1 1 -1 -1 -1\n"


def clearway(*arguments, **environment):
    """The command in a process of its own, in an English locale unless said otherwise."""
    settings = [f"{name}={value}" for name, value in ({"LC_ALL": "C.UTF-8"} | environment).items()]
    return subprocess.run(
        ["env", *settings, sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "two.swf"
    path.write_text(SWF)
    return str(path)


def test_done_is_zero_and_json_stands_alone_on_standard_output(trace):
    process = clearway("simulate", trace, "--cluster", "1x4", "--policy", "fifo", "--json", "-")
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["jobs_finished"] == 2


def test_a_wrong_input_is_two_without_a_traceback(trace):
    process = clearway("simulate", trace, "--cluster", "1x4", "--policy", "best")
    assert process.returncode == 2
    assert process.stdout == ""
    assert "found 'best'" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_wrong_option_is_two(trace):
    assert clearway("simulate", trace, "--cluster", "1x4", "--policy", "fifo", "--sed", "1").returncode == 2


def test_a_missing_extra_is_three_and_says_what_to_install(trace, tmp_path):
    """A module of the name that cannot be imported stands before the installed one."""
    hidden = "raise ModuleNotFoundError(\"No module named 'jinja2'\", name='jinja2')\n"
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "jinja2.py").write_text(hidden)
    report = str(tmp_path / "report.html")
    process = clearway(
        "simulate", trace, "--cluster", "1x4", "--policy", "fifo", "--html", report, PYTHONPATH=str(tmp_path / "hidden")
    )
    assert process.returncode == 3
    assert 'pip install "clearway[twin]"' in process.stderr


def test_a_closed_pipe_is_no_internal_error():
    shell = f'set -o pipefail; "{sys.executable}" -c "{MAIN}" policies | true'
    process = subprocess.run(["bash", "-c", shell], capture_output=True, text=True)
    assert process.returncode in (0, 1)
    assert "Traceback" not in process.stderr


def test_help_follows_the_locale():
    assert "用真实轨迹检验策略" in clearway("--help", LC_ALL="zh_CN.UTF-8", COLUMNS="200").stdout
    assert "用真实轨迹检验策略" in clearway("--language", "zh", "--help", COLUMNS="200").stdout
    assert "try a policy on real traces" in " ".join(clearway("--help", COLUMNS="200").stdout.split())


def test_an_unknown_language_is_refused():
    assert clearway("--language", "fr", "policies").returncode == 2


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("simulate", "--help")])
def test_help_loads_nothing_heavy(arguments):
    heavy = "numpy numba yaml scipy matplotlib"  # pydantic is loaded by Typer itself
    code = f"""
import sys
from clearway.cli import main
try:
    main()
finally:
    print([name for name in {heavy!r}.split() if name in sys.modules], file=sys.stderr)
"""
    process = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert process.returncode == 0
    assert process.stderr.strip() == "[]"


def test_the_module_is_the_command():
    process = subprocess.run([sys.executable, "-m", "clearway.cli", "--version"], capture_output=True, text=True)
    assert process.returncode == 0
    assert process.stdout.startswith("clearway ")
