"""The example of Ghodsi et al., "Dominant Resource Fairness" (NSDI 2011), section 4.1.

9 CPUs and 18 GB; each task of A needs 1 CPU and 4 GB, each of B 3 CPUs and 1 GB. DRF gives A three tasks and B two:
both then have a dominant share of 2/3 (A 12 of 18 GB, B 6 of 9 CPUs).
"""

from dataclasses import replace

from clearway.engine.policy import FairShare
from clearway.kernel import Kernel
from clearway.model.cluster import NodeSpec
from clearway.model.events import NodeAdded
from clearway.model.units import GIB
from support.engine import FIRST_FIT, started, submit

TASK_OF_A = {"devices": 0, "cpu_milli": 1_000, "memory_bytes": 4 * GIB, "tenant": "a"}
TASK_OF_B = {"devices": 0, "cpu_milli": 3_000, "memory_bytes": 1 * GIB, "tenant": "b"}


def tasks_by_tenant(*, dominant):
    kernel = Kernel(replace(FIRST_FIT, fair_share=FairShare(dominant=dominant)))
    kernel.handle(NodeAdded(0, NodeSpec(name="n1", cpu_milli=9_000, memory_bytes=18 * GIB)))
    commands = submit(kernel, *[TASK_OF_A] * 10, *[TASK_OF_B] * 10)
    tenants = [kernel.state.jobs[start.job].spec.tenant for start in started(commands)]
    return tenants.count("a"), tenants.count("b")


def test_tenants_get_three_and_two_tasks():
    assert tasks_by_tenant(dominant=True) == (3, 2)


def test_without_it_the_first_tenant_takes_what_it_can():
    """Four tasks of A leave 5 CPUs and 2 GB, enough for one of B."""
    assert tasks_by_tenant(dominant=False) == (4, 1)


def test_a_tenant_that_holds_more_waits_for_the_other():
    kernel = Kernel(replace(FIRST_FIT, fair_share=FairShare(dominant=True)))
    kernel.handle(NodeAdded(0, NodeSpec(name="n1", cpu_milli=9_000, memory_bytes=18 * GIB)))
    submit(kernel, *[TASK_OF_A] * 2)
    commands = submit(kernel, *[TASK_OF_A] * 10, *[TASK_OF_B] * 10)
    tenants = [kernel.state.jobs[start.job].spec.tenant for start in started(commands)]
    assert tenants[:2] == ["b", "b"]
    assert tenants.count("a") == 1
