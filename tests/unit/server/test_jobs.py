"""Lists and single jobs, and what is done to them."""

import asyncio
from concurrent.futures import Future
from dataclasses import replace

import httpx
import pytest

from clearway.ports.views import JobState, JobView
from clearway.server.settings import ServerSettings
from clearway.wire.api import API, PAGE_ROWS_MAX, JobPage
from clearway.wire.api_rows import decode_row
from support.served import asked, make_site, running
from support.stored import make_view


@pytest.fixture
def many(control):
    """Jobs 1 to 30 of tenant `vision`: every third runs, every fifth is bob's."""
    for number in range(1, 31):
        control.put(
            make_view(
                number,
                tenant="vision",
                user="bob" if number % 5 == 0 else "ada",
                state=JobState.RUNNING if number % 3 == 0 else JobState.PENDING,
                queue="debug" if number > 20 else "production",
                array=10 if 10 <= number <= 14 else None,
            )
        )
    return control


def numbers(ask, **params):
    return [job["id"] for job in ask("ada", "GET", f"{API}/jobs", params=params).json()["jobs"]]


def test_a_row_is_the_view_whole_and_exact(ask, control):
    view = control.put(make_view(1, tenant="vision", progress=0.25, devices=(("n1", (0, 3)),), nodes=("n1",)))
    answer = ask("ada", "GET", f"{API}/jobs")
    listed = replace(view, order_priority=999)
    assert decode_row(JobPage, answer.json()) == JobPage(jobs=(listed,), next_after=None)
    assert decode_row(JobView, ask("ada", "GET", f"{API}/jobs/1").json()) == view


def test_filters_hold_together(ask, many):
    assert numbers(ask, state="RUNNING", user="bob") == [15, 30]
    assert numbers(ask, queue="debug", state=["RUNNING", "SUSPENDED"]) == [21, 24, 27, 30]
    assert numbers(ask, array=10) == [10, 11, 12, 13, 14]
    assert numbers(ask, id=[3, 4, 99]) == [3, 4]
    assert numbers(ask, name=["job-7"]) == [7]
    assert numbers(ask, submitted_from_ms=1_029) == [29, 30]
    assert numbers(ask, submitted_to_ms=1_002) == [1, 2]
    assert numbers(ask, tenant="vision", limit=2) == [1, 2]
    assert numbers(ask, tenant="vis") == []


def test_counts_are_by_state(ask, many):
    answer = ask("ada", "GET", f"{API}/jobs/counts", params={"user": "bob"})
    assert answer.json() == {"counts": {"PENDING": 4, "RUNNING": 2}}


@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_follow_one_another_without_gap_or_double(ask, many, newest_first):
    found, after = [], None
    while True:
        params = {"limit": 7, "newest_first": newest_first} | ({} if after is None else {"after": after})
        page = ask("ada", "GET", f"{API}/jobs", params=params).json()
        found += [job["id"] for job in page["jobs"]]
        after = page["next_after"]
        if after is None:
            break
    expected = list(range(1, 31))
    assert found == (expected[::-1] if newest_first else expected)


def test_only_the_fields_asked_for_are_sent(ask, many):
    first = ask("ada", "GET", f"{API}/jobs", params={"fields": "id,state", "limit": 1}).json()["jobs"][0]
    assert first == {"id": 1, "state": "PENDING"}
    assert ask("ada", "GET", f"{API}/jobs?fields=id&fields=name&limit=1").json()["jobs"] == [{"id": 1, "name": "job-1"}]
    answer = ask("ada", "GET", f"{API}/jobs", params={"fields": "stat"})
    assert (answer.status_code, answer.json()["hint"]) == (422, "did you mean 'state'?")


@pytest.mark.parametrize(
    "query",
    [
        f"limit={PAGE_ROWS_MAX + 1}",
        "limit=0",
        "limit=x",
        "state=running",
        "id=0",
        "id=x",
        "after=-1",
        "newest_first=maybe",
        "stat=RUNNING",
        "submitted_from_ms=1e99",
        "id=" + "9" * 40,
        "name=%00",
    ],
)
def test_a_query_that_makes_no_sense_is_refused_and_never_means_all(ask, many, query):
    answer = ask("ada", "GET", f"{API}/jobs?{query}")
    assert answer.status_code == 422
    assert answer.json()["expected"], answer.text


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "99999999999999999999", "1%00", "..", "1%2f..%2f2"])
def test_what_is_no_number_of_a_job_is_refused(ask, many, number):
    assert ask("ada", "GET", f"{API}/jobs/{number}").status_code in (404, 422)


