"""A node that fails every start, among single jobs, arrays and gangs of several users: what it takes, and what others
lose by it."""

import copy
import random

import pytest

from clearway.live.books import each_part
from clearway.live.guard import GuardSettings
from clearway.live.settings import ControlSettings
from clearway.live.trust import LATE_MS, TRIAL_MAX_MS, TRIAL_MS, Trust
from clearway.model.events import NodeClosed, NodeDrained, NodeOpened, NodeUp
from clearway.model.jobs import ArrayMember, Request
from clearway.model.units import FOREVER_MS, MINUTE_MS
from clearway.ports.control import PROVISIONAL_ID
from clearway.ports.views import JobState, NodeState
from support.live import Plane, make_spec, make_submission

MOST = 3
DEVICES = 4
SETTINGS = ControlSettings(guard=GuardSettings(retries_max=4, delay_ms=1_000, delay_max_ms=3_000, node_jobs_max=MOST))
WIDTH_MAX = 3
"""Nodes of a gang."""
UNUSED = (NodeState.DRAINED, NodeState.DRAINING)


class Watch:
    """What the backend saw: which jobs failed on the bad node, alone or as gangs, since it was last drained."""

    def __init__(self, fails, bad):
        self._fails = fails
        self._bad = bad
        self._failed = set()

    def __call__(self, job, nodes):
        """Whether the start fails."""
        is_bad = self._fails(job, nodes)
        if is_bad and self._bad in nodes:
            self._failed.add(job)
            assert len(self._failed) <= MOST, f"the bad node was given {sorted(self._failed)}"
        return is_bad

    def note(self, events):
        """What the journal says."""
        if any(
            isinstance(part, NodeDrained) and part.node == self._bad for event in events for part in each_part(event)
        ):
            self._failed.clear()


def make_plane(fails, nodes, bad):
    plane = Plane(settings=SETTINGS, nodes=nodes, devices=DEVICES)
    watch = plane.backend.fails_start = Watch(fails, bad)
    append = plane.store.append

    def append_and_note(changes):
        watch.note(changes.events)
        return append(changes)

    plane.store.append = append_and_note
    return plane.start()


def on(*names, devices=DEVICES):
    return Request(devices=devices, nodes=names)


def draw_jobs(draw, nodes, users):
    """One submission: single jobs, an array, or gangs of whole nodes."""
    kind, user = draw.choice(("single", "single", "array", "gang", "gang")), draw.choice(users)
    count = draw.randint(1, 6)
    if kind == "single":
        return [make_spec(place, user=draw.choice(users), devices=draw.randint(1, 2)) for place in range(count)]
    if kind == "array":
        members = [ArrayMember(array=PROVISIONAL_ID, index=place) for place in range(count)]
        return [make_spec(place, user=user, array=member) for place, member in enumerate(members)]
    whole = Request(devices=DEVICES)
    return [
        make_spec(place, user=user, request=whole, replicas=draw.randint(1, min(nodes, WIDTH_MAX)))
        for place in range(count)
    ]


def live_on(plane, draw, nodes, users, rounds=20):
    for _ in range(rounds):
        jobs = draw_jobs(draw, nodes, users)
        scripts = [f"run_ms={draw.randint(1, 3_000)} start_ms={draw.choice((0, 0, 20))}" for _ in jobs]
        plane.control.submit(make_submission(*jobs, scripts=scripts))
        plane.control.turn(plane.clock.now_ms())
        if draw.random() < 0.2:
            plane.start()
        plane.run(until_ms=plane.clock.now_ms() + draw.choice((1, 30, 500, 5_000, 400_000)))
        yield
    plane.run()
    yield


def find_unused(plane):
    return {node.name for node in plane.control.cluster().nodes if node.state in UNUSED}


