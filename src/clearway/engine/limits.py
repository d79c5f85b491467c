"""Limits of queue and quota of tenant together, as asked outside of the scan."""

from typing import Final

from clearway.engine.quota import QUEUE_OPEN, QUEUE_REFUSES_RUNNING, queue_refusal, tenant_available
from clearway.engine.state import ClusterState
from clearway.engine.tables import JOB_QUEUE, JOB_TENANT
from clearway.model.jobs import JobKind
from clearway.model.units import MILLI

PROTECTED_KINDS: Final = (JobKind.SERVICE, JobKind.TASK, JobKind.INTERACTIVE)
"""Kinds for which headroom is held."""


def headroom_milli(state: ClusterState) -> int:
    """Device thousandths held back for services, tasks and interactive jobs (step 9): the forecast, at least the
    policy's minimum; 0 where the policy holds none."""
    headroom = state.policy.headroom
    if not headroom.enabled:
        return 0
    forecast = state.forecast_devices if state.forecast_until_ms > state.now_ms else 0
    return MILLI * max(headroom.devices_min, forecast)


def within_limits(state: ClusterState, row: int, milli: int, *, starts: bool = True) -> bool:
    """Whether the job of `row` may hold `milli` more. starts: it is one more running job of its queue."""
    table = state.rows.table
    refusal = queue_refusal(state.accounts.queues, int(table[JOB_QUEUE, row]), milli)
    if refusal != QUEUE_OPEN and (starts or refusal != QUEUE_REFUSES_RUNNING):
        return False
    return bool(tenant_available(state.accounts.tenants, int(table[JOB_TENANT, row])) >= milli)
