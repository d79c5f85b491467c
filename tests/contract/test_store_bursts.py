"""A control plane whose pods come at once, over a server that takes so much in one statement and no more."""

from dataclasses import replace

from clearway.adapters.storage import open_store
from clearway.ports.views import JobState
from support.live import Plane, make_spec, make_submission

PACKET_BYTES = 16 << 20
NAME = '"' * 100_000
"""Each character is sent as three: the value is written as JSON in a statement."""


def test_pods_that_are_longer_than_the_servers_packet_together_are_all_taken(mariadb):
    plane = Plane(nodes=4, devices=4, store=open_store(mariadb.url(mariadb.make_database()))).start()
    one = replace(make_submission(make_spec(name=NAME)), is_patient=True)
    count = 2 * PACKET_BYTES // len(NAME) // 3
    answers = [plane.control.submit(one) for _ in range(count)]
    plane.turn()
    assert [answer.result(0) for answer in answers] == [(job,) for job in range(1, count + 1)]
    assert not plane.control.problem
    assert len(plane.backend.runs) == 16
    plane.store.close()


def test_reports_that_are_longer_than_the_servers_packet_together_are_all_written(mariadb):
    plane = Plane(nodes=400, devices=1, store=open_store(mariadb.url(mariadb.make_database())))
    labels = tuple((f"clearway.io/admits-{number:016}", "true") for number in range(900))
    plane.backend.specs = tuple(replace(node, labels=labels) for node in plane.backend.specs)
    plane.start()
    assert not plane.control.problem
    plane.submit(make_spec())
    assert plane.state(1) is JobState.RUNNING
    plane.store.close()
