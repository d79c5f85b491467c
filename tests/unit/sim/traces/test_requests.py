import json
from pathlib import Path

import numpy as np
import pytest

from clearway.model.jobs import JobKind
from clearway.sim.traces import detect_format, read_workload
from clearway.sim.traces.requests import ServiceTime, read_azure
from support.files import write_lines

RATES = "client,window_start_s,rate_rps,cv,arrival_model,param1,param2"


def test_azure_requests_become_tasks_whose_time_comes_from_tokens(tmp_path):
    path = write_lines(
        tmp_path / "a.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:17:03.9799600,1000,10",
        "2023-11-16 18:17:04.0319600,-1,8",
        "2023-11-16 18:17:04.1799600,0,0",
    )
    workload = read_azure(path, service=ServiceTime(overhead_ms=5, prefill_ms_per_token=0.1, decode_ms_per_token=20))
    assert detect_format(path) == "azure-llm"
    assert [(job.submit_ms, job.run_ms, job.spec.kind) for job in workload.jobs] == [
        (0, 305, JobKind.TASK),
        (200, 5, JobKind.TASK),
    ]
    assert workload.skipped[0].lines == (3,)


def test_mooncake_lines_that_are_no_requests_are_counted(tmp_path):
    good = {"timestamp": 30, "input_length": 100, "output_length": 2, "hash_ids": [1, 2]}
    odd = ("[1, 2]", "{", "[" * 100_000, '{"timestamp": 1e400, "input_length": 1, "output_length": 1}')
    path = write_lines(tmp_path / "m.jsonl", json.dumps(good), *odd, json.dumps({**good, "timestamp": 50}))
    workload = read_workload(path)
    assert detect_format(path) == "mooncake"
    assert [job.submit_ms for job in workload.jobs] == [0, 20]
    assert workload.skipped[0].lines == (2, 3, 4, 5)


def servegen(folder: Path):
    return write_lines(
        folder / "x_client_rates.csv",
        RATES,
        "0,0,0.5,1,Gamma,2.0,1.0",
        "1,0,0.5,1,Weibull,1.5,2.0",
        "0,600,0.2,1,,0,0",
        "1,600,0,0,,0,0",
        "2,600,1,1,Pareto,1,1",
    )


def test_servegen_draws_the_same_requests_from_the_same_seed(tmp_path):
    path = servegen(tmp_path)
    first, again, other = (read_workload(path, seed=seed) for seed in (1, 1, 2))
    assert detect_format(path) == "servegen"
    assert first.jobs == again.jobs
    assert first.jobs != other.jobs
    assert first.skipped[0].lines == (6,)
    assert 450 < len(first.jobs) < 1000
    assert all(before.submit_ms <= after.submit_ms for before, after in zip(first.jobs, first.jobs[1:], strict=False))


def test_servegen_stops_at_the_limit(tmp_path):
    assert len(read_workload(servegen(tmp_path), limit=10).jobs) == 10


def test_servegen_tells_how_many_requests_are_drawn(tmp_path):
    told = []
    read_workload(servegen(tmp_path), limit=100, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (100, 100), "drawn, of those wanted; before that bytes of the file"


def test_many_service_times_at_once_are_those_one_by_one():
    service, tokens = ServiceTime(), np.arange(0, 3_000, 7)
    at_once = service.runs_ms(tokens, tokens[::-1])
    assert at_once.tolist() == [
        service.run_ms(*pair) for pair in zip(tokens.tolist(), tokens[::-1].tolist(), strict=True)
    ]


def test_servegen_uses_the_token_distributions_beside_it(tmp_path):
    path = servegen(tmp_path)
    text = json.dumps({"0": {"input_tokens": "{100: 1.0}", "output_tokens": "{1: 0.5, 2: 0.5}"}})
    write_lines(tmp_path / "token_distributions" / "x_client0.json", text)
    assert {job.run_ms for job in read_workload(path).jobs} == {46, 76}


@pytest.mark.parametrize(("prompt", "output", "expected"), [(0, 0, 10), (1500, 0, 108), (0, 10, 310)])
def test_the_built_in_service_times(prompt, output, expected):
    assert ServiceTime().run_ms(prompt, output) == expected
