"""Array tasks and host lists."""

import pytest

from clearway.model.errors import InputError
from clearway.wire.ranges import ArrayTasks, expand_names, parse_array


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("1-10:2%3", ArrayTasks((1, 3, 5, 7, 9), 3)),
        ("0-3", ArrayTasks((0, 1, 2, 3))),
        ("5,1,1-2", ArrayTasks((1, 2, 5))),
        (7, ArrayTasks((7,))),
    ],
)
def test_array_tasks_are_expanded(text, tasks):
    assert parse_array(text) == tasks


@pytest.mark.parametrize(("text", "step"), [("1-9:2", "2"), ("1,9", "8"), ("1,2,9", "1"), ("1-3", "1")])
def test_each_task_is_told_of_the_whole_array(text, step):
    variables = dict(parse_array(text).variables)
    assert variables["SLURM_ARRAY_TASK_STEP"] == step
    assert variables["SLURM_ARRAY_TASK_MIN"] == "1"
    assert variables["SLURM_ARRAY_TASK_MAX"] == text.split(":")[0][-1]
    assert int(variables["SLURM_ARRAY_TASK_COUNT"]) == len(parse_array(text).indices)


@pytest.mark.parametrize("text", ["", "3-1", "1-3:0", "1-3%0", "a", "1-3%", "1,,2", "0-4000001", "0-100000", True, 1.5])
def test_array_tasks_that_make_no_sense_are_an_error(text):
    with pytest.raises(InputError, match=r"expected (array tasks|at most).*, found"):
        parse_array(text)


def test_names_are_expanded_in_the_order_written():
    assert expand_names("gpu[008-010,7]") == ("gpu008", "gpu009", "gpu010", "gpu7")
    assert expand_names("a[1-2]b, c") == ("a1b", "a2b", "c")
    assert expand_names("r[1-2]n[1-2]") == ("r1n1", "r1n2", "r2n1", "r2n2")


@pytest.mark.parametrize(
    "text", ["", "a[", "a]", "a[]", "a[2-1]", "a[x]", "a,,b", "a[0-999999]", "a[0-9999]b[0-9999]", 5]
)
def test_names_that_make_no_sense_are_an_error(text):
    with pytest.raises(InputError, match=r"expected (node names|at most).*, found"):
        expand_names(text)
