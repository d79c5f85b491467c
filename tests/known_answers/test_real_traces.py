"""Summaries of real traces under several policies, kept as golden files: what changes schedules shows in the diff.

The traces are cut so that all of this takes about a minute; `bench/` runs them whole.
"""

from dataclasses import replace

import pytest

from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.model.units import DAY_MS, HOUR_MS
from clearway.policies.named import named_policy
from clearway.sim.metrics import compute_metrics
from clearway.sim.traces import read_cluster, read_workload
from clearway.sim.twin import run_twin
from clearway.wire.cluster import parse_cluster_short
from support.shared import SHARED, needs_traces

TRACES = SHARED / "traces"
PHILLY = TRACES / "philly" / "philly_jobs_13vc.csv.gz"
RICC = TRACES / "swf" / "RICC-2010-2.swf.gz"
OPENB = TRACES / "alibaba-gpu-v2023"
OPENB_BUSY_MS = 2_800 * HOUR_MS
"""Before this, the pods that are left of openb come one by one."""
OPENB_DENSER = 64
"""Of openb, pods of 65 devices are there at once at most; so much closer together, they fill tens of nodes."""


def read_crowded_openb():
    """Pods of a day at most on each fortieth node: they wait, which on the whole inventory none does."""
    whole = read_workload(OPENB / "openb_pod_list_default.csv.gz", limit=3_000)
    busy = [job for job in whole.jobs if job.submit_ms >= OPENB_BUSY_MS and job.run_ms <= DAY_MS]
    first_ms = busy[0].submit_ms
    pods = [replace(job, submit_ms=(job.submit_ms - first_ms) // OPENB_DENSER) for job in busy]
    cluster = read_cluster(OPENB / "openb_node_list_gpu_node.csv")
    return replace(whole, jobs=pods), replace(cluster, nodes=cluster.nodes[::40])


def summarise(workload, cluster, policy):
    """The figures that a reader would compare, as lines of text."""
    result = run_twin(Kernel(named_policy(policy), RuntimeHistory()), workload, cluster)
    metrics = compute_metrics(result)
    return "\n".join(
        [
            f"policy {policy}",
            f"jobs finished {metrics.jobs_finished} of {metrics.jobs_total}",
            f"wait mean {metrics.wait_s.mean:.0f} s, p50 {metrics.wait_s.p50:.0f} s, p99 {metrics.wait_s.p99:.0f} s",
            f"completion mean {metrics.jct_s.mean:.0f} s, p99 {metrics.jct_s.p99:.0f} s",
            f"makespan {metrics.makespan_s:.0f} s, allocation {metrics.device_allocation_ratio:.4f}",
            f"fragmentation {metrics.fragmentation_ratio:.4f}",
            f"preemptions {metrics.preemptions}, lost {metrics.lost_device_s:.0f} device-seconds",
        ]
    )


@needs_traces
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "easy", "sjf", "clearway"])
def test_philly_gives_the_accepted_summary(golden, policy):
    workload = read_workload(PHILLY, limit=4_000)
    golden(f"traces/philly-{policy}", summarise(workload, parse_cluster_short("40x8"), policy))


@needs_traces
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fifo", "easy", "clearway"])
def test_ricc_gives_the_accepted_summary(golden, policy):
    workload = read_workload(RICC, limit=6_000)
    golden(f"traces/ricc-{policy}", summarise(workload, parse_cluster_short("1024x8"), policy))


@needs_traces
@pytest.mark.slow
@pytest.mark.parametrize("policy", ["easy", "clearway"])
def test_crowded_openb_gives_the_accepted_summary(golden, policy):
    workload, cluster = read_crowded_openb()
    golden(f"traces/openb-{policy}", summarise(workload, cluster, policy))
