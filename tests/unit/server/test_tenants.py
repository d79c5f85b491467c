"""Tenants whose names begin alike, or differ by case or an accent: nothing of one shows to another."""

import pytest

from clearway.model.ids import JobId
from clearway.model.plan import Explanation, Plan, ReasonCode, Rejection, Stop, Suspend
from clearway.ports.views import JobState
from clearway.server.access import find_reach
from clearway.server.auth import Identity, Role
from clearway.server.events import show_notice
from clearway.wire.api import API, NOT_SHOWN
from support.fake_control import NOW_MS, FakeControl
from support.served import TENANTS, add_user_of
from support.stored import make_view

TREE_BELOW = {"vision": {"vision", "vision-students"}}

LISTS = [
    "/jobs",
    "/jobs?limit=10000&newest_first=true",
    "/jobs/counts",
    "/cluster",
    "/nodes",
    "/nodes/n1",
    "/tenants",
    "/plans",
    "/queues",
    "/whoami",
]


def secret_of(tenant):
    """What appears in everything of a tenant's and nowhere else."""
    return f"secret-{list(TENANTS).index(tenant)}-"


@pytest.fixture
def full(control: FakeControl, tmp_path):
    """For each tenant a running job and a waiting one, their numbers from 1,000,001 on, a log, a plan and a reason."""
    moves = []
    for place, tenant in enumerate(TENANTS):
        number, secret = JobId(1_000_001 + 10 * place), secret_of(tenant)
        (tmp_path / f"{secret}.log").write_text(f"{secret} wrote this\n")
        fields = {"user": f"{secret}user", "tenant": tenant, "name": f"{secret}job", "submit_ms": NOW_MS}
        control.put(make_view(number, workdir=str(tmp_path), output=f"{secret}.log", **fields))
        control.start(number, node="n1" if place < 4 else "n2", device=place % 4)
        control.put(make_view(number + 1, **fields))
        control.explanations[JobId(number + 1)] = Explanation(
            job=JobId(number + 1),
            reasons=(
                Rejection(
                    ReasonCode.RESOURCES,
                    "4 devices are held by jobs 1000001, 1000011 and 3 more; the earliest to end is job 1000021",
                    blockers=tuple(JobId(1_000_001 + 10 * other) for other in range(len(TENANTS))),
                ),
            ),
            fix="cancel job 1000001",
        )
        moves.append(Stop(number, 1, 0, None, beneficiary=JobId(1_000_001 + 10 * ((place + 1) % len(TENANTS)))))
        moves.append(Suspend(number, 1, beneficiary=JobId(number + 1)))
    control.kept_plans.append((NOW_MS, Plan(1, moves=tuple(moves), notes=tuple(map(secret_of, TENANTS)))))
    return control


def numbers_of(tenant):
    first = 1_000_001 + 10 * list(TENANTS).index(tenant)
    return {first, first + 1}


def visible_to(role, tenant):
    return {tenant} | (TREE_BELOW.get(tenant, set()) if role is not Role.USER else set())


@pytest.mark.parametrize("role", [Role.USER, Role.TENANT_ADMIN, Role.VIEWER])
@pytest.mark.parametrize("tenant", list(TENANTS))
def test_no_answer_names_what_is_another_tenants(site, full, ask, role, tenant):
    add_user_of(site, "caller", role, tenant)
    visible = visible_to(role, tenant)
    hidden = set(TENANTS) - visible
    answers = {path: ask("caller", "GET", API + path) for path in LISTS}
    answers["/metrics"] = ask("caller", "GET", "/metrics")
    for each in sorted(visible):
        for number in sorted(numbers_of(each)):
            answers[f"/jobs/{number}"] = ask("caller", "GET", f"{API}/jobs/{number}")
            answers[f"/jobs/{number}/why"] = ask("caller", "GET", f"{API}/jobs/{number}/why")
    for path, answer in answers.items():
        assert answer.status_code == 200, (path, answer.text)
        for other in hidden:
            assert secret_of(other) not in answer.text, path
            for number in numbers_of(other):
                assert str(number) not in answer.text, path
    jobs = answers["/jobs"].json()["jobs"]
    assert {job["id"] for job in jobs} == set().union(*(numbers_of(each) for each in visible))
    assert {row["name"] for row in answers["/tenants"].json()} == visible


@pytest.mark.parametrize("tenant", list(TENANTS))
def test_filters_do_not_widen_what_is_seen(site, full, ask, tenant):
    add_user_of(site, "caller", Role.USER, tenant)
    others = [other for other in TENANTS if other != tenant]
    for params in (
        {"tenant": others},
        {"tenant": ""},
        {"id": sorted(set().union(*map(numbers_of, others)))},
        {"user": [f"{secret_of(other)}user" for other in others]},
        {"name": [f"{secret_of(other)}job" for other in others]},
    ):
        assert ask("caller", "GET", f"{API}/jobs", params=params).json() == {"jobs": [], "next_after": None}
        assert ask("caller", "GET", f"{API}/jobs/counts", params=params).json() == {"counts": {}}