@pytest.mark.parametrize("seed", range(24))
def test_bad_node_fails_three_jobs_at_most_gangs_among_them_and_then_is_drained(seed):
    draw = random.Random(seed)
    nodes = draw.randint(1, 10)
    bad = f"n{draw.randrange(nodes)}"
    plane = make_plane(lambda _job, names: bad in names, nodes, bad)
    for _ in live_on(plane, draw, nodes, draw.choice(("a", "abc"))):
        assert len(find_unused(plane) - {bad}) < WIDTH_MAX
    assert bad in find_unused(plane)


@pytest.mark.parametrize("seed", range(14))
def test_users_broken_jobs_and_gangs_drain_few_good_nodes_and_lock_nobody_out(seed):
    draw = random.Random(seed)
    nodes = draw.randint(2, 10)
    bad = draw.choice((None, "n0"))
    plane = make_plane(lambda job, names: bad in names or plane.control.job(job).user == "broken", nodes, bad)
    for _ in live_on(plane, draw, nodes, ("broken", "broken", "a", "b")):
        # With a bad node: the others of a gang on it, and one more for the broken user's trial.
        assert len(find_unused(plane) - {bad}) <= (1 if bad is None else WIDTH_MAX)
    usable = nodes - len(find_unused(plane))
    good = [row for row in plane.store.rows.values() if row.user != "broken" and row.replicas <= usable]
    assert bad is not None or {row.state for row in good} == {JobState.COMPLETED}


@pytest.mark.parametrize("has_worked", [True, False])
def test_gangs_tell_of_their_bad_node_as_soon_as_their_other_nodes_start_something(has_worked):
    broken = set()
    plane = make_plane(lambda _job, names: not broken.isdisjoint(names), 2, "n1")
    if has_worked:
        plane.submit(make_spec(request=on("n0", "n1"), replicas=2), scripts=["run_ms=10"])
        plane.run()
    broken.add("n1")
    gangs = [make_spec(place, user=f"user {place}", request=on("n0", "n1"), replicas=2) for place in range(2)]
    failed = plane.submit(*gangs)
    plane.run(until_ms=plane.clock.now_ms() + 100)
    plane.do(plane.control.cancel(failed, actor="root"))
    plane.submit(make_spec(user="bo", request=on("n0", devices=1)))
    (third,) = plane.submit(make_spec(user="cy", request=on("n0", "n1"), replicas=2))
    plane.run()
    listed = f"{failed[0]}, {failed[1]}, {third}"
    node = plane.control.cluster().nodes[1]
    assert find_unused(plane) == {"n1"}
    assert node.reason == f"the starts of 3 jobs in a row failed on it: {listed}"


def test_gangs_that_are_to_blame_have_no_node_drained_when_each_of_their_nodes_starts_another():
    plane = make_plane(lambda job, _names: job <= 3, 2, None)
    plane.submit(*[make_spec(place, request=on("n0", "n1"), replicas=2) for place in range(3)])
    plane.run(until_ms=100)
    assert not find_unused(plane)  # the third has not been tried
    plane.submit(make_spec(user="bo", request=on("n0", "n1"), replicas=2))
    plane.run(until_ms=30 * MINUTE_MS)
    assert plane.state(4) is JobState.COMPLETED
    assert not find_unused(plane)  # the two are tried again; the third is when they are held for good


def find_waiting(trust, jobs):
    return [job for job in jobs if trust.is_queued(job)]


def test_gangs_on_nodes_that_have_shown_nothing_go_by_twos_and_all_when_one_starts():
    trust, nodes = Trust(MOST, paces=True), ("n0", "n1")
    for job in range(6):
        trust.note_planned(0, job, "ada", nodes)
    assert find_waiting(trust, range(6)) == [2, 3, 4, 5]
    trust.note_failed(1, 0, "ada", nodes)
    assert find_waiting(trust, range(6)) == [2, 3, 4, 5]
    trust.note_begun(2, 1, nodes, has_started=True)
    assert not find_waiting(trust, range(6))


