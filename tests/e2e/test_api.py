"""The client against a server behind a real port: answers, streams that go on where they broke off, clean ends."""

import contextlib
import socket
import subprocess
import threading
import time
from dataclasses import replace

import pytest

from clearway.client import (
    ApiError,
    Client,
    ForbiddenError,
    MisunderstoodError,
    NotFoundError,
    RefusedError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
)
from clearway.client.transport import Transport
from clearway.model.errors import InputError
from clearway.model.plan import ReasonCode
from clearway.ports.views import JobQuery, JobState, NodeState
from clearway.server.app import make_app
from clearway.server.auth import TokenFile, revoke_user
from clearway.server.serving import STOP_S_MAX, Server
from clearway.server.settings import ServerSettings
from clearway.wire.api import GAP, SubmittedFile
from support.fake_control import NOW_MS
from support.served import client_of, make_site, running
from support.stored import make_view

SCRIPT = SubmittedFile(text="#!/bin/sh\n#SBATCH -J night -a 0-2\nsrun x\n", source="night.sh", args=("7",))


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path)


@pytest.fixture
def control(site):
    return site.control


@pytest.fixture
def server(site):
    with running(site) as server:
        yield server


@pytest.fixture
def ada(server, site):
    with client_of(server, site, "ada") as client:
        yield client


@pytest.fixture
def operator(server, site):
    with client_of(server, site, "op") as client:
        yield client


def in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def wait_for(holds):
    for _ in range(2_000):
        if holds():
            return
        time.sleep(0.01)
    pytest.fail("waited in vain")


# --- asking -----------------------------------------------------------------------------------------------------------


def test_a_job_from_submission_to_its_end(ada, control):
    submitted = ada.submit([SCRIPT], cwd="/home/ada", environment={"A": "b"})
    assert (submitted.jobs, submitted.firsts) == ((1, 2, 3), (1,))
    assert ada.job(1) == control.jobs[1]
    assert ada.run(1) == control.runs[1]
    assert ada.run(1).args == ("7",)
    assert ada.why(1).reasons[0].code is ReasonCode.RESOURCES
    assert ada.hold([1]) == (1,)
    assert ada.release([1]) == (1,)
    control.start(2)
    assert ada.requeue([1, 2]) == (2,)
    assert ada.count_jobs() == {JobState.PENDING: 3}
    assert ada.cancel([1, 2]) == (1, 2)
    assert [job.state for job in ada.all_jobs(JobQuery(states=(JobState.CANCELLED,), limit=1))] == ["CANCELLED"] * 2
    control.finish(3)
    assert [job.state for job in ada.wait([3, 1, 3])] == ["COMPLETED", "CANCELLED", "COMPLETED"]


def test_wait_ends_when_the_last_job_has_ended(ada, control):
    ada.submit([SCRIPT])
    threading.Timer(0.1, lambda: [control.finish(job) for job in (1, 2, 3)]).start()
    assert {job.state for job in ada.wait([1, 2, 3], poll_s=0.02)} == {JobState.COMPLETED}


def test_pages_are_fetched_until_there_are_no_more(ada, control):
    for number in range(1, 26):
        control.put(make_view(number, tenant="vision"))
    assert [job.id for job in ada.all_jobs(JobQuery(limit=10))] == list(range(1, 26))
    assert [job.id for job in ada.all_jobs(JobQuery(limit=5, newest_first=True))] == list(range(25, 0, -1))
    assert ada.jobs(JobQuery(limit=10)).next_after == 10


def test_the_cluster_as_rows(operator, ada, control):
    cluster = operator.cluster()
    assert cluster == control.cluster()
    assert (operator.nodes(), operator.queues(), operator.tenants()) == (cluster.nodes, cluster.queues, cluster.tenants)
    operator.drain("n1", reason="fan")
    assert operator.node("n1").state is NodeState.DRAINED
    operator.undrain("n1")
    assert operator.node("n1").state is NodeState.IDLE
    assert operator.plans() == ()
    assert operator.reload() == ("2 queues",)
    assert "clearway_jobs_pending" in operator.metrics()
    assert [line.action for line in operator.audit(after=1)] == ["node.undrain"]
    assert (operator.health().status, operator.is_ready()) == ("ok", True)
    assert ada.whoami().tenants == ("vision",)
    control.problem = "the control plane is starting"
    assert not operator.is_ready()


