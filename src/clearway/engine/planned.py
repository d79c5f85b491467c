"""The run time that planning assumes for a job, from the source that the policy names, capped by the limit."""

from typing import TYPE_CHECKING

from clearway.engine.policy import RuntimeSource
from clearway.engine.rows import or_forever
from clearway.model.jobs import JobSpec

if TYPE_CHECKING:
    from clearway.engine.state import ClusterState

# A name of this module is found eight times as fast as a member of an enumeration.
_ESTIMATE, _PREDICTED, _ORACLE = RuntimeSource.ESTIMATE, RuntimeSource.PREDICTED, RuntimeSource.ORACLE


def planned_run_ms(state: "ClusterState", spec: JobSpec) -> int:
    """Assumed run time in ms, at least 1; FOREVER_MS when neither source nor limit says anything."""
    limit = spec.limit_ms
    if limit is None:
        limit = or_forever(state.accounts.queue_specs[state.accounts.queue(spec.queue)].limit_default_ms)
    source = state.policy.runtime
    guess: int | None = None
    if source is _ESTIMATE:
        guess = spec.estimate_ms
    elif source is _PREDICTED and state.run_times is not None:
        guess = state.run_times.predict_ms(spec, state.policy.runtime_quantile)
        guess = spec.estimate_ms if guess is None else guess
    elif source is _ORACLE:
        guess = spec.oracle_ms
    return max(limit if guess is None else min(guess, limit), 1)