def test_user_whose_two_gangs_failed_is_kept_from_their_nodes_until_others_or_small_jobs_show_more():
    trust, nodes = Trust(MOST, paces=True), ("n0", "n1")
    for job in range(3):
        trust.note_planned(0, job, "ada", nodes)
    trust.note_failed(1, 0, "ada", nodes)
    trust.note_failed(1, 1, "ada", nodes)
    assert trust.is_queued(2)
    closed = list(trust.answers(1))
    assert [(event.node, event.user) for event in closed] == [("n0", "ada"), ("n1", "ada")]
    for event in closed:
        trust.note_closed(event.node, event.user)
    assert trust.next_ms() == 1 + TRIAL_MS
    trust.note_planned(2, 3, "bo", nodes)
    trust.note_planned(2, 4, "cy", nodes)
    assert find_waiting(trust, (3, 4)) == [4]  # bo's has the last place


def fail_gangs(trust, nodes, users):
    for job, user in enumerate(users):
        trust.note_planned(job, job, user, nodes)
        assert not trust.is_queued(job)
        trust.note_failed(job, job, user, nodes)
    events = [event for event in trust.answers(len(users)) if isinstance(event, NodeDrained)]
    for event in events:
        trust.note_drained(event.node, event.reason)
    return events


def test_three_gangs_that_fail_drain_the_nodes_that_all_had_and_say_that_one_is_bad():
    trust = Trust(MOST, paces=True)
    events = fail_gangs(trust, ("n0", "n1"), ("ada", "ada", "bo"))
    assert [event.node for event in events] == ["n0", "n1"]
    said = "the starts of 3 jobs in a row failed on it: 0, 1, 2"
    said += "; gangs (0, 1, 2) failed on n0, n1: at least one of these is bad"
    assert {event.reason for event in events} == {said}


def test_nodes_drained_for_gangs_are_used_again_when_others_start_where_each_of_them_failed():
    trust = Trust(MOST, paces=True)
    fail_gangs(trust, ("n0", "n1"), ("ada", "ada", "bo"))
    for job, user in enumerate(("ada", "ada", "bo")):
        trust.note_failed(10, job, user, ("n2",))
    assert not [event for event in trust.answers(11) if isinstance(event, NodeUp)]
    trust.note_begun(12, 9, ("n2",), has_started=True)
    assert [event.node for event in trust.answers(13) if isinstance(event, NodeUp)] == ["n0", "n1"]


def test_job_that_started_elsewhere_stays_innocent_when_the_node_fails_it_again():
    trust = Trust(2, paces=True)
    trust.note_failed(1, 1, "ada", ("n0",))
    trust.note_begun(2, 1, ("n1",), has_started=True)
    trust.note_failed(3, 1, "ada", ("n0", "n2"))
    trust.note_failed(3, 2, "bo", ("n3",))
    trust.note_failed(4, 2, "bo", ("n0",))
    assert [event.node for event in trust.answers(5) if isinstance(event, NodeDrained)] == ["n0"]


def test_gang_of_which_nothing_is_heard_counts_as_failed_when_its_time_has_come_by_itself():
    trust, nodes = Trust(2, paces=True), ("n0", "n1")
    trust.note_planned(0, 1, "ada", nodes)
    trust.note_failed(1, 1, "ada", nodes)
    trust.note_planned(2, 2, "bo", nodes)
    trust.note_planned(3, 3, "cy", nodes)
    assert find_waiting(trust, (2, 3)) == [3]
    assert trust.next_ms() == 2 + LATE_MS
    assert [event.node for event in trust.answers(2 + LATE_MS) if isinstance(event, NodeDrained)] == ["n0", "n1"]


def test_what_is_kept_makes_another_that_goes_on_alike():
    trust, other = Trust(MOST, paces=True), Trust(MOST, paces=True)
    trust.note_planned(0, 7, "cy", ("n0", "n5"))
    fail_gangs(trust, ("n0", "n1"), ("ada",))
    other.restore(copy.deepcopy(trust.kept()))
    for each in (trust, other):
        each.note_planned(5, 8, "ada", ("n0", "n1"))
        each.note_failed(6, 7, "cy", ("n0", "n5"))
        each.note_planned(7, 9, "bo", ("n0", "n1"))
    assert find_waiting(trust, (8, 9)) == find_waiting(other, (8, 9)) == [8]
    assert list(trust.answers(8)) == list(other.answers(8))


