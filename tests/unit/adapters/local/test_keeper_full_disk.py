"""Keeper and warden live on where nothing can be written."""

import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from clearway.adapters.local.keeper import warden
from clearway.adapters.local.keeper.processes import read_start_ticks
from clearway.adapters.local.keeper.records import Records, Started
from support.keepers import make_launch, noted_keeper, refuse


def test_fault_with_one_run_that_cannot_even_be_said_does_not_end_the_keeper(tmp_path, monkeypatch):
    with noted_keeper(tmp_path) as keeper, full_file() as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", full)
        keeper._guard(refuse)


@contextlib.contextmanager
def full_file() -> Iterator[TextIO]:
    file = open("/dev/full", "w")  # noqa: SIM115 - closing it fails
    yield file
    with contextlib.suppress(OSError):
        file.close()


def test_warden_that_cannot_write_how_a_process_ended_writes_it_when_it_can(tmp_path):
    records = Records(tmp_path)
    records.begin(make_launch())
    tries, tried = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            watch_one_end(records, tried)
        os._exit(0)
    os.close(tried)
    assert os.read(tries, 1) == b"!", "the warden has ended"
    assert records.read(5, 1).exits == {}
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    os.waitpid(pid, 0)
    os.close(tries)
    assert list(records.read(5, 1).exits.values()) == [3 << 8]


def watch_one_end(records: Records, tried: int) -> None:
    """As a warden in whose state no file can grow, and whose child ends with 3. tried: told each time it waits."""
    gate, opener = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(opener)
        os.close(tried)
        os.read(gate, 1)
        os._exit(3)
    records.note_started(5, 1, Started(boot="b", mark="5.1", processes=((child, read_start_ticks(child), 0),)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    sleep = time.sleep
    time.sleep = lambda _seconds: (os.write(tried, b"!"), sleep(0.01))
    os.write(opener, b"g")
    warden._watch(0, records)
