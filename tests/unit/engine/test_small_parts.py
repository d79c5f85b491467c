"""Words for people, typical classes, stranded devices, tenants in turn."""

from dataclasses import replace

import numpy as np
import pytest

from clearway.engine.box import META_SIZE, META_TYPICAL
from clearway.engine.dominant import rows_in_turn
from clearway.engine.policy import FairShare
from clearway.engine.typical import REMEMBERED_MAX, TYPICAL_MAX, TypicalClasses
from clearway.engine.words import (
    count_in_words,
    devices_in_words,
    jobs_in_words,
    list_in_words,
    memory_in_words,
    time_in_words,
)
from clearway.model.cluster import QueueSpec
from clearway.model.events import NodeDown, QueueSet
from clearway.model.units import DAY_MS, GIB, HOUR_MS, MINUTE_MS, SECOND_MS
from support.engine import FIRST_FIT, add_nodes, make_kernel, submit


@pytest.mark.parametrize(
    ("time_ms", "words"),
    [
        (0, "1 s"),
        (1, "1 s"),
        (45 * SECOND_MS, "45 s"),
        (59 * SECOND_MS + 1, "1 min"),
        (2 * HOUR_MS, "2 h"),
        (2 * HOUR_MS + 5 * MINUTE_MS + 7 * SECOND_MS, "2 h 5 min"),
        (DAY_MS + 3 * HOUR_MS, "1 d 3 h"),
        (DAY_MS + 3 * MINUTE_MS, "1 d"),
    ],
)
def test_a_time_is_told_by_its_two_largest_units(time_ms, words):
    assert time_in_words(time_ms) == words


def test_amounts_in_words():
    assert [devices_in_words(milli) for milli in (1_000, 400, 8_000)] == ["1 device", "0.4 devices", "8 devices"]
    assert [count_in_words(count, "node") for count in (1, 2)] == ["1 node", "2 nodes"]
    sizes = (80 * GIB, GIB // 2, GIB // 1024, GIB // 2048, 4096)
    assert [memory_in_words(size) for size in sizes] == ["80 GiB", "0.5 GiB", "1 MiB", "0.5 MiB", "4 KiB"]


def test_lists_in_words():
    assert [list_in_words(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert jobs_in_words((3,)) == "job 3"
    assert jobs_in_words((3, 5), more=12) == "jobs 3, 5 and 12 more"


def note_all(typical, classes):
    meta = np.zeros(META_SIZE, dtype=np.int64)
    for cls in classes:
        typical.note(cls, meta)
    return int(meta[META_TYPICAL])


def test_typical_classes_are_weighed_by_popularity():
    typical = TypicalClasses()
    assert note_all(typical, [5, 5, 5, 2]) == 2
    assert typical.table[:, :2].tolist() == [[5, 2], [750_000, 250_000]]


def test_only_the_most_popular_classes_are_typical():
    typical = TypicalClasses()
    assert note_all(typical, [*range(TYPICAL_MAX + 5), *range(5, TYPICAL_MAX + 5)] * 20) == TYPICAL_MAX
    assert set(typical.table[0].tolist()) == set(range(5, TYPICAL_MAX + 5))


def test_typical_classes_follow_a_workload_that_changes():
    typical = TypicalClasses()
    note_all(typical, [1] * REMEMBERED_MAX)
    note_all(typical, [2] * (2 * REMEMBERED_MAX))
    assert typical.table[0, 0] == 2
    assert typical.total <= 2 * REMEMBERED_MAX


def test_nothing_is_stranded_while_nothing_waits():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    assert kernel.stranded_milli() == 0


def test_devices_are_stranded_that_the_first_waiting_job_cannot_use():
    """3 and 4 devices are free; a gang of 4 each could use the 4."""
    kernel = make_kernel()
    add_nodes(kernel, 2, 8)
    submit(kernel, {"devices": 5}, {"devices": 4}, {"devices": 4, "replicas": 2})
    assert kernel.stranded_milli() == 3_000


def test_remainders_of_shared_devices_are_stranded_for_a_whole_one():
    kernel = make_kernel()
    add_nodes(kernel, 1, 2)
    submit(kernel, {"devices": 1}, {"share_milli": 300}, {"devices": 1})
    assert kernel.stranded_milli() == 700


def test_devices_of_a_node_that_is_down_are_not_stranded():
    kernel = make_kernel()
    add_nodes(kernel, 2, 4)
    kernel.handle(NodeDown(0, "n1"))
    submit(kernel, {"devices": 3}, {"devices": 2})
    assert kernel.stranded_milli() == 1_000


def test_queue_priority_comes_before_dominant_share():
    kernel = make_kernel(replace(FIRST_FIT, fair_share=FairShare(dominant=True)))
    add_nodes(kernel, 1, 4)
    kernel.handle(QueueSet(0, QueueSpec(name="urgent", priority=9)))
    submit(kernel, {"devices": 4, "tenant": "a"})
    submit(
        kernel,
        {"devices": 1, "tenant": "a"},
        {"devices": 1, "tenant": "b"},
        {"devices": 1, "tenant": "a", "queue": "urgent"},
    )
    rows = rows_in_turn(kernel.state).tolist()
    assert [kernel.state.by_row[row].spec.id for row in rows] == [4, 3, 2]