@pytest.mark.parametrize("tenant", list(TENANTS))
def test_every_route_of_one_job_is_404_for_all_other_tenants(site, full, ask, tenant):
    add_user_of(site, "caller", Role.TENANT_ADMIN, tenant)
    hidden = set(TENANTS) - visible_to(Role.TENANT_ADMIN, tenant)
    for number in sorted(min(numbers_of(other)) for other in hidden):
        for method, path in [("GET", ""), ("GET", "/why"), ("GET", "/run"), ("GET", "/logs"), ("DELETE", "")]:
            answer = ask("caller", method, f"{API}/jobs/{number}{path}")
            assert answer.status_code == 404
            assert "secret" not in answer.text
        for action in ("cancel", "hold", "release", "requeue"):
            mine = min(numbers_of(tenant))
            answer = ask("caller", "POST", f"{API}/jobs/{action}", json={"jobs": [mine, number]})
            assert answer.status_code == 404
    assert full.jobs[JobId(min(numbers_of(tenant)))].state is JobState.RUNNING, "all or none"


@pytest.mark.parametrize("tenant", list(TENANTS))
def test_nobody_submits_into_another_tenant_or_waits_for_its_jobs(site, full, ask, tenant):
    add_user_of(site, "caller", Role.USER, tenant)
    for other in TENANTS:
        job = {"run": "true", "tenant": other}
        answer = ask("caller", "POST", f"{API}/jobs", json={"files": [{"job": job}]})
        assert answer.status_code == (201 if other == tenant else 403)
        unknown = ask("caller", "POST", f"{API}/jobs", json={"files": [{"job": {**job, "tenant": "unknown"}}]})
        assert unknown.status_code == 403, "as one that there is not"
        waits = {"run": "true", "depends_on": f"afterany:{min(numbers_of(other))}"}
        answer = ask("caller", "POST", f"{API}/jobs", json={"files": [{"job": waits}]})
        assert answer.status_code == (201 if other == tenant else 422)
    absent = {"run": "true", "depends_on": "afterany:999999"}
    unknown = ask("caller", "POST", f"{API}/jobs", json={"files": [{"job": absent}]})
    assert unknown.json()["detail"] == "depends_on: expected jobs that you may see, found 999999"


def test_an_explanation_keeps_the_numbers_of_ones_own_jobs(site, full, ask):
    add_user_of(site, "caller", Role.USER, "vision")
    reason = ask("caller", "GET", f"{API}/jobs/1000002/why").json()["reasons"][0]
    assert reason["blockers"] == [1_000_001]
    assert reason["message"] == (
        "4 devices are held by jobs of other tenants; the earliest to end is a job of another tenant"
    )
    whole = ask("op", "GET", f"{API}/jobs/1000002/why").json()
    assert whole["fix"] == "cancel job 1000001"
    assert len(whole["reasons"][0]["blockers"]) == len(TENANTS)


def test_devices_of_others_are_shown_as_held_by_nobody_in_particular(site, full, ask):
    add_user_of(site, "caller", Role.USER, "vision")
    owners = [
        owner
        for node in ask("caller", "GET", f"{API}/nodes").json()
        for device in node["devices"]
        for owner in device["owners"]
    ]
    assert sorted(owners) == [[NOT_SHOWN, 1_000]] * (len(TENANTS) - 1) + [[1_000_001, 1_000]]


def test_a_plan_shows_ones_own_moves_and_how_many_there_were(site, full, ask):
    add_user_of(site, "caller", Role.USER, "nlp")
    (plan,) = ask("caller", "GET", f"{API}/plans").json()
    assert [(move["kind"], move["beneficiary"]) for move in plan["moves"]] == [("stop", 0), ("suspend", 1_000_062)]
    assert (plan["hidden"], plan["notes"]) == (2 * len(TENANTS) - 2, [])
    assert len(ask("op", "GET", f"{API}/plans").json()[0]["moves"]) == 2 * len(TENANTS)


@pytest.mark.parametrize("tenant", list(TENANTS))
def test_of_notices_each_sees_his_own_and_of_nodes_what_all_may_know(control, tenant):
    notices = []
    control.subscribe(notices.append)
    for other in TENANTS:
        control.tell("job", other, {"name": secret_of(other)})
    control.tell("node", "root", {"node": "n1", "change": "down", "jobs": [1], "secret": "secret-"})
    control.tell("plan", "root", {"start": 3})
    control.tell("job", "root", {"name": "secret-root"})
    control.tell("anything", "", {"name": "secret-else"})
    reach = find_reach(Identity(user="x", role=Role.USER, tenants=(tenant,)), ())
    shown = [event for notice in notices if (event := show_notice(notice, reach, frozenset()))]
    assert [(event.kind, event.data) for event in shown] == [
        ("job", {"name": secret_of(tenant)}),
        ("node", {"node": "n1", "change": "down"}),
        ("plan", {}),
    ]
    everything = find_reach(Identity(user="x", role=Role.OPERATOR), ())
    assert [show_notice(notice, everything, frozenset()).data for notice in notices] == [each.data for each in notices]
