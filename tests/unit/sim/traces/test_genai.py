"""Requests for images."""

import pytest

from clearway.model.errors import InputError
from clearway.model.jobs import JobKind, Outcome
from clearway.sim.traces import read_workload
from support.shared import TRACES, needs_traces

HEADER = "gmt_create,predict_type,predict_status,exec_time_seconds,groupId,num_lora\n"


def test_each_request_that_has_ended_is_a_task_of_one_device(tmp_path):
    file = tmp_path / "requests.csv"
    file.write_text(
        HEADER
        + "2024-11-15 16:58:00,TXT_2_IMG,SUCCEED,43.0,G1,0\n"
        + "2024-11-15 16:57:50,INPAINTING,FAILED,1.5,G0,2\n"
        + "2024-11-15 16:58:01,TXT_2_IMG,PENDING,,G0,0\n"
        + "2024-11-15 16:58:01,TXT_2_IMG,SUCCEED,,G0,0\n"
        + "yesterday,TXT_2_IMG,SUCCEED,1.0,G0,0\n"
    )
    workload = read_workload(file)
    found = [(job.submit_ms, job.run_ms, job.outcome) for job in workload.jobs]
    assert found == [(0, 1_500, Outcome.FAILED), (10_000, 43_000, Outcome.COMPLETED)]
    assert {(job.spec.kind, job.spec.request.devices) for job in workload.jobs} == {(JobKind.TASK, 1)}
    assert [(one.count, one.lines) for one in workload.skipped] == [(1, (4,)), (1, (5,)), (1, (6,))]


def test_a_file_without_a_request_that_has_ended_is_refused(tmp_path):
    file = tmp_path / "requests.csv"
    file.write_text(HEADER + "2024-11-15 16:58:01,TXT_2_IMG,PENDING,,G0,0\n")
    with pytest.raises(InputError, match="a request that has not ended"):
        read_workload(file)


@needs_traces
def test_the_published_requests():
    workload = read_workload(TRACES / "alibaba-genai-v2026/lora_request_trace.csv.gz")
    assert len(workload.jobs) + sum(one.count for one in workload.skipped) == 26_823
    assert len(workload.jobs) == 26_790
    assert workload.jobs[-1].submit_ms > 20 * 86_400_000