def test_actions_say_on_which_jobs_they_had_an_effect(ask, many):
    assert ask("ada", "POST", f"{API}/jobs/hold", json={"jobs": [1, 2, 3]}).json() == {"jobs": [1, 2]}
    assert many.jobs[1].reason == "JobHeldUser"
    assert ask("ada", "POST", f"{API}/jobs/release", json={"jobs": [1]}).json() == {"jobs": [1]}
    assert ask("ada", "POST", f"{API}/jobs/requeue", json={"jobs": [3, 4]}).json() == {"jobs": [3]}
    assert ask("ada", "POST", f"{API}/jobs/cancel", json={"jobs": [6, 6, 7]}).json() == {"jobs": [6, 7]}
    assert ask("ada", "DELETE", f"{API}/jobs/6").json() == {"jobs": []}
    assert ask("ada", "DELETE", f"{API}/jobs/8").json() == {"jobs": [8]}
    assert {line.actor for line in many.audit} == {"ada"}


@pytest.mark.parametrize("body", [{"jobs": []}, {"jobs": [0]}, {"jobs": ["1"]}, {"jobs": [True]}, {"job": [1]}, {}])
def test_an_action_on_nothing_is_refused(ask, many, body):
    assert ask("ada", "POST", f"{API}/jobs/cancel", json=body).status_code == 422


def test_how_a_job_is_run_is_shown_to_its_user(ask, control):
    ask("ada", "POST", f"{API}/jobs", json={"files": [{"job": {"run": "train", "env": {"KEY": "secret"}}}]})
    assert ask("ada", "GET", f"{API}/jobs/1/run").json()["environment"] == [["KEY", "secret"]]
    assert ask("view", "GET", f"{API}/jobs/1/run").status_code == 403
    assert "secret" not in ask("view", "GET", f"{API}/jobs/1").text


def test_why_of_a_job_that_has_ended_is_refused(ask, many):
    assert ask("ada", "GET", f"{API}/jobs/1/why").json()["reasons"][0]["code"] == "Resources"
    many.finish(3)
    assert ask("ada", "GET", f"{API}/jobs/3/why").status_code == 422


def test_a_control_plane_that_does_not_answer_is_503(tmp_path):
    site = make_site(tmp_path, settings=ServerSettings(answer_s=0.05))
    site.control.put(make_view(1, tenant="vision", user="ada"))
    silent: Future = Future()
    site.control.cancel = lambda _jobs, actor: silent
    with asked(site) as web:
        answer = web.request("DELETE", f"{API}/jobs/1", headers=site.bearer("ada"))
        assert (answer.status_code, "may still be done" in answer.text) == (503, True)
        silent.set_result((1,))  # nobody waits any more; the control plane is not disturbed
        stopping: Future = Future()
        stopping.cancel()
        site.control.cancel = lambda _jobs, actor: stopping
        answer = web.request("DELETE", f"{API}/jobs/1", headers=site.bearer("ada"))
        assert (answer.status_code, answer.json()["detail"]) == (503, "the control plane is stopping")


def test_an_error_of_our_own_is_a_problem_without_its_story(site, control, monkeypatch):
    control.put(make_view(1, tenant="vision"))
    monkeypatch.setattr(control.reader, "find_jobs", lambda _query: 1 // 0)
    with running(site) as server:
        answer = httpx.get(f"{server.url}{API}/jobs", headers=site.bearer("ada"))
    assert answer.status_code == 500
    assert answer.json()["title"] == "internal error"
    assert "division" not in answer.text


def test_many_list_at_once(site, many):
    """Requests do not wait for one another's threads for ever."""

    async def list_all():
        transport = httpx.ASGITransport(site.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            asked = [client.get(f"{API}/jobs", headers=site.bearer("ada")) for _ in range(100)]
            return await asyncio.gather(*asked)

    answers = asyncio.run(list_all())
    assert {len(answer.json()["jobs"]) for answer in answers} == {30}