def test_names_with_odd_characters_reach_the_server_as_they_are(operator, control):
    control.nodes["a b/ü?#%"] = replace(control.nodes["n1"], name="a b/ü?#%")
    with pytest.raises(NotFoundError):
        operator.node("..")
    with pytest.raises(NotFoundError):
        operator.node("a b")
    control.put(make_view(1, name="ü ?&=", tenant="vision"))
    assert operator.jobs(JobQuery(names=("ü ?&=",))).jobs[0].id == 1


def test_errors_are_split_by_what_the_caller_can_do(site, server, ada, control):
    with pytest.raises(ForbiddenError, match="ask an operator"):
        ada.drain("n1", reason="x")
    with pytest.raises(NotFoundError, match="number 9"):
        ada.job(9)
    with pytest.raises(RefusedError, match=r"b\.yaml:1: rum") as refused:
        ada.submit([SubmittedFile(text="rum: x", source="b.yaml")])
    assert refused.value.problem.hint == "did you mean 'run'?"
    assert isinstance(refused.value, InputError)
    with client_of(server, site, "late") as late, pytest.raises(UnauthorizedError, match="expired"):
        late.whoami()
    control.storage_error = "disk full"
    with pytest.raises(UnavailableError, match="disk full"):
        ada.submit([SCRIPT])


def test_a_submission_that_is_sent_twice_is_accepted_once(ada, control):
    assert ada.submit([SCRIPT], key="k") == ada.submit([SCRIPT], key="k")
    assert len(control.jobs) == 3
    ada.submit([SCRIPT])
    assert len(control.jobs) == 6


def test_a_connection_that_the_server_closed_is_opened_anew(site, ada, server):
    ada.whoami()
    port = int(server.url.rpartition(":")[2])
    server.stop()
    with pytest.raises(UnreachableError, match="is `clearway up` running"):
        ada.whoami()
    again = make_again(site, port)
    again.start()
    try:
        assert ada.whoami().user == "ada"
    finally:
        again.stop()


def make_again(site, port):
    """The server as its next life: a new application over the same control plane, at the same port."""
    settings = replace(site.settings, port=port)
    control = site.control
    control.now_ms += 1
    auth = TokenFile(site.token_file, lambda: control.now_ms)
    return Server(make_app(control, control.reader, auth, settings, now_ms=lambda: control.now_ms), settings)


def test_nobody_there_is_unreachable():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(UnreachableError):
        client.health()


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b""])
def test_what_is_no_clearway_server_is_told_apart(answer):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def reply():
            with contextlib.suppress(OSError):
                for _ in range(2):
                    connection, _ = other.accept()
                    with connection:
                        connection.recv(65_536)
                        connection.sendall(answer)

        in_thread(reply)
        client = Client(f"http://127.0.0.1:{other.getsockname()[1]}", timeout_s=5)
        with client, pytest.raises((UnreachableError, MisunderstoodError)):
            client.health()


