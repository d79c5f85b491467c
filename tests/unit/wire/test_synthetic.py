"""Model files of workloads: what is wrong with one is said by line."""

import pytest

from clearway.model.errors import InputError
from clearway.sim.model_file import render_model
from clearway.sim.synthetic_philly import PHILLY_LIKE
from clearway.wire.synthetic import load_synthetic_file


def errors_of(tmp_path, old, new):
    """What is said of the built-in model's file in which one part is replaced."""
    path = tmp_path / "model.yaml"
    text = render_model(PHILLY_LIKE)
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as raised:
        load_synthetic_file(path)
    return str(raised.value).replace(str(path), "model.yaml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("user_skew: 1", "user_skw: 1", "model.yaml:11: user_skw: expected one of"),
        ("synthetic_model: 1", "synthetic_model: 2", "model.yaml:3: synthetic_model: expected"),
        ("jobs_per_hour: 27.08", "jobs_per_hour: 0", "model.yaml:6: jobs_per_hour: expected a number greater than 0"),
        (
            "jobs_per_hour: 27.08",
            "jobs_per_hour: 1e-300",
            "model.yaml:6: jobs_per_hour: expected a number greater than",
        ),
        ("jobs_per_hour: 27.08", "jobs_per_hour: 1.0e+308", "model.yaml:6: jobs_per_hour: expected a number less than"),
        ("burst_gap_s: 8.61", "burst_gap_s: 2000000000", "burst_gap_s: expected a number less than"),
        ("weight: 41226", "weight: 1.0e+308", "weight: expected a number less than or equal to 1000000000"),
        ("weight: 41226", "weight: 1.0e-320", "weight: expected a number greater than or equal to 0.000000001"),
        ("users: 319", "users: many", "model.yaml:10: users: expected a whole number, found 'many'"),
        (
            "[1.254, ",
            "[",
            "model.yaml:7: hour_weights: expected 24 rates, one an hour from midnight, found 23",
        ),
        ("[1.254, ", "[-1, ", "model.yaml:7: hour_weights[0]: expected a number from 0 to 1e+09, found -1"),
        ("1.551, ", "3.5, ", "limit_quantiles[2]: expected at least 3.5, as quantiles do not fall, found 2.767"),
        ("weight: 41226", "weight: .nan", "weight: expected"),
        ('kind: "train"', "kind: trian", "kinds[0].kind: expected"),
        ("burst_probability: 0.1499", "burst_probability: 1.5", "shapes[0].burst_probability: expected"),
        (
            "devices: 1\n  share_milli: 1000",
            "devices: 2\n  share_milli: 500",
            "shapes[0].devices: expected 1 device where",
        ),
    ],
)
def test_what_is_wrong_with_a_model_is_said_by_line(tmp_path, old, new, said):
    assert said in errors_of(tmp_path, old, new)


def test_hours_that_all_are_next_to_nothing_are_none(tmp_path):
    text = render_model(PHILLY_LIKE)
    start, end = text.index("hour_weights: ["), text.index("]", text.index("hour_weights: ["))
    said = errors_of(tmp_path, text[start : end + 1], f"hour_weights: [{', '.join(['1.0e-320'] * 24)}]")
    assert "model.yaml:7: hour_weights: expected a rate of 1e-09 or more in some hour, found" in said
