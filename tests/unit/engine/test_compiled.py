"""Compiled functions from the side of Python."""

import numba
import numpy as np
import pytest

from clearway.engine.compiled import compiled, compiled_inside
from clearway.model.errors import InternalError


@compiled_inside
def twice(values, factor):
    for place in range(len(values)):
        values[place] *= factor


@compiled
def four_times(values):
    twice(values, 2)
    twice(values, values[0] // values[0] + 1)


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="everything is plain Python")
def test_a_function_without_code_for_python_says_so_instead_of_ending_the_process():
    with pytest.raises(InternalError, match="twice is for compiled callers only"):
        twice(np.ones(1, dtype=np.int64), 2)


def test_a_constant_and_a_number_are_the_same_to_a_compiled_function():
    values = np.array([1, 3], dtype=np.int64)
    four_times(values)
    assert values.tolist() == [4, 12]
