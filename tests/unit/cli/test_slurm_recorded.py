"""What a real Slurm (22.05, Debian's packages) answered to wrong and odd commands, recorded, and what ours answer.

Compared is what a script can notice: the exit code, and the first lines on standard error. Ours may say more below
them. Names of nodes and folders are not those of the machine where it was recorded.
"""

from pathlib import Path

import pytest

from clearway.cli.slurm.main import run_slurm_command
from clearway.cli.slurm.sbatch_text import refuse_submission
from clearway.model.errors import InputError
from clearway.wire.sbatch import parse_sbatch

TRY_SBATCH = 'Try "sbatch --help" for more information\n'

REFUSED_AT_ONCE = [
    (["sbatch", "--nonsense", "--wrap", "hostname"], 255, f"sbatch: unrecognized option '--nonsense'\n{TRY_SBATCH}"),
    (["sbatch", "-y", "--wrap", "hostname"], 255, f"sbatch: invalid option -- 'y'\n{TRY_SBATCH}"),
    (["sbatch", "--wrap"], 255, f"sbatch: option '--wrap' requires an argument\n{TRY_SBATCH}"),
    (
        ["sbatch", "--wrap", "echo", "extra"],
        1,
        "sbatch: error: Script arguments not permitted with --wrap option\n",
    ),
    (["sbatch", "missing.sh"], 1, "sbatch: error: Unable to open file missing.sh\n"),
    (["srun"], 1, "srun: fatal: No command given to execute.\n"),
    (
        ["srun", "--nonsense", "hostname"],
        255,
        "srun: unrecognized option '--nonsense'\nTry \"srun --help\" for more information\n",
    ),
    (["srun", "-n", "abc", "hostname"], 1, 'srun: error: Invalid numeric value "abc" for --ntasks.\n'),
    (["squeue", "-y"], 1, "squeue: invalid option -- 'y'\nTry \"squeue --help\" for more information\n"),
    (["squeue", "extra"], 1, "squeue: error: Unrecognized option: extra\n"),
    (
        ["sinfo", "--nonsense"],
        1,
        "sinfo: unrecognized option '--nonsense'\nTry \"sinfo --help\" for more information\n",
    ),
    (["scancel"], 1, "scancel: error: No job identification provided\n"),
    (["scancel", "abc"], 1, "scancel: error: Invalid job id abc\n"),
    (["scancel", "12", "99999", "abc"], 1, "scancel: error: Invalid job id abc\n"),
    (
        ["scancel", "--nonsense"],
        1,
        "scancel: unrecognized option '--nonsense'\nTry \"scancel --help\" for more information\n",
    ),
    (["sacct", "--nonsense"], 1, "sacct: unrecognized option '--nonsense'\n"),
    (["sacct", "extra"], 1, "sacct: error: Unknown arguments:\nsacct: error:  extra\n"),
    (["scontrol", "show"], 1, "too few arguments for keyword:show\n"),
    (["scontrol", "hold"], 1, "too few arguments for keyword:hold\n"),
    (["scontrol", "update"], 1, "too few arguments for update keyword\n"),
]


