"""Standard output that cannot be written costs one line, never a traceback nor the number of a job."""

import io
import json

import pytest

from clearway.cli.app import make_command
from clearway.cli.live_submit import wait_for
from clearway.cli.messages import Language
from clearway.cli.session import make_session
from clearway.cli.streams import ready_output
from support.stored import make_view

FULL = "expected to write to standard output, found: No space left on device"


@pytest.fixture
def full(monkeypatch):
    """To be called in a test: the disk on which standard output lies is full."""
    with open("/dev/full", "w") as file:
        yield lambda: monkeypatch.setattr("sys.stdout", file)


@pytest.fixture
def plain(monkeypatch):
    """To be called in a test: standard output in a POSIX locale. Gives what is written."""
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding="ascii")

    def begin():
        monkeypatch.setattr("sys.stdout", file)
        ready_output()
        return lambda: (file.flush(), written.getvalue().decode())[1]

    return begin


def clearway(*words):
    with pytest.raises(SystemExit) as ended:
        make_command(Language.ENGLISH)(words, prog_name="clearway")
    return ended.value.code


def test_slurms_commands_say_so_in_a_line(desk, full):
    full()
    typed = desk.slurm("squeue")
    assert (typed.code, typed.err) == (1, f"squeue: error: {FULL}\n")


def test_sbatch_tells_the_number_all_the_same(desk, full):
    full()
    typed = desk.slurm("sbatch", "--wrap", "true")
    assert list(desk.control.jobs) == [1]
    assert typed.code == 1
    assert "sbatch: error: Submitted batch job 1" in typed.err
    assert typed.err.endswith(f"sbatch: error: {FULL}\n")


@pytest.mark.parametrize("words", [("jobs",), ("jobs", "--json", "-"), ("submit", "--", "true")])
def test_commands_say_so_and_end_with_a_code_of_its_own(desk, full, words, capfd, monkeypatch):
    full()
    monkeypatch.setattr("sys.argv", ["clearway", *words])
    assert clearway(*words) == 74
    said = capfd.readouterr().err
    assert "Traceback" not in said
    assert FULL in said
    assert ("Submitted job 1" in said) == (words[0] == "submit")


def test_names_that_the_encoding_lacks_are_escaped(desk, plain):
    written = plain()
    desk.control.put(make_view(1, name="训练", user="ada", tenant="vision"))
    assert desk.slurm("squeue", "-h", "-o", "%j").code == 0
    assert written() == "\\u8bad\\u7ec3\n"


def test_json_stays_json_where_the_encoding_lacks_something(desk, plain):
    written = plain()
    desk.control.put(make_view(1, name="é😀", user="ada", tenant="vision"))
    assert clearway("jobs", "--json", "-") == 0
    assert json.loads(written())[0]["name"] == "é😀"


class Unread:
    """A job whose output nobody reads any more."""

    def follow_log(self, _job):
        yield b"a line\n"
        raise BrokenPipeError


def test_job_that_nobody_follows_any_more_is_said_to_go_on(capfd):
    with pytest.raises(BrokenPipeError):
        wait_for(make_session("en"), Unread(), [7], follow=True)
    assert "Job 7 goes on" in capfd.readouterr().err
