"""Input variables of sbatch: each stands for its option, behind those of the command line; none is lost in silence."""

import pytest

from clearway.cli.slurm.sbatch import OWN
from clearway.cli.slurm.sbatch_variables import VARIABLES, read_variables
from clearway.wire.slurm_options import OPTIONS


def asked(words=(), **variables):
    return read_variables(variables, words, OWN)


def test_every_variable_stands_for_a_known_option():
    assert set(VARIABLES.values()) <= set(OPTIONS)


@pytest.mark.parametrize(
    ("variable", "value", "word"),
    [
        ("SBATCH_GPUS_PER_TASK", "2", "--gpus-per-task=2"),
        ("SBATCH_MEM_PER_CPU", "4G", "--mem-per-cpu=4G"),
        ("SBATCH_MEM_PER_NODE", "4G", "--mem=4G"),
        ("SBATCH_MEM_PER_GPU", "4G", "--mem-per-gpu=4G"),
        ("SBATCH_CPUS_PER_GPU", "4", "--cpus-per-gpu=4"),
        ("SBATCH_SIGNAL", "USR1@120", "--signal=USR1@120"),
        ("SBATCH_TIMELIMIT", "5", "--time=5"),
        ("SBATCH_REQUEUE", "", "--requeue"),
        ("SBATCH_NO_REQUEUE", "1", "--no-requeue"),
        ("SBATCH_EXCLUSIVE", "", "--exclusive"),
        ("SBATCH_EXCLUSIVE", "exclusive", "--exclusive"),
        ("SBATCH_EXCLUSIVE", "user", "--exclusive=user"),
        ("SBATCH_RESERVATION", "maintenance", "--reservation=maintenance"),
    ],
)
def test_a_variable_is_its_option(variable, value, word):
    assert asked(**{variable: value}).words == (word,)


def test_a_variable_that_is_empty_or_says_no_asks_for_nothing():
    assert asked(SBATCH_PARTITION="", SBATCH_REQUEUE="no", SBATCH_EXCLUSIVE="0").words == ()


def test_what_the_command_obeys_is_not_sent():
    assert (asked(SBATCH_WAIT="1").words, asked(SBATCH_WAIT="1").own) == ((), ("wait",))


def test_the_wait_for_switches_comes_behind_them():
    assert asked(SBATCH_REQ_SWITCH="1", SBATCH_WAIT4SWITCH="10").words == ("--switches=1@10",)
    assert asked(SBATCH_WAIT4SWITCH="10").words == ()


@pytest.mark.parametrize("word", ["--mem=1G", "--mem-per-cpu=1G", "--mem-per-gpu=1G"])
def test_the_command_line_goes_before_and_takes_the_place_of_what_it_excludes(word):
    assert asked([word], SBATCH_MEM_PER_CPU="4G", SBATCH_QOS="high").words == ("--qos=high",)


def test_another_variable_is_told():
    notes = asked(SBATCH_NONSENSE="1", SLURM_CONF="x", PATH="/bin").notes
    assert notes == ("SBATCH_NONSENSE is not known here, and changes nothing",)


def test_sbatch_obeys_its_variables_and_notes_others(desk, monkeypatch):
    monkeypatch.setenv("SBATCH_NO_REQUEUE", "")
    monkeypatch.setenv("SBATCH_GPUS_PER_TASK", "2")
    monkeypatch.setenv("SBATCH_NONSENSE", "1")
    typed = desk.slurm("sbatch", "--wrap", "true")
    assert typed.code == 0
    assert "sbatch: SBATCH_NONSENSE is not known" in typed.err
    spec = desk.control.specs[1]
    assert (spec.requeue, spec.request.devices) == (False, 2)
