"""Submissions in batches to a control plane on a real server that is killed and cut off under it: what was acknowledged
is there, what was not is there whole or not at all, and no number is given twice."""

import random
import threading
from collections import Counter

import pytest

from clearway.adapters.storage import open_store
from clearway.model.ids import JobId
from clearway.ports.storage import JobQuery, StorageError
from support.live import Plane, make_spec, make_submission
from support.proxy import Cut, CuttingProxy
from support.servers import poll

ROUNDS = 6
CLIENTS = 5


class Client:
    """Submits batches of jobs that carry its name, each again under the same key until it is acknowledged."""

    def __init__(self, name, draw):
        self.name = name
        self.draw = draw
        self.batches = 0
        self.key = ""
        self.jobs = ()
        self.future = None
        self.taken = {}

    def submit(self, control):
        if not self.key:
            self.batches += 1
            self.key = f"{self.name}.{self.batches}"
            count = self.draw.choice((1, 3, 40, 400))
            self.jobs = tuple(make_spec(place, name=f"{self.key}.{place}", user=self.name) for place in range(count))
        self.future = control.submit(make_submission(*self.jobs, actor=self.name, key=self.key))

    def hear(self):
        """The answer: numbers, or a refusal that says why."""
        error = self.future.exception(timeout=0)
        if error is None:
            self.taken[self.key] = self.future.result()
            self.key = ""
        else:
            assert isinstance(error, StorageError), error
            assert "cannot be kept" in str(error)


def check(store, clients):
    """What is stored, against what was answered."""
    rows = {}
    while page := store.reader.find_jobs(JobQuery(after=JobId(max(rows, default=0)), limit=10_000)):
        rows |= {row.id: row for row in page}
    names = Counter(row.name for row in rows.values())
    assert not [name for name, count in names.items() if count > 1]
    runs = store.read_runs(sorted(rows))
    assert set(runs) == set(rows)
    for client in clients:
        for key, numbers in client.taken.items():
            assert [rows[number].name for number in numbers] == [f"{key}.{place}" for place in range(len(numbers))]
        if client.key:
            assert sum(name.startswith(f"{client.key}.") for name in names) in (0, len(client.jobs))
    given = [number for client in clients for numbers in client.taken.values() for number in numbers]
    assert len(given) == len(set(given))
    return rows


@pytest.fixture
def proxied(server):
    database = server.make_database()
    proxy = CuttingProxy(server.port)
    yield server, proxy, server.url(database, proxy.port), server.url(database)
    proxy.close()


@pytest.mark.parametrize("harm", ["kill", "all"])
def test_batches_survive_the_death_of_the_server_and_of_the_control_plane(proxied, harm):
    server, proxy, url, direct = proxied
    draw = random.Random(harm)
    store = open_store(url)
    plane = Plane(store=store, devices=1).start()
    clients = [Client(f"user{number}", draw) for number in range(CLIENTS)]
    for turn in range(ROUNDS):
        kind = draw.choice(("kill", "cut", "lose")) if harm == "all" else harm
        killer = harm_soon(kind, server, proxy, draw)
        for _ in range(4):
            for client in clients:
                client.submit(plane.control)
            take_turn(plane)
            for client in clients:
                client.hear()
        killer.join()
        proxy.cut = None
        if kind == "kill":
            server.start()
        if turn % 2:  # the control plane dies, too
            store.close()
            plane.store = store = open_when_free(url)
            plane.start()
            check(store, clients)
        poll(lambda: is_well(plane), what="the control plane takes requests again")
    for client in clients:
        client.submit(plane.control)
    plane.control.turn(plane.clock.now_ms())
    for client in clients:
        client.hear()
        assert not client.key
    store.close()
    store = open_when_free(direct)
    assert len(check(store, clients)) == sum(len(numbers) for client in clients for numbers in client.taken.values())
    store.close()


def open_when_free(url):
    """A server lets go of the lock when it notices that the connection is gone."""
    stores = []

    def is_open():
        try:
            stores.append(open_store(url))
        except StorageError:
            return False
        return True

    poll(is_open, what="the store can be opened")
    return stores[0]


def harm_soon(kind, server, proxy, draw):
    """At some moment of the turns that follow; where it is a cut, of the next commit."""
    if kind == "cut":
        proxy.cut = draw.choice(list(Cut))
    timer = threading.Timer(draw.uniform(0, 0.2), {"kill": server.kill, "lose": proxy.lose_all}.get(kind, lambda: None))
    timer.start()
    return timer


def take_turn(plane):
    """Until what was asked is answered."""
    plane.clock.set(plane.clock.now_ms() + 1)
    plane.control.turn(plane.clock.now_ms())


def is_well(plane):
    plane.clock.set(plane.clock.now_ms() + 10_000)
    plane.control.turn(plane.clock.now_ms())
    return not plane.control.problem