@pytest.mark.parametrize(("words", "code", "said"), REFUSED_AT_ONCE, ids=lambda value: str(value)[:40])
def test_wrong_command_ends_as_the_real_one_did(words, code, said, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_slurm_command(words[0], words[1:]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(said)


SCRIPTS = [
    (
        b"#!/bin/bash\r\necho hi\r\n",
        "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
        "sbatch: error: instead of expected UNIX line breaks (\\n).\n",
    ),
    (
        b"#!/bin/bash\n#SBATCH -J dos\r\necho hi\n",
        "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
        "sbatch: error: instead of expected UNIX line breaks (\\n).\n",
    ),
    (
        b"#!/bin/bash\necho a\0b\n",
        "sbatch: error: The Slurm controller does not allow scripts that\n"
        "sbatch: error: contain a NULL character '\\0'.\n",
    ),
    (
        b"echo hi\n",
        "sbatch: error: This does not look like a batch script.  The first\n"
        "sbatch: error: line must start with #! followed by the path to an interpreter.\n"
        "sbatch: error: For instance: #!/bin/sh\n",
    ),
    (b"", "sbatch: error: Batch script is empty!\n"),
]


@pytest.mark.parametrize(("script", "said"), SCRIPTS)
def test_what_is_no_batch_script_is_refused_in_the_same_words(script: bytes, said, capfd, tmp_path: Path):
    path = tmp_path / "job.sh"
    path.write_bytes(script)
    assert run_slurm_command("sbatch", [str(path)]) == 1
    assert capfd.readouterr().err == said


@pytest.mark.parametrize("script", ["#!/bin/bash\r\n", "#!/bin/bash\n#SBATCH -J a\r\n", "#!/bin/bash\necho a\0b\n"])
def test_such_scripts_are_refused_however_they_come(script: str):
    with pytest.raises(InputError, match=r"DOS line ends|a NUL byte"):
        parse_sbatch(script, source="job.sh", now_ms=0, first_id=1, user="ada")


VALUES = [
    ("--time=abc", 255, "Invalid --time specification"),
    ("--mem=abc", 255, "Invalid --mem specification"),
    ("--signal=FOO", 255, "Invalid --signal specification"),
    ("--open-mode=x", 255, "Invalid --open-mode specification"),
    ("--ntasks=abc", 1, 'Invalid numeric value "abc" for --ntasks.'),
    ("--ntasks=0", 1, 'Invalid numeric value "0" for --ntasks.'),
    ("--cpus-per-task=0", 1, 'Invalid numeric value "0" for --cpus-per-task.'),
    ("--nodes=0", 1, "Batch job submission failed: Node count specification invalid"),
    ("--nodes=abc", 255, '"abc" is not a valid node count'),
    ("--array=abc", 1, "Batch job submission failed: Invalid job array specification"),
    ("--array=5-1", 1, "Batch job submission failed: Invalid job array specification"),
    ("--dependency=afterok:abc", 1, "Batch job submission failed: Job dependency problem"),
    ("--dependency=bogus:1", 1, "Batch job submission failed: Job dependency problem"),
]


@pytest.mark.parametrize(("option", "code", "said"), VALUES)
def test_value_that_does_not_parse_is_refused_in_the_words_of_slurm_then_in_ours(option, code, said):
    with pytest.raises(InputError) as refused:
        parse_sbatch("#!/bin/sh\ntrue\n", source="wrap", now_ms=0, first_id=1, user="ada", options=[option])
    error = refuse_submission("sbatch", str(refused.value))
    assert (error.code, str(error).splitlines()[0]) == (code, said)
    assert "expected" in str(error).splitlines()[1]


def test_unknown_option_of_a_script_is_refused_as_one_of_the_command_line():
    with pytest.raises(InputError) as refused:
        parse_sbatch("#!/bin/sh\n#SBATCH --nonsense\n", source="job.sh", now_ms=0, first_id=1, user="ada")
    error = refuse_submission("sbatch", str(refused.value))
    assert (error.code, str(error)) == (255, f"sbatch: unrecognized option '--nonsense'\n{TRY_SBATCH}".strip())


def test_two_ways_to_ask_for_memory_are_fatal():
    options = ["--mem=1G", "--mem-per-cpu=1G"]
    with pytest.raises(InputError) as refused:
        parse_sbatch("#!/bin/sh\n", source="wrap", now_ms=0, first_id=1, user="ada", options=options)
    error = refuse_submission("sbatch", str(refused.value))
    assert (error.code, str(error)) == (
        1,
        "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.",
    )


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (
            "job 'wrap': expected a queue out of debug, production, urgent, found 'nope'",
            "invalid partition specified: nope\nBatch job submission failed: Invalid partition name specified",
        ),
        (
            "job 'wrap': expected a job that was accepted, found a dependency on 99999",
            "Batch job submission failed: Job dependency problem",
        ),
    ],
)
def test_refusals_of_the_control_plane_begin_with_those_of_slurmctld(detail, said):
    error = refuse_submission("sbatch", detail)
    assert (error.code, str(error)) == (1, f"{said}\n{detail}")
