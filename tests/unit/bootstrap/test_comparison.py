import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clearway.bootstrap.comparison import COMPARED, figures_of, make_comparison_request, run_comparison, value_of
from clearway.bootstrap.simulation import SimulationRequest
from support.servers import poll

BASE = SimulationRequest(trace="synthetic:philly-like?jobs=60&load=1.2&devices=16", policy="", cluster="2x8")


def compare(policies, seeds, processes=1, progress=None):
    request = make_comparison_request(BASE, policies=policies, seeds=seeds, processes=processes)
    return run_comparison(request, progress)


def figure_of(comparison, policy, key):
    row = comparison.request.policies.index(policy)
    return comparison.figures[row][[metric.key for metric in COMPARED].index(key)]


@pytest.fixture(scope="module")
def comparison():
    return compare("fifo,easy", seeds=3)


def test_runs_stand_by_policy_and_then_by_seed(comparison):
    assert [[(run.result.policy, run.result.seed) for run in runs] for runs in comparison.runs] == [
        [("fifo", 0), ("fifo", 1), ("fifo", 2)],
        [("easy", 0), ("easy", 1), ("easy", 2)],
    ]


def test_figures_are_mean_and_sample_deviation_over_seeds(comparison):
    metric = next(metric for metric in COMPARED if metric.key == "wait_mean_s")
    waits = [value_of(run, metric) for run in comparison.runs[0]]
    mean = sum(waits) / 3
    figure = figure_of(comparison, "fifo", "wait_mean_s")
    assert figure.mean == pytest.approx(mean)
    assert figure.deviation == pytest.approx((sum((wait - mean) ** 2 for wait in waits) / 2) ** 0.5)


def test_a_limit_is_the_mean_over_the_seeds_like_the_figures_above_it(comparison):
    bounds = [run.bounds for run in comparison.runs[0]]
    assert len({bound.makespan_s for bound in bounds}) == 3
    for key, limit in comparison.limits.items():
        assert limit == pytest.approx(sum(getattr(bound, key) for bound in bounds) / 3)


def test_the_smaller_wait_is_the_better_one(comparison):
    fifo, easy = (figure_of(comparison, policy, "wait_mean_s") for policy in ("fifo", "easy"))
    assert easy.mean < fifo.mean
    assert (fifo.is_best, easy.is_best) == (False, True)


def test_where_all_are_equal_none_is_best(comparison):
    assert not any(figure_of(comparison, policy, "jobs_finished").is_best for policy in ("fifo", "easy"))


def test_an_allocation_beyond_its_bound_is_not_the_best(comparison):
    fifo, easy = comparison.runs[0][:1], comparison.runs[1][:1]
    wasteful = [replace(fifo[0], bounds=replace(fifo[0].bounds, device_allocation_ratio=0.0))]
    place = [metric.key for metric in COMPARED].index("device_allocation_ratio")
    best = [row[place].is_best for row in figures_of([wasteful, easy])]
    assert best == [False, False], "the one is beyond its bound, the other alone and equal to itself"
    assert figures_of([wasteful, wasteful])[0][place].is_best is False


def test_other_processes_give_the_same_decisions(comparison):
    apart = compare("fifo,easy", seeds=1, processes=2)
    digests = [runs[0].result.decisions_digest for runs in comparison.runs]
    assert [runs[0].result.decisions_digest for runs in apart.runs] == digests


FAMILY = """
import multiprocessing, os, signal, time
from clearway.bootstrap.comparison import follow_parent

def work(told):
    follow_parent()
    os.kill(os.getpid(), signal.SIGINT)
    told.send(os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    hears, told = multiprocessing.Pipe(duplex=False)
    multiprocessing.get_context("spawn").Process(target=work, args=(told,)).start()
    print(hears.recv(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_for_runs_leaves_interrupts_to_its_parent_and_ends_with_it_even_if_that_is_killed(tmp_path):
    script = tmp_path / "family.py"
    script.write_text(FAMILY, encoding="utf-8")
    parent = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert parent.returncode == -signal.SIGKILL
    child = Path(f"/proc/{parent.stdout.strip()}/cmdline")
    poll(lambda: not (child.exists() and child.read_bytes()), what="the process has ended")


def test_progress_counts_every_run():
    told = []
    compare("fifo", seeds=2, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2), (2, 2)]


def test_seeds_are_dropped_where_nothing_is_drawn():
    base = SimulationRequest(trace="log.swf", policy="")
    assert make_comparison_request(base, policies="fifo", seeds=5, processes=None).seeds == (0,)


def test_seeds_count_from_the_given_one_where_failures_are_drawn():
    base = SimulationRequest(trace="log.swf", policy="", faults="default", seed=7)
    assert make_comparison_request(base, policies="fifo", seeds=3, processes=None).seeds == (7, 8, 9)


def test_seeds_count_where_a_file_that_is_recognised_gives_rates_from_which_requests_are_drawn(tmp_path):
    rates = tmp_path / "rates.csv"
    rates.write_text("client,window_start_s,rate_rps,cv,arrival_model,param1,param2\n0,0,0.8,0.6,Gamma,3.1,0.4\n")
    base = SimulationRequest(trace=str(rates), policy="")
    assert make_comparison_request(base, policies="fifo", seeds=2, processes=None).seeds == (0, 1)
