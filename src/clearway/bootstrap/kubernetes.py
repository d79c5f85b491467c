"""The composition of a control plane that schedules a Kubernetes cluster: what differs from one of this machine.

The store is the same, and needed: the API server knows where pods lie, the journal what was decided about them.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from clearway.adapters.kubernetes.backend import KubernetesBackend
from clearway.adapters.kubernetes.intake import Intake
from clearway.engine.policy import Elasticity, Policy
from clearway.ports.control import Control
from clearway.ports.storage import JOBS_PER_PAGE_MAX, JobQuery, Store
from clearway.ports.views import JobState, JobView

WAITING: Final = (JobState.PENDING, JobState.REQUEUE_HOLD)


def fit_policy(policy: Policy) -> Policy:
    """The policy without what pods cannot do: they can be started and evicted, not moved, shrunk, grown or frozen."""
    preemption = replace(policy.preemption, migrate=False, shrink=False, suspend=False)
    return replace(policy, preemption=preemption, elasticity=Elasticity())


def begin_intake(backend: KubernetesBackend, control: Control, store: Store) -> None:
    """Give waiting jobs of before their pods back, and take what comes from now on. The control plane is ready."""
    tenants = {tenant.name for tenant in control.cluster().tenants}
    views = list(_find_waiting(store))
    runs = store.read_runs([view.id for view in views])
    with backend.lock:
        for view in views:
            if view.id not in backend.book.jobs and runs[view.id].origin:
                backend.book.restore(backend.now_ms, view.id, runs[view.id].origin, view.replicas, view.message)
    Intake(backend, control, tenants).begin()


def _find_waiting(store: Store) -> Iterator[JobView]:
    """Every job that waits, page by page."""
    query = JobQuery(states=WAITING, limit=JOBS_PER_PAGE_MAX)
    while page := store.reader.find_jobs(query):
        yield from page
        query = replace(query, after=page[-1].id)
