"""A control plane that waits answers every request with who leads."""

import contextlib
import http.client
import json
import socket

import pytest

from clearway.server import standby as standby_module
from clearway.server.standby import Standby


@pytest.fixture
def standby():
    server = Standby("127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_every_request_is_told_who_leads_whatever_it_sends(standby, method):
    standby.leader = "other_1"
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", standby.port, timeout=20)) as connection:
        connection.request(method, "/api/v1/jobs", body=b"x" * 4_000_000)
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        said = json.loads(answer.read())["detail"]
    assert said == "expected the control plane that leads, found one that waits; other_1 leads"


def test_connection_that_says_nothing_is_closed(monkeypatch):
    monkeypatch.setattr(standby_module, "SILENCE_S", 0.05)
    server = Standby("127.0.0.1", 0)
    server.start()
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), timeout=20)) as connection:
        assert connection.recv(1) == b""
    server.stop()
