"""Reasons as small integers, for the JOB_REASON column; `REASONS[i]` is the code that people see."""

from typing import Final

from clearway.model.plan import ReasonCode

REASONS: Final = tuple(ReasonCode)

PLACED: Final = -1
"""Not a reason: the job was placed."""

REASON_PRIORITY: Final = REASONS.index(ReasonCode.PRIORITY)
REASON_RESOURCES: Final = REASONS.index(ReasonCode.RESOURCES)
REASON_FRAGMENTATION: Final = REASONS.index(ReasonCode.FRAGMENTATION)
REASON_TOPOLOGY: Final = REASONS.index(ReasonCode.TOPOLOGY)
REASON_NEIGHBOURS: Final = REASONS.index(ReasonCode.NEIGHBOURS)
REASON_DEPENDENCY: Final = REASONS.index(ReasonCode.DEPENDENCY)
REASON_DEPENDENCY_NEVER: Final = REASONS.index(ReasonCode.DEPENDENCY_NEVER)
REASON_BEGIN_TIME: Final = REASONS.index(ReasonCode.BEGIN_TIME)
REASON_HELD: Final = REASONS.index(ReasonCode.HELD)
REASON_ARRAY_LIMIT: Final = REASONS.index(ReasonCode.ARRAY_LIMIT)
REASON_QUOTA: Final = REASONS.index(ReasonCode.QUOTA)
REASON_QUEUE_LIMIT: Final = REASONS.index(ReasonCode.QUEUE_LIMIT)
REASON_QUEUE_JOB_LIMIT: Final = REASONS.index(ReasonCode.QUEUE_JOB_LIMIT)
REASON_RESERVED: Final = REASONS.index(ReasonCode.RESERVED)
REASON_HEADROOM: Final = REASONS.index(ReasonCode.HEADROOM)
REASON_POWER: Final = REASONS.index(ReasonCode.POWER)
REASON_NEVER_FITS: Final = REASONS.index(ReasonCode.NEVER_FITS)
REASON_CYCLE_CUT: Final = REASONS.index(ReasonCode.CYCLE_CUT)
