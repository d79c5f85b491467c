import json

import pytest

from clearway.model.errors import InputError
from clearway.sim.profiles import find_speed_model
from clearway.sim.traces import detect_format, read_workload
from support.files import write_lines

TABLE = {
    "v100": {"('A (batch size 1)', 1)": {"null": 10.0}, "('A (batch size 1)', 2)": {"null": 16.0}},
    "k80": {"('A (batch size 1)', 1)": {"null": 2.0}},
}
MSR = "A (batch size 1)\tcd %s && python3 t.py\t-n\t1\t{steps}\t{arrival}\t{workers}"
PHYSICAL = "A (batch size 1)\tpython3 t.py\tdir\t-n\t1\t{steps}\t{workers}\t1\t-1.000000\t{arrival}"


@pytest.mark.parametrize("layout", [MSR, PHYSICAL])
def test_gavel_run_times_are_steps_over_the_reference_throughput(tmp_path, layout):
    write_lines(tmp_path / "simulation_throughputs.json", json.dumps(TABLE))
    path = write_lines(
        tmp_path / "traces" / "t.trace",
        layout.format(steps=1000, arrival="5.000000", workers=1),
        layout.format(steps=1000, arrival="2.000000", workers=4),
        layout.format(steps=1000, arrival="2.000000", workers=0),
        layout.format(steps=1000, arrival="2.000000", workers=1).replace("A (", "B ("),
        "one column",
    )
    workload = read_workload(path)
    assert detect_format(path) == "gavel"
    assert [(job.submit_ms, job.run_ms, job.spec.replicas) for job in workload.jobs] == [
        (0, 31_250, 4), (3_000, 100_000, 1),
    ]  # fmt: skip
    assert [part.lines for part in workload.skipped] == [(3,), (4,), (5,)]
    assert find_speed_model(path).speed(workload.jobs[1].profile, "K80", 1, 1) == pytest.approx(0.2)


def test_gavel_without_its_table_is_an_error_that_says_where_to_put_it(tmp_path):
    path = write_lines(tmp_path / "t.trace", MSR.format(steps=10, arrival="0.0", workers=1))
    with pytest.raises(InputError, match=r"simulation_throughputs\.json"):
        read_workload(path)


def pollux(folder, *rows):
    write_lines(
        folder / "profiles" / "bert" / "placements.csv",
        "placement,local_bsz,step_time,sync_time",
        "1,4,1.0,0.0",
        "1,12,2.0,0.0",
        "2,4,1.5,0.5",
        "2,12,2.5,0.5",
    )
    return write_lines(folder / "workloads" / "w.csv", "name,time,application,num_replicas,batch_size", *rows)


def test_pollux_jobs_are_elastic_and_take_their_iterations_times_the_step(tmp_path):
    path = pollux(tmp_path, "bert-0,10,bert,1,12", "bert-1,12.5,bert,2,12", "x-2,13,gpt,1,12", "b-3,13,bert,0,12")
    workload = read_workload(path)
    first, second = workload.jobs
    assert detect_format(path) == "pollux"
    assert first.run_ms == 14774 * 2_000
    assert second.run_ms == pytest.approx(14774 * 1_750)
    assert second.submit_ms == 2_500
    assert (first.spec.elastic.replicas_min, first.spec.elastic.replicas_max) == (1, 3)
    assert dict(first.spec.elastic.speedup)[2] == pytest.approx(2.0 / 1.75)
    assert [part.lines for part in workload.skipped] == [(4,), (5,)]


def test_pollux_without_profiles_is_an_error(tmp_path):
    path = write_lines(tmp_path / "w.csv", "name,time,application,num_replicas,batch_size", "b-0,10,bert,1,12")
    with pytest.raises(InputError, match="`profiles`"):
        read_workload(path, format="sia")
