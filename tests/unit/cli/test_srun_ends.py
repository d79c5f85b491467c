"""Whatever ends `srun` before its job has ended, ends the job too."""

import contextlib
import os
import signal

import pytest

from clearway.cli import connection
from clearway.cli.slurm.endings import ENDINGS, EndedBySignal, hear_endings
from clearway.cli.slurm.main import run_slurm_command
from clearway.client.errors import RefusedError, TimedOutError, UnreachableError
from clearway.wire.api import Submitted

JOB = 7


class Plane:
    """A client whose one job writes for ever. submitting, following: what happens then."""

    def __init__(self, submitting=None, following=None):
        self.keys = {}
        self.cancelled = []
        self.held = []
        self._submitting = submitting
        self._following = following

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, files, *, key, **_):
        self.keys.setdefault(key, JOB)
        self.held.append("--hold" in files[0].options)
        happens, self._submitting = self._submitting, None
        if happens is not None:
            happens()
        return Submitted(jobs=(JOB,), firsts=(JOB,))

    def follow_log(self, _job):
        yield b"first\n"
        if self._following is not None:
            self._following()
        while True:
            yield b"y\n" * 4096

    def cancel(self, jobs):
        self.cancelled += jobs
        return tuple(jobs)


@pytest.fixture
def srun(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def srun(plane):
        monkeypatch.setattr(connection, "connect", lambda: plane)
        return run_slurm_command("srun", ["yes"])

    return srun


def hit(number):
    return lambda: signal.raise_signal(number)


def refuse(error):
    def fail():
        raise error

    return fail


@pytest.mark.parametrize("number", ENDINGS)
def test_job_ends_with_who_reads_it(srun, number, capfd):
    plane = Plane(following=hit(number))
    before = signal.getsignal(number)
    assert srun(plane) == 128 + number
    assert plane.cancelled == [JOB]
    assert "Force Terminated job 7" in capfd.readouterr().err
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", ENDINGS)
def test_job_whose_number_never_came_is_found_by_its_key(srun, number):
    plane = Plane(submitting=hit(number))
    assert srun(plane) == 128 + number
    assert len(plane.keys) == 1
    assert plane.held == [False, True]  # where the first never arrived, the second must not start
    assert plane.cancelled == [JOB]


def test_second_signal_does_not_keep_the_job_from_being_cancelled(srun):
    plane = Plane(following=hit(signal.SIGTERM))
    cancel = plane.cancel
    plane.cancel = lambda jobs: (signal.raise_signal(signal.SIGINT), cancel(jobs))[1]
    assert srun(plane) == 128 + signal.SIGTERM
    assert plane.cancelled == [JOB]


def test_job_ends_when_nobody_reads_its_output_any_more(srun, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    plane = Plane()
    with open(write, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        assert srun(plane) == 1
        with contextlib.suppress(BrokenPipeError):
            pipe.flush()
    assert plane.cancelled == [JOB]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RefusedError("expected a queue, found none"), "expected a queue"),
        (UnreachableError("nobody there"), "nobody there"),
        (TimedOutError("no answer"), "may have been accepted"),
    ],
)
def test_submission_that_failed_has_no_job_to_cancel(srun, error, said, capfd):
    plane = Plane(submitting=refuse(error))
    assert srun(plane) == 1
    assert plane.cancelled == []
    assert said in capfd.readouterr().err


def test_job_that_could_not_be_cancelled_is_named(srun, capfd):
    plane = Plane(following=refuse(UnreachableError("gone")))
    plane.cancel = lambda _: refuse(UnreachableError("gone"))()
    assert srun(plane) == 1
    assert "job 7 may still be there" in capfd.readouterr().err


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hear_endings():
            signal.raise_signal(signal.SIGHUP)
        with pytest.raises(EndedBySignal), hear_endings():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
