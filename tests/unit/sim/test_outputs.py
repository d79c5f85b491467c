"""The JSON document and the CSV of jobs, which other people's scripts read."""

import csv
import json

import pytest

from clearway.sim.bounds import BoundDetail, Bounds
from clearway.sim.metrics import compute_metrics
from clearway.sim.outputs import (
    CHUNK_ROWS,
    JOBS_CSV_COLUMNS,
    render_result_json,
    write_jobs_csv,
    write_result_json,
)
from clearway.sim.workload import Skipped
from support.results import make_columns, make_result, make_series

ISSUE_KEYS = {
    "jobs_total",
    "jobs_finished",
    "wait_s",
    "jct_s",
    "makespan_s",
    "device_allocation_ratio",
    "preemptions",
    "lost_device_s",
    "bounds",
    "run",
}
TWO_JOBS = make_columns(
    2,
    submit_ms=[0, 500],
    start_ms=[0, 10_000],
    end_ms=[10_000, 30_250],
    run_ms=[10_000, 20_000],
    devices_milli=[2_000, 400],
    lost_device_ms=[0, 1_500],
    outcome=[0, 2],
    tenants=("root", 'a,"b"'),
    tenant=[0, 1],
)


def make_bounds(jobs=2, **values):
    defaults = {"jct_mean_s": 10.0, "makespan_s": 20.0, "device_allocation_ratio": 0.9}
    area = BoundDetail(name="area", value=20.0, unit="makespan_s", definition="why")
    return Bounds(jobs=jobs, details=(area,), **(defaults | values))


def render(jobs=TWO_JOBS, bounds=None, **keywords):
    result = make_result(jobs, series=make_series(), allocated=50, capacity=100, useful=40, wall_s=0.5)
    return render_result_json(result, compute_metrics(result), bounds or make_bounds(), **keywords)


def test_document_has_the_keys_that_scripts_rely_on():
    document = render()
    assert set(document) >= ISSUE_KEYS
    assert list(document["wait_s"]) == list(document["jct_s"]) == ["mean", "p50", "p90", "p99", "max"]
    assert {"jct_mean_s", "makespan_s", "device_allocation_ratio"} <= set(document["bounds"])
    assert {"wall_s", "events", "jobs_per_s", "peak_rss_bytes"} <= set(document["run"])


def test_document_says_what_was_measured():
    document = render()
    assert (document["jobs_total"], document["jobs_finished"], document["makespan_s"]) == (2, 2, 30.25)
    assert document["wait_s"]["max"] == 9.5
    assert document["jct_s"]["mean"] == (10 + 29.75) / 2
    assert document["device_allocation_ratio"] == 0.5
    assert document["lost_device_s"] == 1.5
    assert document["run"]["jobs_per_s"] == 4.0
    assert (document["seed"], document["policy"], document["decisions_digest"]) == (7, "fifo", "ab" * 32)


def test_gaps_are_relative_for_times_and_differences_for_ratios():
    gaps = render()["gaps"]
    assert gaps["jct_mean_s"] == pytest.approx(0.9875)
    assert gaps["makespan_s"] == pytest.approx(0.5125)
    assert gaps["device_allocation_ratio"] == pytest.approx(0.4)


def test_bounds_about_other_jobs_give_no_gap():
    assert set(render(bounds=make_bounds(jobs=3))["gaps"].values()) == {None}


def test_groups_are_keyed_by_name():
    document = render()
    assert list(document["by_size"]) == ["<1", "2–4"]
    assert document["by_tenant"]['a,"b"']["wait_s"]["mean"] == 9.5


def test_what_could_not_be_measured_is_null(tmp_path):
    document = render(jobs=make_columns(1), bounds=make_bounds(jobs=0, jct_mean_s=float("nan")))
    assert document["jct_s"]["mean"] is None
    assert document["bounds"]["jct_mean_s"] is None
    write_result_json(tmp_path / "result.json", document)
    assert json.loads((tmp_path / "result.json").read_text()) == document


def test_document_without_bounds_keeps_their_keys():
    result = make_result(TWO_JOBS)
    document = render_result_json(result, compute_metrics(result), None)
    assert document["bounds"] == {"jct_mean_s": None, "makespan_s": None, "device_allocation_ratio": None}


def test_skipped_records_are_listed_with_their_lines():
    skipped = render(skipped=(Skipped("no run time", 12, (3, 9)),))["skipped"]
    assert skipped == [{"reason": "no run time", "count": 12, "lines": [3, 9]}]


def read_jobs(path, jobs):
    write_jobs_csv(path, make_result(jobs))
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_columns_of_the_csv_begin_as_promised(tmp_path):
    write_jobs_csv(tmp_path / "jobs.csv", make_result(TWO_JOBS))
    lines = (tmp_path / "jobs.csv").read_text().splitlines()
    assert lines[0].startswith("job,submit_s,start_s,end_s,devices,")
    assert lines[1].startswith("1,0,0,10,2,")
    assert lines[2].startswith("2,0.500,10,30.250,0.400,")
    assert len(lines) == 3


def test_names_with_commas_and_quotes_survive(tmp_path):
    rows = read_jobs(tmp_path / "jobs.csv", TWO_JOBS)
    assert tuple(rows[1]) == JOBS_CSV_COLUMNS
    assert (rows[1]["tenant"], rows[1]["outcome"], rows[1]["lost_device_s"]) == ('a,"b"', "TIMEOUT", "1.500")


def test_what_has_not_happened_is_an_empty_cell(tmp_path):
    (row,) = read_jobs(tmp_path / "jobs.csv", make_columns(1, outcome=-1))
    assert (row["start_s"], row["end_s"], row["outcome"]) == ("", "", "")


def test_a_job_is_a_number_and_its_name_in_the_trace_stands_last(tmp_path):
    (row,) = read_jobs(tmp_path / "jobs.csv", make_columns(1, job_names=("application_7",)))
    assert (row["job"], row["name"]) == ("1", "application_7")


def test_no_row_is_lost_between_chunks(tmp_path):
    rows = read_jobs(tmp_path / "jobs.csv", make_columns(CHUNK_ROWS + 2))
    assert [int(row["job"]) for row in rows] == list(range(1, CHUNK_ROWS + 3))
