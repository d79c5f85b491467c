import zlib

import pytest

from clearway.model.errors import InputError
from clearway.model.jobs import Outcome
from clearway.sim.traces import detect_format, read_workload, write_swf
from support.files import write_gzip, write_lines

HEADER = ("; Version: 2.2", "; UnixStartTime: 1000", "; MaxNodes: 4", "; MaxProcs: 32", ";")


def swf(job, submit, run, allocated=4, requested=4, limit=600, status=1, user=7, group=3, application=-1, queue=2):
    return (
        f"{job} {submit} -1 {run} {allocated} -1 -1 {requested} {limit} -1 {status} {user} {group} {application} "
        f"{queue} -1 -1 -1"
    )


def test_one_processor_is_one_replica_of_one_device(tmp_path):
    workload = read_workload(write_lines(tmp_path / "a.swf", *HEADER, swf(5, 100, 60, requested=80)))
    job = workload.jobs[0]
    assert (job.spec.id, job.spec.replicas, job.spec.request.devices) == (5, 80, 1)
    assert (job.submit_ms, job.run_ms, job.spec.limit_ms, job.spec.estimate_ms) == (0, 60_000, 600_000, 600_000)
    assert (job.spec.user, job.spec.tenant, job.spec.queue) == ("user7", "group3", "queue2")
    assert workload.start_unix_ms == 1_100_000
    assert workload.cluster.device_count == 32
    assert len(workload.cluster.nodes) == 4


def test_equal_jobs_share_one_request(tmp_path):
    workload = read_workload(write_lines(tmp_path / "a.swf", swf(1, 0, 5), swf(2, 1, 6)))
    assert workload.jobs[0].spec.request is workload.jobs[1].spec.request


def test_allocated_processors_count_where_none_were_requested(tmp_path):
    workload = read_workload(write_lines(tmp_path / "a.swf", swf(1, 0, 5, allocated=3, requested=-1, limit=-1)))
    assert workload.jobs[0].spec.replicas == 3
    assert workload.jobs[0].spec.limit_ms is None


def test_a_job_without_run_time_or_processors_is_counted_with_its_line(tmp_path):
    lines = (*HEADER, swf(1, 0, -1), swf(2, 0, 5, allocated=-1, requested=-1), swf(3, 0, 5), "4 0 1", swf(5, "x", 5))
    workload = read_workload(write_lines(tmp_path / "a.swf", *lines))
    assert [job.spec.id for job in workload.jobs] == [3]
    assert [(part.count, part.lines) for part in workload.skipped] == [(1, (6,)), (1, (7,)), (1, (9,)), (1, (10,))]


def test_a_run_time_of_zero_is_known_and_kept(tmp_path):
    assert read_workload(write_lines(tmp_path / "a.swf", swf(1, 0, 0))).jobs[0].run_ms == 0


@pytest.mark.parametrize(("status", "outcome"), [(1, Outcome.COMPLETED), (0, Outcome.FAILED), (5, Outcome.CANCELLED)])
def test_status_becomes_the_outcome(tmp_path, status, outcome):
    assert read_workload(write_lines(tmp_path / "a.swf", swf(1, 0, 9, status=status))).jobs[0].outcome is outcome


def test_jobs_are_sorted_by_submit_and_the_limit_keeps_the_first(tmp_path):
    path = write_lines(tmp_path / "a.swf", swf(1, 50, 9), swf(2, 20, 9), swf(3, 30, 9))
    workload = read_workload(path, limit=2)
    assert [(job.spec.id, job.submit_ms) for job in workload.jobs] == [(2, 0), (3, 10_000)]


def test_numbers_that_repeat_give_way_to_places_in_the_order(tmp_path):
    workload = read_workload(write_lines(tmp_path / "a.swf", swf(9, 5, 1), swf(9, 3, 1)))
    assert [job.spec.id for job in workload.jobs] == [1, 2]


def test_metacentrum_fields_after_the_18th_give_the_queue(tmp_path):
    line = swf(0, 1356996147, 60, queue=-1) + " {12,12} q_1d 1:ppn=2"
    workload = read_workload(write_lines(tmp_path / "a.swf", line))
    assert workload.jobs[0].spec.queue == "q_1d"
    assert workload.start_unix_ms == 1356996147_000


def test_gzip_is_told_by_content_and_progress_ends_at_the_whole(tmp_path):
    path = write_gzip(tmp_path / "misnamed.swf", *HEADER, swf(1, 0, 1))
    calls = []
    assert detect_format(path) == "swf"
    read_workload(path, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (path.stat().st_size, path.stat().st_size)


def test_a_cut_gzip_file_is_an_error_that_names_it(tmp_path):
    path = write_gzip(tmp_path / "a.swf.gz", *HEADER, *(swf(i, i, i) for i in range(1, 2000)))
    path.write_bytes(path.read_bytes()[:-900])
    with pytest.raises(InputError, match=r"a\.swf\.gz.*whole gzip"):
        read_workload(path, format="swf")


def test_altered_gzip_data_is_an_error_that_names_the_file(tmp_path):
    path = write_gzip(tmp_path / "a.swf.gz", *HEADER, *(swf(i, i, i * 7_919 % 1_013) for i in range(1, 20_000)))
    whole = path.read_bytes()
    found = set()
    for place in range(1_000, len(whole), len(whole) // 20):
        path.write_bytes(whole[:place] + bytes(4) + b"\xff" * 12 + whole[place + 16 :])
        with pytest.raises(InputError, match=r"a\.swf\.gz.*whole gzip") as error:
            read_workload(path)
        found.add(type(error.value.__cause__))
    assert zlib.error in found


def test_a_file_without_a_usable_job_is_an_error_that_says_why(tmp_path):
    with pytest.raises(InputError, match=r"1 × run time unknown \(negative\) \(line 1\)"):
        read_workload(write_lines(tmp_path / "a.swf", swf(1, 0, -1)))


def test_a_workload_written_as_swf_reads_back(tmp_path):
    first = read_workload(write_lines(tmp_path / "a.swf", *HEADER, swf(3, 10, 60), swf(4, 15, 7, status=5)))
    assert write_swf(first, tmp_path / "b.swf") == 2
    second = read_workload(tmp_path / "b.swf")
    assert [(j.spec.id, j.submit_ms, j.run_ms, j.spec.replicas, j.outcome) for j in second.jobs] == [
        (j.spec.id, j.submit_ms, j.run_ms, j.spec.replicas, j.outcome) for j in first.jobs
    ]
    assert second.start_unix_ms == first.start_unix_ms


@pytest.mark.parametrize("wrong", [swf(2, 10**22, 5), swf(2, 1, 10**22), swf(2, 1, 5, requested=10**20)])
def test_numbers_too_large_to_be_true_are_counted_and_left_out(tmp_path, wrong):
    workload = read_workload(write_lines(tmp_path / "a.swf", swf(1, 0, 5), wrong))
    assert [job.spec.id for job in workload.jobs] == [1]
    assert [(part.count, part.lines) for part in workload.skipped] == [(1, (2,))]
    assert "too large" in workload.skipped[0].reason


def test_jobs_whose_own_numbers_are_too_large_are_numbered_anew(tmp_path):
    workload = read_workload(write_lines(tmp_path / "a.swf", swf(10**20, 0, 5), swf(7, 1, 5)))
    assert [job.spec.id for job in workload.jobs] == [1, 2]
