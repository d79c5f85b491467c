"""Live state through a real Redis, which may be lost at any time."""

import contextlib
import importlib
import os
import signal

import pytest

from clearway.adapters.redis_live import open_fanout
from clearway.model.errors import InputError, MissingExtraError
from clearway.model.ids import JobId
from clearway.ports.control import Notice
from clearway.ports.fanout import FanoutError
from clearway.ports.views import ClusterView, DeviceState, DeviceView, JobState, NodeState, NodeView
from support.servers import find_free_port, poll
from support.stored import make_view


def make_notice(seq: int, **data: object) -> Notice:
    return Notice(seq=seq, at_ms=1_000 + seq, kind="job", tenant="root", data=data)


def make_cluster(seq: int) -> ClusterView:
    device = DeviceView(index=0, model="H100", state=DeviceState.USED, owners=((JobId(3), 1_000),))
    node = NodeView(name="n1", state=NodeState.MIXED, devices=(device,), labels=(("rack", "a"),))
    return ClusterView(at_ms=seq, seq=seq, nodes=(node,), pending=3, cycle_ms_p99=1.5)


class Fans:
    """Fanouts of one test, with the lines that they told."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url, self.prefix = url, prefix
        self.lines: list[str] = []
        self.stack = contextlib.ExitStack()

    def open(self):
        return self.stack.enter_context(
            contextlib.closing(open_fanout(self.url, tell=self.lines.append, prefix=self.prefix))
        )


@pytest.fixture
def fans(redis_server, request):
    fans = Fans(redis_server.url, request.node.name)
    with fans.stack:
        yield fans


def test_another_server_reads_the_newest_view_and_jobs(fans):
    control, server = fans.open(), fans.open()
    assert server.read_view() is None
    for seq in range(1, 50):
        control.publish_view(make_cluster(seq))
    control.publish_jobs((make_view(1), make_view(2)))
    running = make_view(2, state=JobState.RUNNING, devices=(("n1", (0, 1)),), progress=0.25)
    control.publish_jobs((running,))
    poll(lambda: server.read_view() == make_cluster(49), what="the newest view")
    poll(lambda: server.read_jobs((JobId(2), JobId(9))) == {2: running}, what="the newest row")
    assert server.read_jobs((JobId(1),)) == {1: make_view(1)}
    assert server.read_jobs(()) == {}


def test_every_server_gets_every_notice_once_and_in_order(fans):
    control = fans.open()
    taken: list[list[Notice]] = [[], []]
    for one in taken:
        fans.open().subscribe(one.append)
    notices = [make_notice(seq, job=seq, text="ä\n") for seq in range(1, 2_001)]
    for notice in notices:
        control.publish_notice(notice)
    for one in taken:
        poll(lambda one=one: len(one) == len(notices), what="all notices")
        assert one == notices


def test_a_subscriber_begins_with_what_comes_after_it(fans):
    control = fans.open()
    early: list[Notice] = []
    control.subscribe(early.append)
    control.publish_notice(make_notice(1))
    poll(lambda: early == [make_notice(1)], what="the first notice")
    late: list[Notice] = []
    control.subscribe(late.append)
    control.publish_notice(make_notice(2))
    poll(lambda: late == [make_notice(2)], what="the second notice alone")


def test_a_subscriber_that_has_ended_gets_nothing_more(fans):
    control = fans.open()
    first, second = [], []
    end = control.subscribe(first.append)
    control.subscribe(second.append)
    end()
    control.publish_notice(make_notice(1))
    poll(lambda: len(second) == 1, what="the other one still does")
    assert first == []


def test_a_new_control_plane_that_counts_from_one_again_is_heard(fans):
    taken: list[Notice] = []
    fans.open().subscribe(taken.append)
    for first_text in ("before", "after"):
        control = fans.open()
        for seq in (1, 2):
            control.publish_notice(make_notice(seq, text=first_text))
        control.close()
    poll(lambda: len(taken) == 4, what="notices of both")
    assert [notice.data["text"] for notice in taken] == ["before", "before", "after", "after"]


def test_losing_redis_stops_nobody_and_everything_flows_again_when_it_is_back(fans, redis_server):
    control, server = fans.open(), fans.open()
    taken: list[Notice] = []
    server.subscribe(taken.append)
    control.publish_view(make_cluster(1))
    control.publish_notice(make_notice(1))
    poll(lambda: len(taken) == 1, what="the first notice")
    redis_server.kill()
    try:
        for seq in range(2, 200):
            control.publish_view(make_cluster(seq))
            control.publish_notice(make_notice(seq))
        poll(lambda: "the control plane goes on without it" in control.problem, what="a clear line")
        with pytest.raises(FanoutError, match=r"Redis at 127\.0\.0\.1"):
            server.read_view()
    finally:
        redis_server.start()
    poll(lambda: len(taken) == 199, what="all notices")
    assert [notice.seq for notice in taken] == list(range(1, 200))
    poll(lambda: control.problem == "", what="the problem is over")
    assert server.read_view() == make_cluster(199)
    assert [line.partition(" (")[0].split(":")[0] for line in fans.lines] == ["Redis at 127.0.0.1"] * 2
    assert fans.lines[0].endswith("the control plane goes on without it")
    assert fans.lines[1].endswith("is back")


def test_a_redis_that_hangs_blocks_nobody(fans, redis_server):
    control = fans.open()
    control.publish_notice(make_notice(1))
    assert redis_server.process is not None
    os.kill(redis_server.process.pid, signal.SIGSTOP)
    try:
        for seq in range(2, 30_000):
            control.publish_notice(make_notice(seq))
    finally:
        os.kill(redis_server.process.pid, signal.SIGCONT)
    taken: list[Notice] = []
    fans.open().subscribe(taken.append)
    control.publish_notice(make_notice(30_000))
    poll(lambda: bool(taken) and taken[-1] == make_notice(30_000), what="the last notice")


def test_a_password_that_is_wrong_is_a_clear_line_without_it(redis_server):
    lines: list[str] = []
    url = redis_server.url.replace(redis_server.password, "not-the-secret")
    with contextlib.closing(open_fanout(url, tell=lines.append)) as fanout:
        fanout.publish_view(make_cluster(1))
        poll(lambda: lines != [], what="a line")
    assert "invalid username-password" in lines[0]
    assert "not-the-secret" not in lines[0]


def test_a_redis_that_is_not_there_is_no_obstacle():
    lines: list[str] = []
    with contextlib.closing(open_fanout(f"redis://127.0.0.1:{find_free_port()}", tell=lines.append)) as fanout:
        end = fanout.subscribe(lambda notice: None)
        fanout.publish_view(make_cluster(1))
        poll(lambda: lines != [], what="a line")
        assert "Connection refused" in fanout.problem
        end()


def test_what_another_release_wrote_is_refused_not_believed(fans, redis_server):
    control = fans.open()
    control._client.set(f"{fans.prefix}:view", '{"at_ms":1,"seq":1,"colour":"blue"}')
    with pytest.raises(FanoutError, match="ClusterView of this release"):
        control.read_view()
    taken: list[Notice] = []
    control.subscribe(taken.append)
    control._client.xadd(f"{fans.prefix}:notices", {"run": "x", "notice": "nonsense"})
    control.publish_notice(make_notice(1))
    poll(lambda: taken == [make_notice(1)], what="the notice that can be read")


def test_a_url_that_cannot_be_used_is_refused_with_an_example():
    with pytest.raises(InputError, match="expected a Redis URL such as redis://"):
        open_fanout("http://127.0.0.1", tell=print)


def test_a_missing_library_is_named_with_the_command_that_brings_it(monkeypatch):
    def find_nothing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", find_nothing)
    with pytest.raises(MissingExtraError, match=r"pip install clearway\[redis\]"):
        open_fanout("redis://127.0.0.1", tell=print)
