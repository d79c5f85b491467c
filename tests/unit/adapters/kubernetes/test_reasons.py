"""What pods are told: once, again where it was not heard, and nobody's refusal keeps others from hearing."""

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web

from clearway.adapters.kubernetes import pace
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import ApiError, UnreachableError
from clearway.adapters.kubernetes.parse import parse_pod
from clearway.adapters.kubernetes.reasons import Reasons
from support.kube_server import talk
from support.kubernetes import make_pod

POD = parse_pod(make_pod("p"), KubernetesConfig())
AGAIN_NS = 10**12


class Server:
    """Answers conditions and events by these statuses, one after the other, then by 200. asked: what came."""

    def __init__(self, conditions=(), events=()):
        self.statuses = {"PATCH": list(conditions), "POST": list(events)}
        self.asked = []

    async def answer(self, request):
        self.asked.append(request.method)
        left = self.statuses[request.method]
        return web.json_response({}, status=left.pop(0) if left else 200)


def test_reason_is_written_once_as_a_condition_and_an_event(tmp_path):
    server = Server()

    async def speak(client):
        reasons = Reasons(client, "clearway")
        for _ in range(3):
            await reasons.tell(POD, "no room")

    talk(tmp_path, server.answer, speak)
    assert server.asked == ["PATCH", "POST"]


def test_condition_says_since_when_a_pod_is_not_scheduled(tmp_path):
    said = []

    async def answer(request):
        said.append(await request.json())
        return web.json_response({})

    async def speak(client):
        pod = replace(POD, created="2027-01-15T08:00:00Z")
        await Reasons(client, "clearway").tell(pod, "no room")

    talk(tmp_path, answer, speak)
    (condition,) = said[0]["status"]["conditions"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "no room",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }


@pytest.mark.parametrize(("status", "kind"), [(503, UnreachableError), (403, ApiError)])
def test_reason_that_was_not_heard_is_told_again_and_not_at_once(tmp_path, status, kind):
    server = Server(conditions=[status])

    async def speak(client):
        reasons = Reasons(client, "clearway")
        with pytest.raises(kind):
            await reasons.tell(POD, "no room", again_ns=AGAIN_NS)
        await reasons.tell(POD, "no room", again_ns=AGAIN_NS)
        assert server.asked == ["PATCH"]
        await reasons.tell(POD, "no room")

    talk(tmp_path, server.answer, speak)
    assert server.asked == ["PATCH", "PATCH", "POST"]


def test_event_that_may_not_be_written_is_left_out_and_the_condition_stands(tmp_path):
    server = Server(events=[403])

    async def speak(client):
        reasons = Reasons(client, "clearway")
        for _ in range(3):
            await reasons.tell(POD, "no room")

    talk(tmp_path, server.answer, speak)
    assert server.asked == ["PATCH", "POST"]


def test_refusal_is_said_until_it_is_heard_unless_something_else_was_said_by_then(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "PAUSE_MAX_S", 0.01)
    server = Server(conditions=[503, 429, 503])

    async def speak(client):
        reasons = Reasons(client, "clearway")
        await reasons.insist(POD, "it cannot be read")
        assert server.asked == ["PATCH"] * 4 + ["POST"]
        server.statuses["PATCH"] = [503]
        late = asyncio.create_task(reasons.insist(POD, "it cannot be read now"))
        while len(server.asked) < 6:
            await asyncio.sleep(0)
        while reasons._told[POD.uid][0]:
            await asyncio.sleep(0)
        await reasons.tell(POD, "no room")
        await late

    talk(tmp_path, server.answer, speak)
    assert server.asked == ["PATCH"] * 4 + ["POST"] + ["PATCH"] * 2 + ["POST"]
