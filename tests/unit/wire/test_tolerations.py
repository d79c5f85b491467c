"""Tolerations of job files: both ways to write them mean the same, and what is wrong is said."""

import pytest

from clearway.model.runs import Toleration
from clearway.wire.jobfile import parse_job_file
from clearway.wire.problems import ParseError
from clearway.wire.tolerations import parse_tolerations


@pytest.mark.parametrize(
    ("text", "mapping", "expected"),
    [
        ("team", {"key": "team", "operator": "Exists"}, Toleration(key="team")),
        ("team=vision", {"key": "team", "value": "vision"}, Toleration(key="team", value="vision")),
        ("team=", {"key": "team"}, Toleration(key="team", value="")),
        (
            "team=vision:NoSchedule",
            {"key": "team", "operator": "Equal", "value": "vision", "effect": "NoSchedule"},
            Toleration(key="team", value="vision", effect="NoSchedule"),
        ),
        (
            "example.com/x:NoExecute",
            {"key": "example.com/x", "operator": "Exists", "effect": "NoExecute"},
            Toleration(key="example.com/x", effect="NoExecute"),
        ),
        ("*", {"operator": "Exists"}, Toleration()),
    ],
)
def test_toleration_is_written_as_a_text_or_as_kubernetes_does(text, mapping, expected):
    assert parse_tolerations([text, mapping]) == (expected, expected)
    assert parse_tolerations(text) == (expected,)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (7, "expected a taint that it bears"),
        ("", "expected a taint that it bears"),
        ("-x", "expected a taint that it bears"),
        ("*=x", "expected a taint that it bears"),
        ("team:Never", "expected one of the effects NoSchedule, PreferNoSchedule, NoExecute, or none"),
        ("team=a b", "expected a value of letters"),
        ({"key": "a", "operator": "In"}, "expected a taint that it bears"),
        ({"key": "a", "operator": "Exists", "value": "b"}, "expected no `value`"),
        ({"key": "a", "seconds": "3"}, "expected a taint that it bears"),
        (["a"] * 65, "expected at most 64"),
    ],
)
def test_what_is_no_toleration_is_refused(value, said):
    with pytest.raises(ParseError) as raised:
        parse_tolerations(value)
    assert said in str(raised.value)


def parse(text):
    return parse_job_file(text, source="job.yaml", now_ms=0, first_id=1, user="ann")


def test_job_file_names_the_line_of_a_toleration_that_is_wrong():
    parsed = parse("run: x\ntolerations: [team=vision]\n")
    assert parsed.runs[0].tolerations == (Toleration(key="team", value="vision"),)
    with pytest.raises(Exception, match=r"job\.yaml:2") as raised:
        parse("run: x\ntolerations: [team:Never]\n")
    assert "tolerations" in str(raised.value)
