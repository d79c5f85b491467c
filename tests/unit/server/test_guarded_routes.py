"""Every route that the OpenAPI description names, with every kind of caller. A route that no permission covers cannot
be declared, and one that this file does not know how to ask fails here."""

import re

import pytest

from clearway.model.runs import RunSpec
from clearway.ports.views import JobState
from clearway.server.access import PERMISSIONS, ROUTES, Permission
from clearway.server.auth import Role
from clearway.server.routing import make_router
from clearway.wire.api import API
from support.fake_control import NOW_MS
from support.stored import make_view

METHODS = {"get", "post", "put", "patch", "delete", "head", "options", "trace"}

BODIES = {
    ("POST", f"{API}/jobs"): {"files": [{"job": {"run": "true", "tenant": "vision"}}], "cwd": "/tmp"},
    ("POST", f"{API}/jobs/cancel"): {"jobs": [1]},
    ("POST", f"{API}/jobs/hold"): {"jobs": [1]},
    ("POST", f"{API}/jobs/release"): {"jobs": [1]},
    ("POST", f"{API}/jobs/requeue"): {"jobs": [1]},
    ("POST", f"{API}/nodes/{{node}}/drain"): {"reason": "test"},
}

STREAMS = {f"{API}/events", f"{API}/jobs/{{job}}/logs/follow"}
"""They do not end by themselves; `tests/e2e/test_api.py` follows them. Refusals come before a stream begins."""

GOOD = {("POST", f"{API}/jobs"): 201}

ABOUT_ONE_JOB = {f"{API}/jobs/cancel", f"{API}/jobs/hold", f"{API}/jobs/release", f"{API}/jobs/requeue"}

ROLE_USERS = {Role.VIEWER: "view", Role.USER: "ada", Role.TENANT_ADMIN: "lead", Role.OPERATOR: "op"}


@pytest.fixture
def prepared(control, tmp_path):
    """Job 1: ada's, of tenant `vision`, running, with a log."""
    prepare(control, tmp_path)


def prepare(control, tmp_path):
    (tmp_path / "out.log").write_text("hello\n")
    control.put(
        make_view(
            1,
            user="ada",
            tenant="vision",
            state=JobState.RUNNING,
            submit_ms=NOW_MS,
            start_ms=NOW_MS,
            workdir=str(tmp_path),
            output="out.log",
        )
    )
    control.runs[1] = RunSpec(script="true")


def declared(app):
    """(method, path) of every operation in the OpenAPI description, and the description itself."""
    operations = [
        (method.upper(), path) for path, item in app.openapi()["paths"].items() for method in item if method in METHODS
    ]
    return [*operations, ("GET", f"{API}/openapi.json")]


def ask_route(ask, user, method, path, *, job=1):
    filled = path.replace("{job}", str(job)).replace("{node}", "n1")
    assert "{" not in filled, f"{path}: this test does not know how to fill it"
    body = BODIES.get((method, path))
    if body is not None and "jobs" in body:
        body = {"jobs": [job]}
    return ask(user, method, filled, json=body)


def test_the_table_and_the_description_name_the_same_routes(site):
    assert sorted(declared(site.app)) == sorted(ROUTES)


def test_the_description_says_what_each_route_needs(site):
    described = site.app.openapi()
    assert described["components"]["securitySchemes"] == {"token": {"type": "http", "scheme": "bearer"}}
    for (method, path), needed in ROUTES.items():
        if path.endswith("openapi.json"):
            continue
        operation = described["paths"][path][method.lower()]
        assert operation["x-permission"] == needed
        assert bool(operation["security"]) is (needed is not Permission.PUBLIC), path


def test_a_route_without_a_permission_cannot_be_declared():
    router = make_router()
    with pytest.raises(AssertionError, match="has no permission"):
        router.add_api_route(f"{API}/secrets", lambda: None, methods=["GET"])


@pytest.mark.parametrize("caller", ["", "wrong", "late"], ids=["no-token", "wrong-token", "expired-token"])
def test_who_is_not_known_gets_401_from_every_route_but_the_public(site, ask, prepared, caller):
    for method, path in declared(site.app):
        answer = ask_route(ask, caller, method, path)
        if ROUTES[method, path] is Permission.PUBLIC:
            assert answer.status_code == 200, path
            continue
        assert answer.status_code == 401, path
        assert answer.headers["www-authenticate"].startswith("Bearer"), path
        assert answer.headers["content-type"] == "application/problem+json", path
        assert site.control.jobs[1].state is JobState.RUNNING


