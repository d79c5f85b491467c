"""What the next control plane finds again."""

from dataclasses import replace

import pytest

from clearway.engine.policy import Elasticity, Preemption, PreemptMode
from clearway.model.cluster import LinkSpec
from clearway.model.errors import InputError
from clearway.model.events import Batch, ControlStarted, LinksSet, NodeDown
from clearway.model.ids import NodeName
from clearway.model.jobs import Elastic
from clearway.model.plan import Cap, Resize, Start
from clearway.policies.named import named_policy
from clearway.ports.storage import JournalError
from clearway.ports.views import DeviceState, JobState, NodeState
from support.fake_backend import FakeBackend
from support.live import Plane, make_spec, make_submission
from support.memory_store import MemoryStore
from support.worlds import make_cluster


class Killed(BaseException):
    """The control plane dies."""


def kill_at(plane, name):
    """Have the plane die when it next calls `name` of its backend."""
    whole = getattr(plane.backend, name)

    def die(*_args):
        setattr(plane.backend, name, whole)
        raise Killed

    setattr(plane.backend, name, die)


def test_numbers_go_on_and_running_jobs_are_adopted():
    plane = Plane(devices=2).start()
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.clock.set(100)
    plane.start()
    assert plane.state(1) is JobState.RUNNING
    assert plane.submit(make_spec(), scripts=["run_ms=100"]) == (2,)
    plane.run()
    rows = [(row.state, row.end_ms, row.restarts) for row in plane.store.rows.values()]
    assert rows == [(JobState.COMPLETED, 500, 0), (JobState.COMPLETED, 200, 0)]
    assert plane.backend.ran == [[1, 1, 0, 500], [2, 1, 100, 200]]


def test_start_that_was_decided_and_not_performed_is_performed():
    plane = Plane().start()
    kill_at(plane, "perform")
    plane.control.submit(make_submission(make_spec()))
    with pytest.raises(Killed):
        plane.control.turn(0)
    assert not plane.backend.runs
    plane.start()
    assert plane.state(1) is JobState.CONFIGURING
    plane.run()
    assert plane.state(1) is JobState.COMPLETED
    assert [command.generation for command in plane.backend.performed if isinstance(command, Start)] == [1]


def test_stop_that_was_decided_and_not_performed_is_performed():
    plane = Plane().start()
    plane.submit(make_spec())
    kill_at(plane, "perform")
    plane.control.cancel((1,), actor="ada")
    with pytest.raises(Killed):
        plane.control.turn(0)
    plane.start()
    plane.run()
    assert plane.state(1) is JobState.CANCELLED
    assert not plane.backend.runs


def test_job_that_ended_while_nobody_looked_has_ended():
    plane = Plane().start()
    plane.submit(make_spec(), scripts=["run_ms=500 outcome=FAILED"])
    plane.clock.set(9_000)
    plane.start()
    row = plane.control.job(1)
    assert (row.state, row.end_ms, row.exit_code) == (JobState.FAILED, 500, 1)


def test_report_that_was_taken_and_not_kept_is_told_anew():
    plane = Plane().start()
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.store.error = "disk full"
    plane.clock.set(500)
    plane.control.turn(500)
    plane.store.error = None
    plane.start()
    assert plane.store.rows[1].state is JobState.COMPLETED


def test_node_that_is_gone_is_down_and_its_job_starts_elsewhere():
    plane = Plane(nodes=2).start()
    plane.submit(make_spec(), scripts=["run_ms=500"])
    plane.backend = FakeBackend(make_cluster(3, 1).nodes[1:])
    plane.backend._begin = {"n1": 1, "n2": 2}
    plane.backend.used_milli = plane.backend.used_milli.repeat(2)
    plane.start()
    states = [node.state for node in plane.control.cluster().nodes]
    assert states == [NodeState.DOWN, NodeState.ALLOCATED, NodeState.IDLE]
    assert "not found" in plane.control.cluster().nodes[0].reason
    row = plane.control.job(1)
    assert (row.nodes, row.generation, row.restarts) == (("n1",), 2, 1)


def test_node_that_comes_back_is_up_and_a_drained_one_stays_drained():
    plane = Plane(nodes=2).start()
    plane.do(plane.control.drain("n1", reason="fan", actor="op"))
    nodes = plane.backend.specs
    plane.backend.specs = ()
    plane.start()
    assert [node.state for node in plane.control.cluster().nodes] == [NodeState.DOWN] * 2
    plane.backend.specs = nodes
    plane.start()
    assert [node.state for node in plane.control.cluster().nodes] == [NodeState.IDLE, NodeState.DRAINED]
    assert plane.control.cluster().nodes[1].reason == "fan"


