"""Values that are made often are values all the same."""

from dataclasses import replace

import numpy as np
import pytest

from clearway.model.allocation import Allocation
from clearway.model.events import JobFinished
from clearway.model.jobs import Outcome
from clearway.model.plan import Plan

END = JobFinished(1, 2, 3, Outcome.COMPLETED)


def test_equal_values_are_equal_and_hash_alike():
    assert JobFinished(1, 2, 3, Outcome.COMPLETED) == END
    assert hash(JobFinished(1, 2, 3, Outcome.COMPLETED)) == hash(END)
    assert replace(END, at_ms=2) != END


def test_defaults_and_names_are_those_of_the_class():
    assert (END.exit_code, END.signal) == (0, 0)
    assert Plan(7, wake_ms=3) == Plan(parent=7, moves=(), cut_short=False, wake_ms=3, notes=())
    assert repr(END).startswith("JobFinished(at_ms=1, job=2")


def test_what_a_class_does_with_its_fields_is_still_done():
    nodes = np.zeros(1, dtype=np.int64)
    Allocation(nodes, np.zeros(1, dtype=np.int64))
    with pytest.raises(ValueError, match="read-only"):
        nodes[0] = 1