def settle(trust, now_ms):
    """What follows by now, and of that what follows."""
    for _ in range(20):
        events = list(trust.answers(now_ms))
        for event in events:
            if isinstance(event, NodeDrained):
                trust.note_drained(event.node, event.reason)
            elif isinstance(event, NodeUp):
                trust.note_up(now_ms, event.node)
            elif isinstance(event, NodeClosed):
                trust.note_closed(event.node, event.user)
            elif isinstance(event, NodeOpened):
                trust.note_opened(now_ms, event.node, event.user)
        if not events:
            return
    pytest.fail("answers have no end")


def wait(trust, until_ms):
    """Whatever its timers say, until then."""
    while (now_ms := trust.next_ms()) <= until_ms:
        settle(trust, now_ms)
    settle(trust, until_ms)


def fail(trust, now_ms, user, node, jobs):
    for job in jobs:
        trust.note_planned(now_ms, job, user, (node,))
        assert not trust.is_queued(job)
        trust.note_failed(now_ms, job, user, (node,))


def make_closed():
    """bo's starts failed on n2, and others' on n1 and n3, so that these are closed to him."""
    trust = Trust(MOST, paces=True)
    fail(trust, 1, "bo", "n2", (1,))
    for node, jobs in (("n1", (10, 11)), ("n3", (30, 31))):
        for user, job in zip(("ada", "cy") if node == "n1" else ("di", "ed"), jobs, strict=True):
            fail(trust, 2, user, node, (job,))
    settle(trust, 3)
    assert all(trust.is_closed(node, "bo") for node in ("n1", "n3"))
    return trust


@pytest.mark.parametrize("is_down", [True, False])
@pytest.mark.parametrize("is_before", [True, False])
def test_trial_goes_to_another_node_where_its_own_is_taken_out_of_use(is_down, is_before):
    trust = make_closed()
    if not is_before:
        wait(trust, 3 + TRIAL_MS)
        assert not trust.is_closed("n1", "bo")
    if is_down:
        trust.note_down("n1")
    else:
        trust.note_drained("n1", "maintenance")
    wait(trust, 3 + 2 * TRIAL_MS)
    assert not trust.is_closed("n3", "bo")


def test_node_that_is_drained_while_it_is_closed_takes_nobodys_trial():
    trust = make_closed()
    fail(trust, 4, "fay", "n1", (12,))
    wait(trust, 4 + 2 * TRIAL_MS)
    assert not trust.is_closed("n3", "bo")


def test_start_that_hangs_on_a_drained_node_keeps_no_other_waiting_for_ever():
    trust = Trust(MOST, paces=True)
    trust.note_planned(1, 1, "ada", ("n1",))
    trust.note_drained("n1", "maintenance")
    for job in (2, 3):
        fail(trust, 2, "bo", "n0", (job,))
    trust.note_planned(3, 4, "ada", ("n0",))
    settle(trust, 3)
    assert trust.is_queued(4)
    assert trust.next_ms() != FOREVER_MS
    wait(trust, 1 + LATE_MS)
    assert trust.is_closed("n0", "ada")  # so that it is planned elsewhere
    wait(trust, 1 + LATE_MS + TRIAL_MS)
    assert not trust.is_closed("n0", "ada")
    assert not trust.is_queued(4)


def test_start_without_nodes_is_noted():
    trust = Trust(MOST, paces=True)
    trust.note_begun(1, 1, (), has_started=True)
    trust.note_failed(2, 1, "ada", ())
    assert not list(trust.answers(3))


# --- troubles that pass ---------------------------------------------------------------------------------------------

