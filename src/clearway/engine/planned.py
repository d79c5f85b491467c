"""The run time that planning assumes for a job, from the source that the policy names, capped by the limit."""

from typing import TYPE_CHECKING

from clearway.engine.policy import RuntimeSource
from clearway.engine.rows import or_forever
from clearway.model.jobs import JobSpec

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState


def planned_run_ms(state: "ClusterState", spec: JobSpec) -> int:
    """Assumed run time in ms, at least 1; FOREVER_MS when neither source nor limit says anything."""
    limit = or_forever(spec.limit_ms)
    if spec.limit_ms is None:
        default = state.accounts.queue_specs[state.accounts.queue(spec.queue)].limit_default_ms
        limit = or_forever(default)
    source = state.policy.runtime
    guess: int | None = None
    if source is RuntimeSource.ESTIMATE:
        guess = spec.estimate_ms
    elif source is RuntimeSource.PREDICTED and state.run_times is not None:
        guess = state.run_times.predict_ms(spec, state.policy.runtime_quantile)
        guess = spec.estimate_ms if guess is None else guess
    elif source is RuntimeSource.ORACLE:
        guess = spec.oracle_ms
    return max(min(or_forever(guess), limit), 1)
