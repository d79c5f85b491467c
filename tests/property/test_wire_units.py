"""What is rendered is read back; what is read is either a sound value or an InputError, never anything else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.model.errors import InputError
from clearway.model.units import SECOND_MS
from clearway.wire.dependencies import parse_dependencies, parse_slurm_dependencies
from clearway.wire.documents import parse_document
from clearway.wire.jobfile import parse_job_file
from clearway.wire.jobmodel import JobModel
from clearway.wire.moments import parse_moment, render_moment
from clearway.wire.ranges import expand_names, parse_array
from clearway.wire.sbatch import parse_sbatch
from clearway.wire.units import (
    AMOUNT_MAX,
    parse_cpus,
    parse_devices,
    parse_duration,
    parse_kubernetes_cpu,
    parse_kubernetes_memory,
    parse_memory,
    parse_power,
    parse_share,
    parse_slurm_memory,
    parse_slurm_time,
    parse_time_span,
    render_duration,
    render_kubernetes_cpu,
    render_kubernetes_memory,
    render_memory,
    render_slurm_memory,
    render_slurm_time,
)

AMOUNTS = st.integers(0, 1 << 50)
NUMBER_PARSERS = (
    parse_cpus,
    parse_duration,
    parse_kubernetes_cpu,
    parse_kubernetes_memory,
    parse_memory,
    parse_power,
    parse_share,
    parse_slurm_memory,
)
UNIT_TEXTS = st.text(alphabet="0123456789.:-+ %KMGTPEBikmnuhdswx[],@?_", max_size=14) | st.text(max_size=6)
"""Texts of the letters that units are made of, which get deeper into parsers than any text would."""


@pytest.mark.parametrize(
    ("render", "parse"),
    [
        (render_duration, parse_duration),
        (render_memory, parse_memory),
        (render_kubernetes_memory, parse_kubernetes_memory),
        (render_kubernetes_cpu, parse_kubernetes_cpu),
        (render_kubernetes_cpu, parse_cpus),
    ],
    ids=lambda function: function.__name__,
)
def test_what_is_rendered_is_read_back(render, parse):
    @given(AMOUNTS)
    def check(amount):
        assert parse(render(amount)) == amount

    check()


@given(st.integers(1, 1 << 45))
def test_slurm_times_of_whole_seconds_are_read_back(seconds):
    assert parse_slurm_time(render_slurm_time(seconds * SECOND_MS)) == seconds * SECOND_MS


@given(AMOUNTS)
def test_slurm_memory_is_read_back_as_at_least_what_it_was_and_less_than_a_kibibyte_more(size):
    assert 0 <= parse_slurm_memory(render_slurm_memory(size)) - size < 1024


@given(st.integers(0, 253_402_300_799_999))
def test_moments_are_read_back(moment_ms):
    assert parse_moment(render_moment(moment_ms), now_ms=0) == moment_ms


def attempt(parse, *arguments, **named):
    """(value, None), or (None, message) where the input is refused. Any other exception fails the test."""
    try:
        return parse(*arguments, **named), None
    except InputError as error:
        return None, str(error)


@given(UNIT_TEXTS | st.integers() | st.floats() | st.booleans())
def test_an_amount_is_sound_or_an_input_error_and_never_nothing_for_something(value):
    for parse in NUMBER_PARSERS:
        amount, message = attempt(parse, value)
        if message is None:
            assert 0 <= amount <= AMOUNT_MAX
            assert amount > 0 or not any(digit in str(value) for digit in "123456789")


@given(UNIT_TEXTS)
def test_a_time_is_no_limit_only_where_that_was_written(text):
    for parse in (parse_slurm_time, parse_time_span):
        limit, message = attempt(parse, text)
        if message is None and limit is None:
            assert text.strip() == "-1" or not any(digit in text for digit in "123456789")


@given(UNIT_TEXTS)
def test_lists_are_sound_or_an_input_error(text):
    for parse in (parse_array, expand_names, parse_devices, parse_dependencies, parse_slurm_dependencies):
        _, message = attempt(parse, text)
        assert message is None or "expected" in message


@settings(deadline=None)
@given(st.text(alphabet="abn:{}[],-'\"\n\t #&*!|>?%@1.\\u0", max_size=40) | st.text(max_size=20))
def test_a_document_is_read_or_an_input_error(text):
    _, message = attempt(parse_document, text, source="file")
    assert message is None or message.startswith("file")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 40) | st.floats(allow_nan=False) | UNIT_TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(UNIT_TEXTS, inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(JobModel.model_fields)), VALUES, max_size=3))
def test_a_job_file_of_any_values_is_read_or_an_input_error(values):
    text = json.dumps({"run": "x", **values})
    submission, message = attempt(parse_job_file, text, source="job", now_ms=0, first_id=1, user="ann")
    if message is None:
        assert len(submission.jobs) >= 1
    else:
        assert all(line.startswith("job") for line in message.splitlines())


OPTIONS = st.tuples(st.sampled_from("JpqANnctadwxCoemGDbH"), UNIT_TEXTS).map(lambda pair: f"-{pair[0]}{pair[1]}")


@settings(max_examples=200, deadline=None)
@given(st.lists(OPTIONS | UNIT_TEXTS, max_size=4))
def test_a_script_of_any_options_is_read_or_an_input_error(options):
    text = "#!/bin/sh\n" + "".join(f"#SBATCH {option}\n" for option in options)
    submission, message = attempt(parse_sbatch, text, source="job.sh", now_ms=0, first_id=1, user="ann")
    if message is None:
        assert len(submission.jobs) >= 1
    else:
        assert message.startswith("job.sh")
