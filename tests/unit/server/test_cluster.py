"""Nodes, queues, plans, metrics and what is about the server itself."""

import numpy as np
import pytest

from clearway.model.allocation import Allocation
from clearway.model.jobs import StopCause
from clearway.model.plan import Cap, Migrate, Plan, Reserve, Resize, Start, Stop
from clearway.ports.views import ClusterView, NodeState
from clearway.server.problems import make_problem
from clearway.wire.api import API, PlanView
from clearway.wire.api_rows import decode_row
from support.fake_control import NOW_MS
from support.stored import make_view


def test_a_node_is_drained_with_a_reason_and_taken_back(ask, control):
    answer = ask("op", "POST", f"{API}/nodes/n1/drain", json={"reason": "fan is loud"})
    assert (answer.json()["state"], answer.json()["reason"]) == ("drained", "fan is loud")
    assert ask("op", "POST", f"{API}/nodes/n1/undrain").json()["state"] == "idle"
    assert [(line.actor, line.action) for line in control.audit] == [("op", "node.drain"), ("op", "node.undrain")]


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "a\nb"}, {"reason": "x" * 2_000}, {"why": "x"}])
def test_a_drain_needs_a_reason_of_one_line(ask, control, body):
    assert ask("op", "POST", f"{API}/nodes/n1/drain", json=body).status_code == 422
    assert control.nodes["n1"].state is NodeState.IDLE


def test_an_unknown_node_is_404_with_the_nearest_name(ask):
    for method, path in [("GET", ""), ("POST", "/undrain")]:
        answer = ask("op", method, f"{API}/nodes/n11{path}")
        assert (answer.status_code, answer.json()["hint"]) == (404, "did you mean 'n1'?")


def test_the_cluster_is_one_view(ask, control):
    assert decode_row(ClusterView, ask("op", "GET", f"{API}/cluster").json()) == control.cluster()


def test_a_storage_error_is_told_whole_to_operators_only(ask, control):
    control.storage_error = "/var/lib/secret: disk full"
    assert ask("op", "GET", f"{API}/cluster").json()["storage_error"] == control.storage_error
    assert ask("ada", "GET", f"{API}/cluster").json()["storage_error"] == "the storage fails; ask an operator"


def test_moves_of_each_kind_name_nodes_and_beneficiary(ask, control):
    for number in range(1, 4):
        control.put(make_view(number, tenant="vision"))
    held = Allocation(np.array([1, 0, 1]), np.array([4, 0, 5]))
    control.kept_plans.append(
        (
            NOW_MS,
            Plan(
                3,
                moves=(
                    Start(1, 2, held),
                    Stop(2, 1, 30_000, StopCause.PREEMPTED, beneficiary=1),
                    Resize(3, 2, held),
                    Migrate(3, 3, held, beneficiary=99),
                    Reserve(2, held, NOW_MS + 5),
                    Cap(0, 300),
                ),
                cut_short=True,
                notes=("looked at 100 jobs",),
            ),
        )
    )
    plan = decode_row(PlanView, ask("op", "GET", f"{API}/plans").json()[0])
    assert [move.kind for move in plan.moves] == ["start", "stop", "resize", "migrate", "reserve", "cap"]
    assert plan.moves[0].nodes == ("n2", "n1")
    assert (plan.moves[0].replicas, plan.moves[4].start_ms, plan.moves[5].watts) == (3, NOW_MS + 5, 300)
    assert (plan.moves[1].cause, plan.moves[1].grace_ms, plan.moves[1].beneficiary) == ("preempted", 30_000, 1)
    mine = decode_row(PlanView, ask("ada", "GET", f"{API}/plans").json()[0])
    assert (len(mine.moves), mine.hidden, mine.moves[3].beneficiary) == (5, 1, 0)


def test_metrics_are_prometheus_text_with_the_names_of_the_field(ask, control):
    control.put(make_view(1, tenant="vision"))
    control.put(make_view(2, tenant="nlp"))
    control.start(1)
    ask("op", "GET", f"{API}/jobs/1")
    ask("op", "GET", f"{API}/no/such/path")
    answer = ask("op", "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for line in (
        "clearway_jobs_pending 1.0",
        "slurm_jobs_pending 1.0",
        'clearway_devices{state="used"} 1.0',
        'slurm_nodes_gpus_alloc{node="n1"} 1.0',
        'kueue_pending_workloads{cluster_queue="production"} 1.0',
        'clearway_tenant_jobs_pending{tenant="nlp"} 1.0',
        "clearway_journal_records_total",
        "clearway_cycles_total",
        'clearway_http_requests_total{method="GET",route="/api/v1/jobs/{job}",status="200"} 1.0',
        'clearway_http_requests_total{method="none",route="none",status="404"} 1.0',
    ):
        assert f"\n{line}" in answer.text, line
    assert 'tenant="nlp"' not in ask("ada", "GET", "/metrics").text


def test_health_and_readiness_need_no_token(ask, control):
    assert ask("", "GET", "/health").json()["status"] == "ok"
    assert ask("", "GET", "/ready").status_code == 200
    control.problem = "nothing new is taken, since it cannot be kept: disk full"
    assert ask("", "GET", "/health").json()["status"] == "not ready"
    answer = ask("", "GET", "/ready")
    assert (answer.status_code, "disk full" in answer.json()["detail"]) == (503, True)


def test_the_audit_log_is_read_in_parts(ask, control):
    for number in range(5):
        control.hold((), actor=f"u{number}")
        control._note("op", "test", f"line {number}")
    lines = ask("op", "GET", f"{API}/audit", params={"after": 2, "limit": 2}).json()
    assert [(line["number"], line["target"]) for line in lines] == [(3, "line 2"), (4, "line 3")]


def test_reload_is_done_in_the_name_of_the_caller(ask, site):
    assert ask("op", "POST", f"{API}/reload").json() == {"notes": ["2 queues"]}
    assert site.reloads == ["op"]


@pytest.mark.parametrize(
    ("detail", "parts"),
    [
        ("expected a, found b; c", ("a", "b", "c")),
        ("job 7: expected a, found b", ("a", "b", "")),
        ("f.yaml:3: x: expected one of a, b, found 'c'; d; e", ("one of a, b", "'c'", "d; e")),
        ("nothing of the kind", ("", "", "")),
        ("a: expected b, found c\nd: expected e, found f", ("", "", "")),
    ],
)
def test_a_problem_says_its_message_again_in_parts(detail, parts):
    problem = make_problem(422, detail)
    assert (problem.expected, problem.found, problem.hint) == parts
    assert problem.detail == detail