def test_node_of_another_place_is_refused_and_nothing_is_written():
    plane = Plane(devices=8).start()
    plane.backend.specs = make_cluster(1, 8, leaf="l2").nodes
    before = list(plane.store.events)
    with pytest.raises(InputError, match=r"n0.*8 x A100.*8 x A100, leaf l2"):
        plane.start()
    assert plane.store.events == before


def test_machine_with_fewer_devices_starts_says_which_are_missing_and_runs_their_jobs_elsewhere():
    plane = Plane(devices=4).start()
    plane.submit(*[make_spec(place) for place in range(3)], scripts=["run_ms=9000"] * 3)
    plane.run(until_ms=1_000)
    plane.backend.become(make_cluster(1, 2).nodes)
    plane.start()
    (node,) = plane.control.cluster().nodes
    assert [device.state for device in node.devices[2:]] == [DeviceState.DOWN] * 2
    assert node.devices[3].reason == "the device was not found when the control plane started"
    assert node.is_degraded
    assert [plane.state(job) for job in (1, 2, 3)] == [JobState.RUNNING, JobState.RUNNING, JobState.PENDING]
    assert "device 2 of n0" in plane.store.rows[3].message
    assert plane.backend.orphans == [(3, 1)]
    plane.run()
    assert {plane.state(job) for job in (1, 2, 3)} == {JobState.COMPLETED}
    assert all(not {2, 3} & set(indices) for job in (1, 2, 3) for _, indices in plane.store.rows[job].devices)
    plane.backend.become(make_cluster(1, 4).nodes)
    plane.start()
    assert not plane.control.cluster().nodes[0].is_degraded


def test_what_runs_on_a_node_that_is_gone_is_ended_for_the_machine_may_be_there_under_another_name():
    plane = Plane(devices=2).start()
    plane.submit(make_spec(devices=2), scripts=["run_ms=9000"])
    plane.run(until_ms=1_000)
    plane.backend.become((replace(make_cluster(1, 1).nodes[0], name=NodeName("renamed")),))
    plane.start()
    assert plane.backend.orphans == [(1, 1)]
    assert plane.state(1) is JobState.PENDING
    assert "n0: the node was not found when the control plane started" in plane.store.rows[1].message


def test_machine_with_more_devices_has_them_used_while_its_jobs_run_on():
    plane = Plane(devices=1).start()
    plane.submit(make_spec(), make_spec(1, devices=3), scripts=["run_ms=9000", "run_ms=9000"])
    plane.backend.become(make_cluster(1, 4).nodes)
    plane.start()
    plane.run(until_ms=100)
    assert [plane.state(job) for job in (1, 2)] == [JobState.RUNNING, JobState.RUNNING]
    plane.start().run()
    assert [row.restarts for row in plane.store.rows.values()] == [0, 0]


def test_damaged_journal_is_refused_before_anything_is_touched():
    class Damaged(MemoryStore):
        def read_journal(self, after=0):
            yield from ()
            raise JournalError("record 7 was altered")

    plane = Plane(store=Damaged())
    plane.backend.connect = None
    with pytest.raises(JournalError, match="record 7"):
        plane.start()


def test_journal_is_the_same_as_values_and_as_json():
    plane = Plane(devices=2, store=MemoryStore(encodes=True)).start()
    plane.submit(make_spec(), make_spec(1, devices=2), key="abc")
    plane.run(until_ms=100)
    plane.start().start()
    plane.run()
    assert [row.state for row in plane.store.rows.values()] == [JobState.COMPLETED] * 2


def test_clock_that_was_set_back_does_not_turn_the_journal_back():
    plane = Plane().start()
    plane.clock.set(1_000)
    plane.submit(make_spec())
    plane.clock._now_ms = 10
    plane.backend.now_ms = 0
    plane.start()
    started = [event for event in plane.store.events if isinstance(event, ControlStarted)][-1]
    assert started.at_ms == 1_000


def test_each_start_is_marked_in_the_journal_and_finds_nothing_new_to_say():
    plane = Plane().start().start().start()
    kinds = [type(event).__name__ for event in plane.store.events]
    assert kinds == ["Batch", "ControlStarted", "ControlStarted"]
    assert not [event for event in plane.store.events if isinstance(event, NodeDown)]


GROWING = replace(named_policy("easy"), name="growing", elasticity=Elasticity(enabled=True, interval_ms=1_000))