@pytest.mark.parametrize("url", ["", "127.0.0.1:1", "ftp://a", "http://", "http://user:pass@host"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InputError, match="expected an address"):
        Client(url)


# --- events -----------------------------------------------------------------------------------------------------------


def collect(events, into, count):
    """Until there are enough, or the server has gone for good."""
    with contextlib.suppress(ApiError):
        for event in events:
            into.append(event)
            if len(into) >= count:
                return


def followers_of(site):
    return site.app.state.services.streams


def test_each_follower_gets_his_own_events_as_they_happen(site, server, control):
    seen = {user: [] for user in ("ada", "nia", "op")}
    with (
        client_of(server, site, "ada") as ada,
        client_of(server, site, "nia") as nia,
        client_of(server, site, "op") as operator,
    ):
        threads = [
            in_thread(collect, client.events(kinds=kinds), seen[user], count)
            for client, user, kinds, count in ((ada, "ada", (), 3), (nia, "nia", (), 2), (operator, "op", ("job",), 3))
        ]
        wait_for(lambda: followers_of(site) == 3)
        control.put(make_view(1, tenant="vision"))
        control.put(make_view(2, tenant="nlp"))
        control.tell("node", "root", {"node": "n1", "change": "down", "jobs": [1, 2]})
        control.put(make_view(3, tenant="vision"))
        for thread in threads:
            thread.join(20)
    assert [(event.kind, event.data.get("id")) for event in seen["ada"]] == [("job", 1), ("node", None), ("job", 3)]
    assert [(event.kind, event.data.get("id")) for event in seen["nia"]] == [("job", 2), ("node", None)]
    assert [event.data["id"] for event in seen["op"]] == [1, 2, 3]
    assert "jobs" not in seen["ada"][1].data
    wait_for(lambda: followers_of(site) == 0)


def test_a_stream_that_breaks_off_goes_on_where_it_was(site, server, ada, control):
    seen = []
    thread = in_thread(collect, ada.events(), seen, 5)
    wait_for(lambda: followers_of(site) == 1)
    control.put(make_view(1, tenant="vision"))
    wait_for(lambda: len(seen) == 1)
    port = int(server.url.rpartition(":")[2])
    server.stop()
    control.put(make_view(2, tenant="vision"))
    again = make_again(site, port)
    again.start()
    try:
        wait_for(lambda: len(seen) >= 2)
        for number in (3, 4, 5):
            control.put(make_view(number, tenant="vision"))
        thread.join(20)
    finally:
        again.stop()
    assert [event.kind for event in seen] == ["job", GAP, "job", "job", "job"], "2 is lost with the server, and told so"


def test_a_stream_that_breaks_off_before_its_first_event_misses_nothing(site, ada, control, monkeypatch):
    seen, wait, is_lost = [], threading.Event(), threading.Event()
    streamed = Transport.stream

    def break_off(self, path, **options):
        """The first connection ends behind its first message; the next is made when the test says so."""
        parts = streamed(self, path, **options)
        yield next(parts)
        if not is_lost.is_set():
            is_lost.set()
            wait.wait(20)
            return
        yield from parts

    monkeypatch.setattr(Transport, "stream", break_off)
    thread = in_thread(collect, ada.events(), seen, 2)
    assert is_lost.wait(20)
    control.put(make_view(1, tenant="vision"))
    wait.set()
    wait_for(lambda: len(seen) == 1)
    control.put(make_view(2, tenant="vision"))
    thread.join(20)
    assert [event.data["id"] for event in seen] == [1, 2]


def until_unauthorized(stream, ended):
    try:
        for _ in stream:
            pass
    except UnauthorizedError as error:
        ended.append(error)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_revoked_token_ends_its_streams_busy_or_not(site, server, control, running_job, tmp_path, is_busy):
    ended, is_over = [], threading.Event()

    def keep_busy():
        with open(tmp_path / "out.log", "ab", buffering=0) as log:
            while not is_over.wait(0.002):
                log.write(b"more\n")
                control.tell("job", "vision", {"id": 7})

    with client_of(server, site, "bob") as bob:
        threads = [
            in_thread(until_unauthorized, bob.events(), ended),
            in_thread(until_unauthorized, bob.follow_log(7), ended),
        ]
        busy = in_thread(keep_busy) if is_busy else None
        wait_for(lambda: followers_of(site) == 2)
        revoke_user(site.token_file, user="bob")
        for thread in threads:
            thread.join(20)
        is_over.set()
        if busy:
            busy.join(20)
    assert len(ended) == 2


def test_streams_are_bounded(tmp_path):
    site = make_site(tmp_path, settings=ServerSettings(port=0, streams_max=1, heartbeat_s=0.2))
    with running(site) as server, client_of(server, site, "ada") as ada:
        in_thread(collect, ada.events(), [], 1)
        wait_for(lambda: followers_of(site) == 1)
        transport = ada._transport
        with pytest.raises(UnavailableError, match="at most 1 streams"):
            next(transport.stream("/api/v1/events", query=None, headers={}, timeout_s=5))


# --- logs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def running_job(control, tmp_path):
    fields = {"state": JobState.RUNNING, "start_ms": NOW_MS, "submit_ms": NOW_MS}
    return control.put(make_view(7, tenant="vision", workdir=str(tmp_path), output="out.log", **fields))


def test_a_log_is_followed_from_before_its_first_byte_to_the_end_of_its_job(site, ada, control, running_job, tmp_path):
    parts = []
    thread = in_thread(lambda: parts.extend(ada.follow_log(7)))
    wait_for(lambda: followers_of(site) == 1)
    with open(tmp_path / "out.log", "wb", buffering=0) as log:
        for number in range(50):
            log.write(b"line %d \xff\n" % number)
    control.finish(7)
    thread.join(20)
    assert b"".join(parts) == b"".join(b"line %d \xff\n" % number for number in range(50))


def test_a_log_is_followed_from_its_last_lines_or_from_an_offset(ada, control, running_job, tmp_path):
    (tmp_path / "out.log").write_bytes(b"a\nb\nc\n")
    control.finish(7)
    assert b"".join(ada.follow_log(7, tail=2)) == b"b\nc\n"
    assert b"".join(ada.follow_log(7, offset=4)) == b"c\n"
    part = ada.log(7, offset=2, limit=2)
    assert (part.data, part.end, part.size, part.is_final) == (b"b\n", 4, 6, False)


def test_a_log_that_is_begun_anew_is_read_from_its_begin(ada, control, running_job, tmp_path):
    (tmp_path / "out.log").write_bytes(b"first run, long\n")
    parts = []
    thread = in_thread(lambda: parts.extend(ada.follow_log(7)))
    wait_for(lambda: parts == [b"first run, long\n"])
    (tmp_path / "out.log").write_bytes(b"second\n")
    wait_for(lambda: len(parts) == 2)
    control.finish(7)
    thread.join(20)
    assert parts[1] == b"second\n"


# --- starting and stopping --------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told(site, server):
    second = Server(site.app, replace(site.settings, port=int(server.url.rpartition(":")[2])))
    with pytest.raises(InputError, match="Address already in use; is another server running"):
        second.start()


def test_an_address_of_another_machine_is_told(site):
    settings = replace(site.settings, host="192.0.2.1", certificate="c.pem", private_key="k.pem")
    with pytest.raises(InputError, match=r"expected to listen at 192\.0\.2\.1"):
        Server(site.app, settings).start()


def test_a_server_that_others_could_reach_without_tls_is_not_even_made(site):
    with pytest.raises(InputError, match="found no TLS"):
        Server(site.app, replace(site.settings, host="0.0.0.0"))
    with pytest.raises(InputError, match="found no TLS and no authentication"):
        Server(site.app, replace(site.settings, host="0.0.0.0"), has_auth=False)


def test_a_server_stops_though_streams_are_open(site, ada, server):
    in_thread(collect, ada.events(), [], 1)
    wait_for(lambda: followers_of(site) == 1)
    begin_ns = time.monotonic_ns()
    server.stop()
    server.stop()
    assert time.monotonic_ns() - begin_ns < STOP_S_MAX * 10**9, "it did not wait until streams were cut off"


def test_https_with_a_certificate_of_ones_own(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = subprocess.run([*command, *names, "-keyout", key, "-out", certificate], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("openssl is needed to make a certificate")
    settings = ServerSettings(port=0, certificate=certificate, private_key=key)
    site = make_site(tmp_path, settings=settings)
    with running(site) as server:
        assert server.url.startswith("https://")
        with Client(server.url, site.tokens["op"], ca_file=str(certificate)) as client:
            assert client.whoami().user == "op"
        with Client(server.url, site.tokens["op"]) as stranger, pytest.raises(UnreachableError, match="certificate"):
            stranger.whoami()


def test_a_certificate_that_is_none_is_told(tmp_path):
    (tmp_path / "c.pem").write_text("no certificate")
    settings = ServerSettings(port=0, certificate=tmp_path / "c.pem", private_key=tmp_path / "c.pem")
    site = make_site(tmp_path, settings=settings)
    with pytest.raises(InputError, match="expected a certificate"):
        Server(site.app, settings).start()
