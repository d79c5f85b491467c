"""The list of running jobs, which is sorted only when somebody asks for it."""

import numpy as np

from clearway.engine.tables import JOB_END_MS, JOB_HELD
from clearway.model.events import JobSubmitted
from support.engine import add_nodes, finish, make_job, make_kernel


def expected_rows(state):
    table = state.rows.table[:, : state.rows.count]
    rows = np.flatnonzero(table[JOB_HELD] > 0)
    return rows[np.lexsort((rows, table[JOB_END_MS, rows]))].tolist()


def test_running_jobs_stand_by_expected_end_however_many_came_and_went():
    draw = np.random.default_rng(3)
    kernel = make_kernel()
    add_nodes(kernel, 20, 8)
    running = []
    for at_ms in range(1, 1_200):
        kernel.handle(JobSubmitted(at_ms, make_job(at_ms, limit_ms=int(draw.integers(1, 50)) * 1_000)))
        running = [job for job, record in kernel.state.jobs.items() if record.allocation is not None]
        while len(running) > 100 or (running and draw.random() < 0.4):
            job = running.pop(int(draw.integers(len(running))))
            finish(kernel, job, at_ms=at_ms)
        if at_ms % 97 == 0:
            assert kernel.state.holding_rows().tolist() == expected_rows(kernel.state)
            assert kernel.state.has_running == bool(running)
    for job in running:
        finish(kernel, job, at_ms=2_000)
    assert not kernel.state.has_running
    assert kernel.state.holding_rows().tolist() == []
