"""Replicas of the examples find one another, whoever of them is first."""

import importlib.util
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def peers(monkeypatch):
    spec = importlib.util.spec_from_file_location("peers_of_examples", ROOT / "examples" / "peers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    return module


def test_replica_waits_for_a_first_one_that_has_no_address_yet(peers, monkeypatch):
    look_up, answers = socket.getaddrinfo, []

    def look_up_late(*words, **more):
        answers.append(words[0])
        if len(answers) < 4:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up(*words, **more)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_late)
    sums = []

    def run_first():
        with peers.Peers(0, 2) as connected:
            sums.append(connected.add(np.ones(3)))

    first = threading.Thread(target=run_first)
    first.start()
    with peers.Peers(1, 2) as connected:
        sums.append(connected.add(np.full(3, 2.0)))
    first.join()
    assert len(answers) >= 4
    assert [one.tolist() for one in sums] == [[3.0] * 3] * 2


def test_replica_that_nobody_answers_fails_in_the_end(peers, monkeypatch):
    monkeypatch.setattr(peers, "CONNECT_S", 0.1)
    with pytest.raises(ConnectionRefusedError):
        peers.Peers(1, 2)
