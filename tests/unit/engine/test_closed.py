"""Nodes that are kept from a user: his jobs are planned elsewhere, others' are not, and `why` says so."""

from clearway.engine.explain import explain
from clearway.model.events import NodeClosed, NodeOpened
from clearway.model.plan import ReasonCode
from support.engine import add_nodes, finish, make_kernel, started_jobs, submit

WHY = "the starts of 7, 8 failed on it"


def make_closed_kernel(count=1):
    """Nodes of 8 devices, the first of which is kept from ada."""
    kernel = make_kernel()
    add_nodes(kernel, count, 8)
    kernel.handle(NodeClosed(0, "n1", "ada", WHY))
    return kernel


def test_his_jobs_wait_with_the_reason_and_those_of_others_start():
    kernel = make_closed_kernel()
    assert started_jobs(submit(kernel, {"devices": 1, "user": "ada"})) == []
    assert started_jobs(submit(kernel, {"devices": 1, "user": "bo"})) == [2]
    (reason,) = explain(kernel.state, 1).reasons
    assert reason.code is ReasonCode.LAUNCH_FAILED
    assert reason.message == f"JobLaunchFailure: nodes are kept from jobs of ada (n1: {WHY})"
    assert "undrain" in explain(kernel.state, 1).fix


def test_his_jobs_start_elsewhere():
    kernel = make_closed_kernel(2)
    assert started_jobs(submit(kernel, {"devices": 8, "user": "ada"})) == [1]
    assert kernel.state.node_name(int(kernel.state.jobs[1].allocation.nodes[0])) == "n2"


def test_what_waits_elsewhere_says_what_it_waits_for():
    kernel = make_closed_kernel(2)
    submit(kernel, {"devices": 8, "user": "ada"})
    submit(kernel, {"devices": 8, "user": "bo"})
    submit(kernel, {"devices": 8, "user": "ada"})
    codes = [reason.code for reason in explain(kernel.state, 3).reasons]
    assert ReasonCode.LAUNCH_FAILED not in codes
    assert codes
    finish(kernel, 2)
    assert ReasonCode.LAUNCH_FAILED in [reason.code for reason in explain(kernel.state, 3).reasons]


def test_what_waits_starts_when_the_node_is_opened():
    kernel = make_closed_kernel()
    submit(kernel, {"devices": 1, "user": "ada"})
    assert started_jobs(kernel.handle(NodeOpened(0, "n1", "ada"))) == [1]
    assert not kernel.state.closed


def test_job_that_runs_there_stays_and_comes_back_only_when_it_is_opened():
    kernel = make_kernel()
    add_nodes(kernel, 1, 8)
    submit(kernel, {"devices": 8, "user": "ada"})
    kernel.handle(NodeClosed(0, "n1", "ada", WHY))
    submit(kernel, {"devices": 8, "user": "ada"})
    assert started_jobs(finish(kernel, 1)) == []
    assert int(kernel.state.device_shares_free().sum()) == 8_000
    assert started_jobs(kernel.handle(NodeOpened(0, "n1", "ada"))) == [2]
