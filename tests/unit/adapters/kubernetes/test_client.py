"""Calls over real sockets: pages, watches, and what each kind of refusal becomes."""

import asyncio
import json

import pytest
from aiohttp import web

from clearway.adapters.kubernetes import client as client_module
from clearway.adapters.kubernetes.client import Client
from clearway.adapters.kubernetes.config import KubernetesConfig
from clearway.adapters.kubernetes.errors import ApiError, ExpiredError, UnreachableError
from clearway.model.errors import InputError
from support.kube_server import KUBECONFIG, talk


def answer(status, **body):
    headers = {"Retry-After": "3"} if status == 429 else {}

    async def handle(request):
        assert request.headers["Authorization"] == "Bearer secret"
        return web.json_response(body, status=status, headers=headers)

    return handle


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (409, ApiError),
        (404, ApiError),
        (403, ApiError),
        (410, ExpiredError),
        (429, UnreachableError),
        (500, UnreachableError),
        (503, UnreachableError),
    ],
)
def test_refusals_are_told_apart_by_what_can_be_done(tmp_path, status, kind):
    with pytest.raises(kind, match=str(status)) as found:
        talk(tmp_path, answer(status, reason="Why", message="because"), lambda client: client.get("/api/v1/pods"))
    assert "because" in str(found.value)
    if status == 429:
        assert found.value.retry_after_s == 3


def test_binding_names_the_pod_by_uid_and_the_node(tmp_path):
    seen = []

    async def handle(request):
        seen.append((request.method, request.path, await request.json()))
        return web.json_response({}, status=201)

    talk(tmp_path, handle, lambda client: client.bind("ns", "p", "u1", "n1"))
    ((method, path, body),) = seen
    assert (method, path) == ("POST", "/api/v1/namespaces/ns/pods/p/binding")
    assert (body["metadata"]["uid"], body["target"]["name"]) == ("u1", "n1")


def test_list_is_read_page_by_page(tmp_path):
    async def handle(request):
        is_last = request.query.get("continue") == "next"
        metadata = {"resourceVersion": "7"} if is_last else {"resourceVersion": "6", "continue": "next"}
        return web.json_response({"items": [{"page": 2 if is_last else 1}], "metadata": metadata})

    assert talk(tmp_path, handle, lambda client: client.list_all("/api/v1/pods")) == ([{"page": 1}, {"page": 2}], "7")


def watching(*lines, is_cut=False):
    async def handle(request):
        assert request.query["allowWatchBookmarks"] == "true"
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(json.dumps(line).encode() + b"\n")
        if is_cut:
            request.transport.abort()
        return response

    return handle


def change(kind, version):
    return {"type": kind, "object": {"metadata": {"resourceVersion": version}}}


async def read_watch(client):
    return [(one.kind, one.version) async for changes in client.watch("/api/v1/pods", "1") for one in changes]


def test_watch_gives_changes_and_bookmarks_until_the_server_ends_it(tmp_path):
    handle = watching(change("ADDED", "2"), change("BOOKMARK", "9"))
    assert talk(tmp_path, handle, read_watch) == [("ADDED", "2"), ("BOOKMARK", "9")]


def test_watch_whose_version_is_too_old_says_so_in_its_first_line(tmp_path):
    status = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    with pytest.raises(ExpiredError):
        talk(tmp_path, watching(status), read_watch)


def test_watch_that_is_cut_is_a_server_that_cannot_be_reached(tmp_path):
    with pytest.raises(UnreachableError, match="cut"):
        talk(tmp_path, watching(change("ADDED", "2"), is_cut=True), read_watch)


def test_watch_that_says_what_no_api_server_says_is_refused_and_what_came_before_it_counts(tmp_path):
    async def handle(request):
        return web.Response(body=json.dumps(change("ADDED", "2")).encode() + b"\n{half a li\n")

    async def read(client):
        async for changes in client.watch("/api/v1/pods", "1"):
            seen.extend(one.version for one in changes)

    seen = []
    with pytest.raises(ApiError, match="expected a line of a watch"):
        talk(tmp_path, handle, read)
    assert seen == ["2"]


def test_answer_that_is_no_json_is_a_server_that_cannot_be_reached(tmp_path):
    async def handle(request):
        return web.Response(text="<html>a proxy's page</html>")

    with pytest.raises(UnreachableError, match="no JSON"):
        talk(tmp_path, handle, lambda client: client.get("/api/v1/pods"))


def test_server_that_is_away_cannot_be_reached(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG.format(url="http://127.0.0.1:1", user="{token: secret}"))

    async def run():
        client = await Client.connect(KubernetesConfig(kubeconfig=str(path)))
        try:
            await client.get("/readyz")
        finally:
            await client.close()

    with pytest.raises(UnreachableError, match="no answer"):
        asyncio.run(run())


def test_kubeconfig_that_is_not_there_is_named(tmp_path):
    config = KubernetesConfig(kubeconfig=str(tmp_path / "none"))
    with pytest.raises(InputError, match="none"):
        asyncio.run(Client.connect(config))


def test_token_that_a_program_makes_is_made_anew_while_the_client_lives(tmp_path, monkeypatch):
    monkeypatch.setattr(client_module, "REFRESH_S", 0.01)
    program = tmp_path / "plugin"
    program.write_text(
        "#!/bin/sh\n"
        f"echo >>{tmp_path}/count\n"
        f"[ $(wc -l <{tmp_path}/count) -ne 2 ] || exit 1\n"  # one failure is borne
        "cat <<J\n"
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        f' "status": {{"token": "number-$(wc -l <{tmp_path}/count)"}}}}\n'
        "J\n"
    )
    program.chmod(0o700)
    user = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {program}, interactiveMode: Never}}}}"
    seen = []

    async def handle(request):
        seen.append(request.headers["Authorization"])
        return web.json_response({})

    async def speak(client):
        async with asyncio.timeout(20):
            while len(set(seen)) < 3:
                await client.get("/api")

    talk(tmp_path, handle, speak, user=user)
    assert seen[0] == "Bearer number-1"


def test_token_that_cannot_be_read_now_is_a_server_that_cannot_be_reached(tmp_path):
    async def speak(client):
        client._settings.refresh_api_key_hook = lambda _settings: (tmp_path / "token").read_text()
        await client.get("/api")

    with pytest.raises(UnreachableError, match="token cannot be read"):
        talk(tmp_path, answer(200), speak)
