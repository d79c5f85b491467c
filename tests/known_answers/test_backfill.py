"""Schedules worked out by hand on one node of four devices. Times in minutes; `A 3×10` is 3 devices for 10 minutes."""

from clearway.kernel import Kernel
from clearway.model.jobs import Request
from clearway.model.units import MINUTE_MS
from clearway.policies.named import named_policy
from clearway.sim.twin import run_twin
from support.worlds import make_cluster, make_trace_job, make_workload


def starts(policy, *jobs):
    """Start minutes of jobs (submit, devices, minutes), whose users know how long they run."""
    workload = make_workload(
        *(
            make_trace_job(
                number,
                submit_ms=submit * MINUTE_MS,
                run_ms=minutes * MINUTE_MS,
                estimate_ms=minutes * MINUTE_MS,
                request=Request(devices=devices),
            )
            for number, (submit, devices, minutes) in enumerate(jobs, start=1)
        )
    )
    result = run_twin(Kernel(named_policy(policy)), workload, make_cluster(nodes=1, devices=4))
    return (result.jobs.start_ms // MINUTE_MS).tolist()


FILLS_A_HOLE = [(0, 3, 10), (1, 4, 10), (2, 1, 5), (3, 1, 20)]
"""A 3×10, B 4×10, C 1×5, D 1×20."""


def test_fifo_lets_a_short_job_wait_behind_a_wide_one():
    """A 0–10, B 10–20 on all four, then C and D at 20 though a device was idle from 0 to 10."""
    assert starts("fifo", *FILLS_A_HOLE) == [0, 10, 20, 20]


def test_easy_fills_the_hole_that_fifo_leaves_and_does_not_delay_the_first():
    """C runs 2–7, before B's start at 10; D would run until 23 on a device that B needs, so it waits until 20."""
    assert starts("easy", *FILLS_A_HOLE) == [0, 10, 2, 20]


DELAYS_THE_SECOND = [(0, 2, 10), (1, 3, 10), (2, 4, 10), (3, 1, 30)]
"""A 2×10, B 3×10, C 4×10, D 1×30."""


def test_easy_delays_the_second_waiting_job():
    """At 3 D takes the device that B leaves over, until 33. B starts at 10; C needs all four, so not before 33."""
    assert starts("easy", *DELAYS_THE_SECOND) == [0, 10, 33, 3]


def test_conservative_delays_no_waiting_job():
    """C is planned for 20–30 on all four; D would be in its way whenever it began before, so it starts at 30."""
    assert starts("conservative", *DELAYS_THE_SECOND) == [0, 10, 20, 30]
