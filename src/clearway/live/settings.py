"""What may be set of a control plane."""

from dataclasses import dataclass

from clearway.live.guard import DEFAULT_GUARD, GuardSettings
from clearway.model.units import SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlSettings:
    """requests_max: requests that may wait. retry_ms: first wait after the storage failed, doubled up to retry_max_ms.
    reasons_ms: how often rows of waiting jobs get their present reasons, reasons_max of them at a time. paces_starts:
    whether starts wait on nodes that are not proven (`clearway.live.pacing`); not where a start takes minutes."""

    guard: GuardSettings = DEFAULT_GUARD
    requests_max: int = 100_000
    retry_ms: int = 50
    retry_max_ms: int = 5 * SECOND_MS
    reasons_ms: int = SECOND_MS
    reasons_max: int = 2_000
    paces_starts: bool = True