@pytest.mark.parametrize("role", list(Role))
def test_each_role_gets_what_the_table_gives_it_and_403_else(site, ask, tmp_path, role):
    for method, path in declared(site.app):
        allowed = ROUTES[method, path] in PERMISSIONS[role] or ROUTES[method, path] is Permission.PUBLIC
        if path in STREAMS and allowed:
            continue
        prepare(site.control, tmp_path)
        before = len(site.control.audit)
        answer = ask_route(ask, ROLE_USERS[role], method, path)
        if allowed:
            assert answer.status_code == GOOD.get((method, path), 200), (path, answer.text)
        else:
            assert answer.status_code == 403, (path, answer.text)
            (line,) = site.control.audit[before:]
            assert (line.actor, line.is_allowed, line.action) == (ROLE_USERS[role], False, ROUTES[method, path])


def test_a_viewers_bad_body_is_refused_before_it_is_read(ask):
    answer = ask("view", "POST", f"{API}/jobs", content=b"{not json", headers={"Content-Type": "application/json"})
    assert answer.status_code == 403


def test_another_tenants_job_is_404_on_every_route_like_one_that_there_is_not(site, ask, prepared):
    about_jobs = [(method, path) for method, path in declared(site.app) if "{job}" in path or path in ABOUT_ONE_JOB]
    assert len(about_jobs) == 10
    for method, path in about_jobs:
        for caller in ("nia", "eve"):
            before = len(site.control.audit)
            answer = ask_route(ask, caller, method, path)
            absent = ask_route(ask, caller, method, path, job=77)
            assert (answer.status_code, absent.status_code) == (404, 404), (path, answer.text)
            assert re.sub(r"\d+", "N", answer.text) == re.sub(r"\d+", "N", absent.text), path
            (line,) = site.control.audit[before:]
            assert (line.actor, line.target, line.is_allowed) == (caller, "job 1", False), path
    assert site.control.jobs[1].state is JobState.RUNNING


def test_a_colleagues_job_is_seen_but_not_touched(site, ask, prepared):
    assert ask("bob", "GET", f"{API}/jobs/1").status_code == 200
    for method, path in [("DELETE", f"{API}/jobs/{{job}}"), ("GET", f"{API}/jobs/{{job}}/run")]:
        assert ask_route(ask, "bob", method, path).status_code == 403
    for path in ABOUT_ONE_JOB:
        answer = ask_route(ask, "bob", "POST", path)
        assert answer.status_code == 403
        assert "job of your own" in answer.json()["expected"]
    assert site.control.jobs[1].state is JobState.RUNNING
    assert {line.is_allowed for line in site.control.audit} == {False}


@pytest.mark.parametrize("path", ["/", "/docs", "/redoc", f"{API}/secrets", f"{API}/jobs/1/secrets", "/static/../etc"])
def test_paths_that_there_are_not_tell_strangers_nothing(ask, path):
    assert ask("", "GET", path).status_code == 401
    assert ask("ada", "GET", path).status_code == 404


def test_other_methods_are_refused(ask, prepared):
    assert ask("op", "PUT", f"{API}/jobs/1").status_code == 405
    assert ask("op", "OPTIONS", f"{API}/jobs").status_code == 405


@pytest.mark.parametrize(
    "header", ["Bearer", "Bearer ", "Basic abc", "bearer  ", "Token x", "Bearer " + "x" * 5_000, "Bearer \xff"]
)
def test_what_is_no_bearer_token_is_401(web, header):
    answer = web.request("GET", f"{API}/whoami", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401


def test_a_token_in_the_address_is_not_looked_at(site, web):
    for name in ("token", "access_token"):
        answer = web.request("GET", f"{API}/jobs", params={name: site.tokens["op"]})
        assert answer.status_code == 401


def test_a_broken_token_file_lets_nobody_in_and_says_so(site, ask):
    site.token_file.chmod(0o644)
    answer = ask("op", "GET", f"{API}/whoami")
    assert answer.status_code == 503
    assert "token file" in answer.json()["detail"]
    assert str(site.token_file) not in answer.text
    assert ask("op", "GET", "/health").status_code == 200


def test_strangers_cannot_fill_the_audit_log(site, ask):
    for _ in range(60):
        ask("wrong", "GET", f"{API}/jobs")
    lines = [line for line in site.control.audit if line.action == "authenticate"]
    assert len(lines) == 20
    assert {line.is_allowed for line in lines} == {False}
    assert all(site.tokens["wrong"] not in str(line) for line in lines)


def test_whoami_says_who_one_is(ask):
    assert ask("lead", "GET", f"{API}/whoami").json()["role"] == "tenant_admin"
