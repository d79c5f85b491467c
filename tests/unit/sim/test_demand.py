from clearway.forecast.demand import BIN_MS
from clearway.model.ids import JobId
from clearway.model.jobs import JobKind, JobSpec, Request
from clearway.sim.demand import forecast_demand
from clearway.sim.workload import TraceJob


def make_arrivals(times_ms, kind=JobKind.TASK, devices=1):
    return [
        TraceJob(JobSpec(id=JobId(number), request=Request(devices=devices), kind=kind), submit_ms, 60_000)
        for number, submit_ms in enumerate(times_ms, start=1)
    ]


STEADY = make_arrivals(range(0, 100 * BIN_MS, BIN_MS // 8))


def test_training_alone_needs_no_forecast():
    assert forecast_demand(make_arrivals(range(0, 10 * BIN_MS, BIN_MS), kind=JobKind.TRAIN)) == []


def test_one_forecast_comes_at_the_end_of_each_bin():
    times = [forecast.at_ms for forecast in forecast_demand(STEADY)]
    assert times == [BIN_MS * number for number in range(1, 100)]


def test_a_steady_stream_is_forecast_with_room_to_spare():
    last = forecast_demand(STEADY)[-1]
    assert 8 < last.devices < 24


def test_a_forecast_does_not_know_what_comes_after_it():
    burst = make_arrivals([*range(0, 50 * BIN_MS, BIN_MS // 8), *[50 * BIN_MS + 1] * 1_000, 51 * BIN_MS])
    calm = forecast_demand(STEADY)
    assert forecast_demand(burst)[:50] == calm[:50]
    assert forecast_demand(burst)[50].devices > calm[50].devices


def test_larger_jobs_need_more_devices():
    large = make_arrivals(range(0, 100 * BIN_MS, BIN_MS // 8), devices=4)
    assert forecast_demand(large)[-1].devices > 2 * forecast_demand(STEADY)[-1].devices


def test_a_silence_is_forecast_through():
    quiet = make_arrivals([0, 1, 2, 40 * BIN_MS])
    assert [forecast.devices for forecast in forecast_demand(quiet)][-1] == 0
