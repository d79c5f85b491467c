"""A stream that has begun goes on behind a server that starts anew, and so does who waits for jobs; a stream that never
began is given up sooner."""

import json
import os
import signal
import socket
import threading

import pytest

from clearway.client import Client, client
from clearway.client.errors import UnreachableError
from clearway.ports.views import JobState
from clearway.wire.api_rows import encode_row
from support.stored import make_view

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
GIVEN_UP = len(client.RETRY_S) + 1
"""Tries after which a stream that never began is given up."""


@pytest.fixture
def serve(monkeypatch):
    """Serves these answers, a connection each, b"" = the server is away; gives the port, and what was asked."""
    monkeypatch.setattr(client, "RETRY_S", (0.0,) * len(client.RETRY_S))
    server = socket.create_server(("127.0.0.1", 0))
    threads = []

    def begin(answers):
        asked = []

        def run():
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(4096).decode())
                    connection.sendall(answer)

        threads.append(threading.Thread(target=run, daemon=True))
        threads[0].start()
        return server.getsockname()[1], asked

    yield begin
    server.close()
    threads[0].join(10)


def test_log_goes_on_where_it_was_after_a_long_restart(serve):
    answers = [HEAD + b'id: 3\nevent: log\ndata: {"data": "aGkK"}\n\n', *[b""] * (GIVEN_UP + 2)]
    port, asked = serve([*answers, HEAD + b"id: 3\nevent: end\ndata: {}\n\n"])
    with Client(f"http://127.0.0.1:{port}", "token") as caller:
        assert b"".join(caller.follow_log(1)) == b"hi\n"
    assert len(asked) == GIVEN_UP + 4
    assert all("Last-Event-ID: 3" in request for request in asked[1:])


def test_server_that_never_answered_is_given_up(serve):
    port, asked = serve([b""] * GIVEN_UP)
    with Client(f"http://127.0.0.1:{port}", "token") as caller, pytest.raises(UnreachableError):
        list(caller.follow_log(1))
    assert len(asked) == GIVEN_UP


def answer(document):
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


ENDED = answer({"jobs": [encode_row(make_view(1, state=JobState.COMPLETED))], "next_after": None})


def test_wait_goes_on_behind_a_server_that_starts_anew(serve):
    port, asked = serve([*[b""] * (GIVEN_UP + 2), ENDED])
    with Client(f"http://127.0.0.1:{port}", "token") as caller:
        (job,) = caller.wait([1])
    assert (job.state, len(asked)) == (JobState.COMPLETED, GIVEN_UP + 3)


def test_wait_for_a_server_that_stays_away_is_given_up(serve):
    tries = client.RESTART_TRIES + 1
    port, asked = serve([b""] * tries)
    with Client(f"http://127.0.0.1:{port}", "token") as caller, pytest.raises(UnreachableError):
        caller.wait([1])
    assert len(asked) == tries


def test_request_that_was_interrupted_is_forgotten():
    """Its connection is not used again: cancelling is not asked twice, so it must be the first."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run():
            first, _ = server.accept()
            first.recv(4096)
            os.kill(os.getpid(), signal.SIGINT)
            second, _ = server.accept()
            with first, second:
                second.recv(4096)
                second.sendall(answer({"jobs": [1]}))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        with Client(f"http://127.0.0.1:{server.getsockname()[1]}", "token") as caller:
            with pytest.raises(KeyboardInterrupt):
                caller.jobs()
            assert caller.cancel([1]) == (1,)
        thread.join(10)