@pytest.mark.parametrize("is_performed", [False, True])
def test_job_that_was_to_grow_goes_on_and_grows(is_performed):
    plane = Plane(devices=2, policy=GROWING).start()
    perform = plane.backend.perform

    def die_at_resize(now_ms, command):
        if not isinstance(command, Resize) or is_performed:
            perform(now_ms, command)
        if isinstance(command, Resize):
            plane.backend.perform = perform
            raise Killed

    plane.submit(make_spec(1), scripts=["run_ms=500"])
    plane.backend.perform = die_at_resize
    plane.submit(make_spec(elastic=Elastic(replicas_min=1, replicas_max=2)), scripts=["run_ms=9000 save_ms=200"])
    with pytest.raises(Killed):
        plane.run()
    died_ms = plane.clock.now_ms()
    plane.start()
    assert not plane.backend.orphans, "it runs under the generation that it had, and that is right"
    plane.run(until_ms=died_ms + 200)
    row = plane.control.job(2)
    assert (row.state, row.generation, row.devices) == (JobState.RUNNING, 2, (("n0", (0, 1)),))
    plane.run()
    assert (plane.store.rows[2].state, plane.store.rows[2].restarts) == (JobState.COMPLETED, 0)


PREEMPTING = replace(
    named_policy("easy"), name="preempting", preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=0)
)


def test_frozen_job_that_was_to_go_on_has_lost_nothing():
    plane = Plane(policy=PREEMPTING).start()
    plane.submit(make_spec(suspendable=True), scripts=["run_ms=1000 save_ms=never"])
    plane.run(until_ms=600)
    plane.submit(make_spec(priority=9), scripts=["run_ms=100"])
    assert plane.state(1) is JobState.SUSPENDED
    kill_at(plane, "perform")
    with pytest.raises(Killed):
        plane.run()
    plane.start()
    assert not plane.backend.orphans
    plane.run()
    row = plane.store.rows[1]
    assert (row.state, row.generation, row.end_ms) == (JobState.COMPLETED, 2, 1_100)


def caps(plane):
    return [(cap.node, cap.watts) for cap in plane.backend.performed if isinstance(cap, Cap)]


def test_power_budget_caps_devices_once_for_each_control_plane_and_lifting_it_lifts_the_caps():
    backend = FakeBackend(make_cluster(1, 4, watts_max=400).nodes)
    plane = Plane(backend=backend, power_budget_watts=1_000).start()
    plane.submit(make_spec(devices=4), scripts=["run_ms=9000"])
    plane.run(until_ms=100)
    ((node, watts),) = caps(plane)
    assert (node, 4 * watts <= 1_000) == (0, True)
    plane.start()
    assert caps(plane) == [(0, watts)] * 2
    plane.options = {}
    plane.start()
    plane.run(until_ms=200)
    assert caps(plane)[-1] == (0, 0)


def links_told(plane):
    parts = [part for event in plane.store.events for part in (event.events if isinstance(event, Batch) else (event,))]
    return [part.links for part in parts if isinstance(part, LinksSet)]


def test_links_are_told_once_and_again_where_they_are_others():
    slow = (("node", LinkSpec(bandwidth_gbps=400, latency_us=1)), ("site", LinkSpec(bandwidth_gbps=1, latency_us=50)))
    plane = Plane(nodes=2, devices=2, links=slow).start()
    assert plane.control._memory.kernel.state.link_speeds == dict(slow)
    plane.start()
    assert links_told(plane) == [slow]
    assert plane.do(plane.control.snapshot()).links == slow
    plane.options = {}
    plane.start()
    assert links_told(plane) == [slow, ()]


def test_job_for_which_no_power_is_left_waits_and_says_so():
    backend = FakeBackend(make_cluster(1, 4, watts_max=400).nodes)
    plane = Plane(backend=backend, power_budget_watts=700).start()
    plane.submit(*[make_spec(place) for place in range(4)], scripts=["run_ms=9000"] * 4)
    plane.run(until_ms=2_000)
    assert plane.control.job(4).reason == "PowerNotAvail"


def test_frozen_job_that_is_told_to_end_is_not_counted_among_those_that_hold_devices():
    plane = Plane(policy=PREEMPTING).start()
    plane.submit(make_spec(suspendable=True), scripts=["run_ms=1000 save_ms=never"])
    plane.run(until_ms=600)
    plane.submit(make_spec(priority=9), scripts=["run_ms=100"])
    plane.control.cancel((1,), actor="ada")
    plane.control.turn(plane.clock.now_ms())  # only one: it was told, and has not ended yet
    view = plane.control.cluster()
    assert (plane.state(1), view.running, view.pending) == (JobState.COMPLETING, 1, 1)
