"""A keeper that lives and does not answer: nothing is given up or started twice, and what it owes is done later."""

import json
import os
import signal
import socket
import threading

import pytest

from clearway.adapters.local import backend, client, pulse
from clearway.adapters.local.config import LocalConfig
from clearway.adapters.local.keeper.home import SOCKET
from clearway.model.events import JobFinished, JobStarted, JobStopped, NodeDown, NodeUp
from clearway.model.jobs import Outcome
from clearway.model.plan import Stop
from support.benches import wait_until
from support.local import is_alive, local_bench

TICKING = "echo $$ >> pids-5; while :; do sleep 0.02; done"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(backend, "LOOK_S", 0.05)
    monkeypatch.setattr(pulse, "SILENT_LOOKS", 20)
    monkeypatch.setattr(client, "ANSWER_S", 1.0)


@pytest.fixture
def bench(tmp_path):
    with local_bench(tmp_path) as bench:
        yield bench


def start_ticking(bench):
    bench.add(5, TICKING)
    bench.start(5)
    bench.wait(JobStarted, 5)
    path = bench.workdir / "pids-5"
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), "the job's pid")
    return int(path.read_text())


def stop_keeper(bench):
    pid = bench.keeper_pid()
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_keeper_that_hangs_has_its_nodes_down_until_it_answers_and_then_does_all_once(bench):
    pid = start_ticking(bench)
    keeper = stop_keeper(bench)
    down = bench.wait(NodeDown, count=2)
    assert "its keeper does not answer" in down.reason
    bench.add(6, "echo $$ >> pids-6")
    bench.start(6)
    bench.start(6)
    assert is_alive(pid)
    os.kill(keeper, signal.SIGCONT)
    bench.wait(NodeUp, count=2)
    assert bench.wait(JobFinished, 6).outcome is Outcome.COMPLETED
    assert len((bench.workdir / "pids-6").read_text().split()) == 1
    assert not [event for event in bench.of(5) if not isinstance(event, JobStarted)]
    bench.perform(Stop(5, 1, 0, None))
    assert bench.wait(JobFinished, 5).outcome is Outcome.CANCELLED


def test_controller_that_starts_while_the_keeper_hangs_adopts_all_when_it_answers(bench):
    pid = start_ticking(bench)
    keeper = stop_keeper(bench)
    assert [type(event) for event in bench.reconnect([bench.holding(5)])] == [NodeDown, NodeDown]
    bench.add(6, "echo $$ >> pids-6")
    bench.start(6)
    assert not bench.observe()
    os.kill(keeper, signal.SIGCONT)
    bench.wait(NodeUp, count=2)
    assert bench.wait(JobFinished, 6).outcome is Outcome.COMPLETED
    assert bench.keeper_pid() == keeper
    assert is_alive(pid)
    assert not [event for event in bench.of(5) if isinstance(event, JobFinished | JobStopped)]
    assert len((bench.workdir / "pids-6").read_text().split()) == 1


def test_keeper_that_hangs_and_is_killed_is_replaced_and_its_nodes_are_up_again(bench):
    pid = start_ticking(bench)
    keeper = stop_keeper(bench)
    bench.wait(NodeDown, count=2)
    os.kill(keeper, signal.SIGKILL)
    bench.wait(NodeUp, count=2)
    assert bench.keeper_pid() != keeper
    assert is_alive(pid)
    assert not [event for event in bench.of(5) if isinstance(event, JobFinished | JobStopped)]


def test_messages_that_nobody_takes_stay_where_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(client, "INBOX_MAX", 10)
    many, size = 20_000, 1_000
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(SOCKET)
        listener.listen()
        link = client.KeeperClient(LocalConfig(state=tmp_path), lambda: None)
        keeper, _ = listener.accept()
        line = json.dumps({"op": "report", "run": "x" * size}).encode() + b"\n"
        talker = threading.Thread(target=keeper.sendall, args=(line * many,))
        talker.start()
        wait_until(lambda: len(link._inbox) >= client.INBOX_MAX, "messages")
        talker.join(0.5)
        assert talker.is_alive(), "somebody read what nobody took"
        assert len(link._inbox) * size < 4 << 20
        taken = []

        def take():
            taken.extend(link.take())
            return len(taken) == many

        wait_until(take, "all of them")
        talker.join()
        link.close()
        keeper.close()