PATIENT = ControlSettings(guard=GuardSettings(retries_max=20, delay_ms=1_000, delay_max_ms=60_000, node_jobs_max=MOST))


@pytest.mark.parametrize("trouble_ms", [2_000, 40 * MINUTE_MS])
def test_sole_user_whose_gangs_need_all_nodes_goes_on_when_a_trouble_has_passed(trouble_ms):
    plane = Plane(settings=PATIENT, nodes=2, devices=DEVICES)
    plane.backend.fails_start = lambda *_: plane.clock.now_ms() < trouble_ms
    plane.start()
    gangs = [make_spec(place, request=Request(devices=DEVICES), replicas=2) for place in range(3)]
    jobs = plane.submit(*gangs, scripts=["run_ms=10"] * 3)
    plane.run(until_ms=trouble_ms)
    assert not find_unused(plane)  # the same gangs were tried again
    plane.run(until_ms=trouble_ms + 2 * TRIAL_MAX_MS)
    assert {plane.state(job) for job in jobs} == {JobState.COMPLETED}


def make_troubled(draw, nodes, until_ms):
    """Some nodes fail all starts until then. Each may fail so many jobs before it is drained or starts one."""
    names = [f"n{place}" for place in range(nodes)]
    bad = set(draw.sample(names, draw.randint(1, nodes)))
    failed = {name: set() for name in names}
    plane = Plane(settings=PATIENT, nodes=nodes, devices=DEVICES)

    def fails(job, where):
        is_bad = plane.clock.now_ms() < until_ms and not bad.isdisjoint(where)
        for name in where:
            if not is_bad:
                failed[name].clear()
            elif name in bad:
                failed[name].add(job)
                assert len(failed[name]) <= MOST, f"{name} was given {sorted(failed[name])}"
        return is_bad

    append = plane.store.append

    def append_and_note(changes):
        for part in [part for event in changes.events for part in each_part(event)]:
            if isinstance(part, NodeDrained):
                failed[part.node].clear()
        return append(changes)

    plane.store.append = append_and_note
    plane.backend.fails_start = fails
    return plane.start()


@pytest.mark.parametrize("seed", range(30))
def test_all_jobs_start_within_hours_when_troubles_have_passed_and_drained_nodes_are_used_again(seed):
    draw = random.Random(seed)
    nodes, until_ms = draw.randint(1, 5), draw.choice((1_000, 60_000, 20 * MINUTE_MS))
    plane = make_troubled(draw, nodes, until_ms)
    users = draw.choice(("a", "a", "ab", "abc"))
    while plane.clock.now_ms() < until_ms:
        jobs = draw_jobs(draw, nodes, users)
        if draw.random() < 0.3:  # whole clusters
            jobs = [
                make_spec(place, user=job.user, request=Request(devices=DEVICES), replicas=nodes)
                for place, job in enumerate(jobs)
            ]
        plane.control.submit(make_submission(*jobs, scripts=[f"run_ms={draw.randint(1, 3_000)}" for _ in jobs]))
        plane.control.turn(plane.clock.now_ms())
        if draw.random() < 0.3:
            plane.start()
        plane.run(until_ms=plane.clock.now_ms() + draw.choice((30, 5_000, 400_000)))
    for node in sorted(find_unused(plane)):
        plane.do(plane.control.undrain(node, actor="root"))
    for hours in range(1, 5):
        plane.run(until_ms=until_ms + hours * 60 * MINUTE_MS)
        plane.start()
    assert not find_unused(plane)
    assert {row.state for row in plane.store.rows.values()} == {JobState.COMPLETED}


def test_operators_own_drain_is_not_undone_though_its_reason_begins_like_ours():
    trust = Trust(MOST, paces=True)
    fail(trust, 1, "ada", "n1", (1,))
    trust.note_drained("n1", "the starts of jobs hang here: see ticket 5")
    trust.blame(1)
    assert not list(trust.answers(2))
