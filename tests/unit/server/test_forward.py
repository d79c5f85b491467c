"""What a further server passes on to the control plane, and what it answers itself."""

from dataclasses import replace

import pytest

from clearway.server.app import make_app
from clearway.server.auth import TokenFile
from support.fake_control import FakeControl
from support.served import TENANTS, asked, make_site, running
from support.servers import find_free_port

JOBS = {"files": [{"job": {"command": "true"}}], "cwd": "/"}


class Places:
    """Where the control plane is, and how often that was asked."""

    def __init__(self):
        self.place, self.asked = None, 0

    def __call__(self):
        self.asked += 1
        return self.place


@pytest.fixture
def far(tmp_path):
    (tmp_path / "far").mkdir()
    return make_site(tmp_path / "far")


@pytest.fixture
def places():
    return Places()


@pytest.fixture
def near(far, places):
    control = FakeControl(tenants=TENANTS)
    tokens = TokenFile(far.token_file, lambda: control.now_ms)
    app = make_app(control, control.reader, tokens, far.settings, now_ms=lambda: control.now_ms, find_control=places)
    return replace(far, control=control, app=app)


def test_what_changes_something_happens_at_the_control_plane_in_the_callers_name(far, near, places):
    with running(far) as server, asked(near) as web:
        places.place = (server.url, "")
        answer = web.request("POST", "/api/v1/jobs", json=JOBS, headers=near.bearer("ada"))
        assert answer.status_code == 201, answer.text
        assert [view.user for view in far.control.jobs.values()] == ["ada"]
        assert near.control.jobs == {}
        wrong = web.request("POST", "/api/v1/nodes/n0/drain", json={"reason": "fan"}, headers=near.bearer("ada"))
        assert (wrong.status_code, wrong.headers["content-type"]) == (403, "application/problem+json")


def test_reads_are_answered_here(near, places):
    with asked(near) as web:
        for path in ("/api/v1/jobs", "/api/v1/nodes", "/api/v1/whoami", "/metrics"):
            assert web.request("GET", path, headers=near.bearer("op")).status_code == 200, path
    assert places.asked == 0


@pytest.mark.parametrize("user", ["", "wrong", "late"])
def test_nothing_of_a_stranger_is_passed_on(near, places, user):
    with asked(near) as web:
        assert web.request("POST", "/api/v1/jobs", json=JOBS, headers=near.bearer(user)).status_code == 401
    assert places.asked == 0


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/api/v1/jobs"), ("DELETE", "/api/v1/jobs/1"), ("GET", "/api/v1/jobs/1/why")]
)
def test_without_a_control_plane_it_is_read_only_and_says_so(near, places, method, path):
    with asked(near) as web:
        for place in (None, (f"http://127.0.0.1:{find_free_port()}", "")):
            places.place = place
            answer = web.request(method, path, headers=near.bearer("ada"))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
            assert answer.json()["detail"].startswith("read-only: expected a control plane")
