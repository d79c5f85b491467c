"""A node that fails every start, among single jobs, arrays and gangs of several users: what it takes, and what others
lose by it."""

import random

import pytest

from clearway.live.guard import GuardSettings
from clearway.live.settings import ControlSettings
from clearway.live.trust import LATE_MS, Trust
from clearway.model.jobs import ArrayMember, Request
from clearway.ports.control import PROVISIONAL_ID
from clearway.ports.views import JobState, NodeState
from support.live import Plane, make_spec, make_submission

MOST = 3
DEVICES = 4
SETTINGS = ControlSettings(guard=GuardSettings(retries_max=4, delay_ms=1_000, delay_max_ms=3_000, node_jobs_max=MOST))
UNUSED = (NodeState.DRAINED, NodeState.DRAINING)


class Watch:
    """What the backend saw: which jobs tell of which node, as each does that failed there while, or before, all others
    of its nodes started something."""

    def __init__(self, fails, nodes, bad):
        self._fails = fails
        self._bad = bad
        self.shown = set()
        self.unheard = []
        self.unclear = []
        self.told = {f"n{node}": set() for node in range(nodes)}

    def __call__(self, job, nodes):
        """Whether the start fails."""
        is_bad = self._fails(job, nodes)
        names = tuple(dict.fromkeys(nodes))
        if is_bad and self._bad in names:
            taken = self.told[self._bad]
            assert len(taken) < MOST or job in taken, f"the bad node was given {job} after {taken} had told of it"
        if is_bad:
            self.unheard.append((job, names))
        return is_bad

    def note_good(self, names):
        """Something has started on these nodes."""
        self.unheard.append((None, tuple(names)))

    def hear(self):
        """The control plane hears of all that happened."""
        for job, names in self.unheard:
            if job is None:
                for name in names:
                    self.shown.add(name)
                    self.told[name].clear()
                    self.unclear = [(other, doubtful - {name}) for other, doubtful in self.unclear]
            else:
                doubtful = {name for name in names if name not in self.shown} or set(names)
                self.shown -= doubtful
                self.unclear.append((job, doubtful))
            self._tell()
        self.unheard.clear()

    def _tell(self):
        for job, doubtful in self.unclear:
            if len(doubtful) == 1:
                self.told[next(iter(doubtful))].add(job)
        self.unclear = [(job, doubtful) for job, doubtful in self.unclear if len(doubtful) > 1]


def make_plane(fails, nodes, bad):
    plane = Plane(settings=SETTINGS, nodes=nodes, devices=DEVICES)
    plane.backend.fails_start = plane.watch = Watch(fails, nodes, bad)
    begin = plane.backend._begin_work

    def note_and_begin(at_ms, run):
        plane.watch.note_good(plane.backend.specs[node].name for node in run.allocation.nodes.tolist())
        begin(at_ms, run)

    observe = plane.backend.observe

    def hear_and_observe(now_ms):
        events = observe(now_ms)
        plane.watch.hear()
        return events

    plane.backend._begin_work, plane.backend.observe = note_and_begin, hear_and_observe
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
        make_spec(place, user=user, request=whole, replicas=draw.randint(1, min(nodes, 3))) for place in range(count)
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
def test_bad_node_is_given_no_job_after_three_have_told_of_it_and_no_good_one_is_drained(seed):
    draw = random.Random(seed)
    nodes = draw.randint(1, 6)
    bad = f"n{draw.randrange(nodes)}"
    plane = make_plane(lambda _job, names: bad in names, nodes, bad)
    for _ in live_on(plane, draw, nodes, draw.choice(("a", "abc"))):
        assert find_unused(plane) <= {bad}
    assert find_unused(plane) == {bad}


@pytest.mark.parametrize("seed", range(14))
def test_users_broken_jobs_and_gangs_drain_one_good_node_at_most_and_lock_nobody_out(seed):
    draw = random.Random(seed)
    nodes = draw.randint(2, 6)
    bad = draw.choice((None, "n0"))
    plane = make_plane(lambda job, names: bad in names or plane.control.job(job).user == "broken", nodes, None)
    for _ in live_on(plane, draw, nodes, ("broken", "broken", "a", "b")):
        assert len(find_unused(plane) - {bad}) <= 1
    usable = nodes - len(find_unused(plane))
    good = [row for row in plane.store.rows.values() if row.user != "broken" and row.replicas <= usable]
    assert bad is not None or {row.state for row in good} == {JobState.COMPLETED}


def test_gangs_tell_of_their_bad_node_as_soon_as_their_other_nodes_start_something():
    plane = make_plane(lambda _job, names: "n1" in names, 3, "n1")
    gangs = [make_spec(place, user=f"user {place}", request=on("n0", "n1"), replicas=2) for place in range(3)]
    plane.submit(*gangs)
    plane.run(until_ms=100)
    assert not find_unused(plane)
    plane.do(plane.control.cancel((1, 2, 3), actor="root"))
    plane.submit(make_spec(request=on("n0", devices=1)))
    plane.run(until_ms=200)
    node = plane.control.cluster().nodes[1]
    assert (node.state, node.reason) == (NodeState.DRAINED, "the starts of 3 jobs in a row failed on it: 1, 2, 3")


def test_nodes_that_worked_and_then_fail_a_gang_are_in_doubt_again():
    broken = set()
    plane = make_plane(lambda _job, names: not broken.isdisjoint(names), 2, None)
    whole = make_spec(request=on("n0", "n1"), replicas=2)
    plane.submit(whole, scripts=["run_ms=10"])
    plane.run()
    broken.add("n1")
    for _ in range(3):
        plane.submit(whole)
    plane.run(until_ms=100)
    plane.do(plane.control.cancel((2, 3, 4), actor="root"))
    plane.submit(make_spec(request=on("n0", devices=1)))
    plane.run()
    assert find_unused(plane) == {"n1"}


def test_gangs_that_are_to_blame_have_no_node_drained_when_each_of_their_nodes_starts_another():
    plane = make_plane(lambda job, _names: job <= 3, 2, None)
    plane.submit(*[make_spec(place, request=on("n0", "n1"), replicas=2) for place in range(3)])
    plane.run(until_ms=100)
    plane.do(plane.control.cancel((1, 2, 3), actor="root"))
    plane.submit(make_spec(user="bo", request=on("n0", "n1"), replicas=2))
    plane.run()
    assert plane.state(4) is JobState.COMPLETED
    assert not find_unused(plane)


def test_gangs_on_nodes_that_have_shown_nothing_go_by_twos_then_one_by_one_and_all_when_one_starts():
    trust, nodes = Trust(MOST, paces=True), ("n0", "n1")
    for job in range(6):
        trust.note_planned(0, job, "ada", nodes)

    def find_waiting():
        return [job for job in range(6) if trust.is_queued(job)]

    assert find_waiting() == [2, 3, 4, 5]
    trust.note_failed(1, 0, "ada", nodes)
    assert find_waiting() == [2, 3, 4, 5]
    trust.note_failed(2, 1, "ada", nodes)
    assert find_waiting() == [3, 4, 5]
    trust.note_left(3, 2)
    assert find_waiting() == [4, 5]
    trust.note_failed(3 + LATE_MS, 0, "ada", nodes)  # job 3 has not been heard of
    assert find_waiting() == [5]
    trust.note_begun(4 + LATE_MS, 4, nodes, has_started=True)
    assert not find_waiting()
