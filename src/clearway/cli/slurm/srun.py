"""`srun`: outside of a job, submit a command, show what it writes, end as it ended; inside, start the job's tasks."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clearway.cli.connection import environment
from clearway.cli.slurm.arguments import UsageError
from clearway.cli.slurm.endings import EndedBySignal, hear_endings
from clearway.cli.slurm.sbatch import MAY_BE_THERE, OWN, Line, split_line
from clearway.cli.slurm.sbatch_text import refuse_submission

if TYPE_CHECKING:
    from clearway.client import Client
    from clearway.model.ids import JobId
    from clearway.ports.views import JobView
    from clearway.wire.api import SubmittedFile

SCRIPT: Final = '#!/bin/sh\nexec "$@"\n'
"""Words are handed on as they are: nothing in them is read by a shell."""

TASKS_MAX: Final = 4_096

EXIT_NOT_FOUND: Final = 127
SIGNAL_BASE: Final = 128


def run(arguments: Sequence[str]) -> int:
    """The exit code of the command; of several tasks, the highest."""
    line = split_line("srun", arguments, OWN)
    if not line.rest:
        raise UsageError("srun: fatal: No command given to execute.", is_bare=True)
    if environment().get("SLURM_JOB_ID"):
        return run_step(line, environment())
    try:
        return _run_job(line)
    except EndedBySignal as ended:
        return SIGNAL_BASE + ended.number


def _run_job(line: Line) -> int:
    """Whatever ends this before the job has ended, ends the job: nobody reads it any more."""
    from clearway.cli.connection import connect
    from clearway.cli.live_submit import exit_code_of
    from clearway.client.errors import ApiError

    file, key = _make_file(line), os.urandom(16).hex()
    job: JobId | None = None
    with connect() as client, hear_endings() as close_ears:
        try:
            job = _submit(client, file, key)
            ended = _attend(client, job)
        except BaseException as error:
            close_ears()
            if job is not None or not isinstance(
                error, UsageError | ApiError
            ):  # which say themselves whether there may be a job
                _take_back(client, job, file, key)
            raise
    if ended.state.value == "COMPLETED":
        return 0
    sys.stderr.write(f"srun: error: job {job}: {ended.state.value} {ended.message}".rstrip() + "\n")
    return exit_code_of(ended)


def _make_file(line: Line) -> "SubmittedFile":
    from clearway.wire.api import Form, SubmittedFile

    if count_tasks(line.words, {}) > 1:
        raise UsageError(
            "outside of a job, srun starts one task; for more give `sbatch` a script, or `replicas` in a job file"
        )
    options = [word for word in line.words if not word.startswith("--ntasks=")]
    if not any(word.startswith("--job-name=") for word in options):
        options.append(f"--job-name={Path(line.rest[0]).name}")
    return SubmittedFile(text=SCRIPT, source="srun", form=Form.SCRIPT, options=tuple(options), args=line.rest)


def _submit(client: "Client", file: "SubmittedFile", key: str) -> "JobId":
    from clearway.cli.connection import submitted_environment
    from clearway.client.errors import RefusedError, TimedOutError

    try:
        answer = client.submit([file], cwd=str(Path.cwd()), environment=submitted_environment(), key=key)
    except RefusedError as error:
        raise refuse_submission("srun", str(error)) from error
    except TimedOutError as error:
        raise UsageError(f"{error}\n{MAY_BE_THERE}") from error
    return answer.jobs[0]


def _attend(client: "Client", job: "JobId") -> "JobView":
    """Show what the job writes until it has ended."""
    for part in client.follow_log(job):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
    return client.wait([job], poll_s=0.1)[0]


def _take_back(client: "Client", job: "JobId | None", file: "SubmittedFile", key: str) -> None:
    """Cancel the job. Where the answer to its submission never came, the same key asks for its number; one that never
    arrived is accepted by that, so it is sent held."""
    from clearway.client.errors import ApiError

    called = "the job" if job is None else f"job {job}"
    try:
        if job is None:
            job = _submit(client, replace(file, options=(*file.options, "--hold")), key)
        said = f"srun: Force Terminated job {job}\n" if client.cancel([job]) else ""
    except (ApiError, UsageError) as error:
        said = f"srun: error: {called} may still be there, for it could not be cancelled; see `squeue --me`: {error}\n"
    with contextlib.suppress(OSError):  # of a terminal that is gone
        sys.stderr.write(said)


def count_tasks(words: Sequence[str], variables: Mapping[str, str]) -> int:
    """What `-n` says, else the job. Raises UsageError."""
    text = next((word.partition("=")[2] for word in words if word.startswith("--ntasks=")), "")
    text = text or variables.get("SLURM_NTASKS", "1")
    if not text.isdigit() or not 1 <= int(text) <= TASKS_MAX:
        raise UsageError(f'Invalid numeric value "{text}" for --ntasks.\nexpected a number from 1 to {TASKS_MAX}')
    return int(text)


def run_step(line: Line, variables: Mapping[str, str]) -> int:
    """The tasks of this job's first node, each with its rank."""
    nodes = next((word.partition("=")[2] for word in line.words if word.startswith("--nodes=")), "")
    if (nodes or variables.get("SLURM_NNODES", "1")) != "1":
        raise UsageError(
            "steps over several nodes are not started from inside of a job: write a job file with `replicas`, whose "
            "command runs on every node with RANK and MASTER_ADDR set"
        )
    count = count_tasks(line.words, variables)
    tasks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(count):
            own = {**variables, **_make_ranks(rank, count)}
            tasks.append(subprocess.Popen(list(line.rest), env=own))  # noqa: S603 - the user's own words
        codes = [task.wait() for task in tasks]
    except OSError as error:
        for task in tasks:
            task.terminate()
        sys.stderr.write(f"srun: error: {line.rest[0]}: {error.strerror}\n")
        return EXIT_NOT_FOUND
    return max(SIGNAL_BASE - code if code < 0 else code for code in codes)


def _make_ranks(rank: int, count: int) -> dict[str, str]:
    """What a task of a step is, by Slurm's names and by those of PyTorch: the job's own would be the same for all."""
    ranks = dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "RANK", "LOCAL_RANK"), str(rank))
    return {**ranks, **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "WORLD_SIZE"), str(count))}
