import pytest

from clearway.model.errors import InputError
from clearway.sim.traces import detect_format, read_workload
from clearway.sim.traces.philly import split_gang
from support.files import write_lines

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster"


def test_jobs_are_sorted_and_the_virtual_cluster_is_the_tenant(tmp_path):
    path = write_lines(
        tmp_path / "p.csv", HEADER, "2017-10-09 07:00:10,66.0,1,66.0,abc", "2017-10-09 07:00:00,5.5,16,88.0,def"
    )
    workload = read_workload(path)
    first, second = workload.jobs
    assert detect_format(path) == "philly"
    assert (first.spec.id, first.spec.tenant, first.run_ms, first.spec.replicas, first.spec.request.devices) == (
        1, "def", 5_500, 2, 8,
    )  # fmt: skip
    assert (second.spec.id, second.submit_ms, second.spec.tenant) == (2, 10_000, "abc")
    assert workload.start_unix_ms == 1507532400_000


@pytest.mark.parametrize(
    ("devices", "split"), [(1, (1, 1)), (8, (8, 1)), (9, (1, 9)), (12, (4, 3)), (16, (8, 2)), (24, (8, 3))]
)
def test_a_gang_is_split_into_whole_nodes_where_it_divides(devices, split):
    assert split_gang(devices) == split


def test_bad_lines_are_counted_by_reason(tmp_path):
    path = write_lines(
        tmp_path / "p.csv",
        HEADER,
        "2017-10-09 07:00:10,66.0,1,66.0,abc",
        "yesterday,66.0,1,66.0,abc",
        "2017-10-09 07:00:10,long,1,66.0,abc",
        "2017-10-09 07:00:10,66.0,1.5,66.0,abc",
        "2017-10-09 07:00:10,66.0,0,66.0,abc",
        "2017-10-09 07:00:10,66.0",
    )
    workload = read_workload(path)
    assert len(workload.jobs) == 1
    assert [part.lines for part in workload.skipped] == [(3,), (4,), (5,), (6,), (7,)]


def test_a_header_without_a_column_is_an_error(tmp_path):
    path = write_lines(tmp_path / "p.csv", "timestamp,duration", "2017-10-09 07:00:10,66.0")
    with pytest.raises(InputError, match=r"p\.csv:1: expected the columns .* found no num_gpus"):
        read_workload(path, format="philly")


def test_an_unknown_file_lists_the_formats(tmp_path):
    with pytest.raises(InputError, match=r"--format, one of: snapshot, swf, philly"):
        detect_format(write_lines(tmp_path / "x.txt", "hello"))


def test_an_unknown_format_name_lists_the_formats(tmp_path):
    with pytest.raises(InputError, match=r"found 'phily'.*philly"):
        read_workload(tmp_path / "x", format="phily")


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="readable trace file"):
        read_workload(tmp_path / "absent.swf")


def test_a_limit_below_one_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="--limit"):
        read_workload(tmp_path / "x", limit=0)
