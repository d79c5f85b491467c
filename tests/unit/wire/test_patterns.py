"""File names of jobs."""

import pytest

from clearway.wire.patterns import FileNames, fill_pattern

NAMES = FileNames(
    job=12, array=10, task=7, name="train", user="ann", node="n3.cluster", node_index=1, rank=2, restarts=1
)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%j.out", "slurm-12.out"),
        ("slurm-%A_%a.out", "slurm-10_7.out"),
        ("%x-%u-%N-%n-%t-%s-%J-%b-%r", "train-ann-n3-1-2-0-12-7-1"),
        ("%4t/%3j", "0002/012"),
        ("%99t", "0000000002"),
        ("100%%-%q", "100%-%q"),
        ("\\%j-%%", "%j-%%"),
        ("%5x", "train"),
    ],
)
def test_patterns_are_those_of_slurm(pattern, name):
    assert fill_pattern(pattern, NAMES) == name


def test_job_that_is_in_no_array_has_slurms_number_for_none():
    assert fill_pattern("%A_%a", FileNames(job=5)) == "5_4294967294"


@pytest.mark.parametrize(
    ("name", "found"), [("../../etc/cron", ".._.._etc_cron"), ("..", "__"), (".", "_"), ("a/b", "a_b"), ("a\0b", "a_b")]
)
def test_name_of_a_job_does_not_leave_its_directory(name, found):
    assert fill_pattern("logs/%x/out", FileNames(job=1, name=name)) == f"logs/{found}/out"
    assert fill_pattern("logs/%u/out", FileNames(job=1, user=name)) == f"logs/{found}/out"
