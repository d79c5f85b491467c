"""The policies that people name on the command line. Each is a set of numbers on one decision cycle."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final

from clearway.engine.policy import (
    Backfill,
    Elasticity,
    Headroom,
    Placement,
    Policy,
    Preemption,
    PreemptMode,
    RuntimeSource,
)
from clearway.model.errors import InputError
from clearway.model.units import MINUTE_MS
from clearway.policies.orders import (
    BoundedSlowdown,
    EarliestDeadline,
    Fifo,
    Gittins,
    LeastAttained,
    Multifactor,
    RuntimeKnowledge,
    Shortest,
)

CONSERVATIVE_DEPTH: Final = 1_000
"""Reservations of conservative backfill. Each costs a look at the profile of free devices per cycle; jobs further back
than a thousand places are not delayed noticeably by what passes them, since all that passes fits before the others."""

EASY: Final = Backfill(reservation_depth=1)
"""Also in the default profile: in single replays of parts of hpc2n, Lublin, Philly and RICC, made while it was tuned,
deeper plans were better here and worse there by a few per cent, and took several times as long."""
HEADROOM_CLUSTER_MIN: Final = 64
"""Eight machines of eight. Below it a burst of some tens of tasks has a forecast that is larger than the cluster."""

FIRST_FIT: Final = Backfill(reservation_depth=0)
"""For policies that preempt by order: whoever is first takes devices from those behind, so none need be kept."""


def _fifo() -> Policy:
    """First come, first served, strictly: nothing passes the first job that cannot start."""
    return Policy(name="fifo", order=Fifo(), backfill=Backfill(strict=True, reservation_depth=0))


def _easy() -> Policy:
    """First come, first served; later jobs fill holes if they do not delay the first waiting one (EASY)."""
    return Policy(name="easy", order=Fifo(), backfill=EASY)


def _conservative() -> Policy:
    """First come, first served; later jobs fill holes if they delay none of the first thousand waiting ones."""
    return Policy(name="conservative", order=Fifo(), backfill=Backfill(reservation_depth=CONSERVATIVE_DEPTH))


def _sjf() -> Policy:
    """Shortest job first by the users' estimates, with EASY backfill; no preemption."""
    return Policy(name="sjf", order=Shortest(), backfill=EASY)


def _srpt() -> Policy:
    """Shortest remaining time first by the true run times, preempting at once: a yardstick that only the twin has."""
    return Policy(
        name="srpt",
        order=Shortest(by=RuntimeKnowledge.ORACLE, remaining=True),
        runtime=RuntimeSource.ORACLE,
        backfill=FIRST_FIT,
        preemption=Preemption(mode=PreemptMode.ORDER, protection_ms=0),
    )


def _las() -> Policy:
    """Least attained device-time first, preempting; needs no run times (Tiresias)."""
    return Policy(
        name="las",
        order=LeastAttained(),
        runtime=RuntimeSource.LIMIT,
        backfill=FIRST_FIT,
        preemption=Preemption(mode=PreemptMode.ORDER),
    )


def _gittins() -> Policy:
    """Best odds of finishing soon first, from the run times of finished jobs, preempting (Gittins index)."""
    return Policy(
        name="gittins",
        order=Gittins(),
        runtime=RuntimeSource.LIMIT,
        backfill=FIRST_FIT,
        preemption=Preemption(mode=PreemptMode.ORDER),
    )


def _multifactor() -> Policy:
    """Weighted sum of age, size, fair share, queue, QOS and job priority with EASY backfill, as Slurm's default."""
    return Policy(name="multifactor", order=Multifactor(), backfill=EASY)


def _deadline() -> Policy:
    """Earliest deadline first, then first come, first served, with EASY backfill."""
    return Policy(name="deadline", order=EarliestDeadline(), backfill=EASY)


def _clearway() -> Policy:
    """The default: due by predicted work and share, with backfill, resizing, headroom, reclaim and topology."""
    return Policy(
        name="clearway",
        order=BoundedSlowdown(),
        runtime=RuntimeSource.PREDICTED,
        placement=Placement(pack=1.0, fragmentation=1.0),
        backfill=EASY,
        preemption=Preemption(mode=PreemptMode.PRIORITY, protection_ms=10 * MINUTE_MS),
        elasticity=Elasticity(enabled=True),
        headroom=Headroom(enabled=True, cluster_min=HEADROOM_CLUSTER_MIN),
    )


_MAKERS: Final[Mapping[str, Callable[[], Policy]]] = {
    "fifo": _fifo,
    "easy": _easy,
    "conservative": _conservative,
    "sjf": _sjf,
    "srpt": _srpt,
    "las": _las,
    "gittins": _gittins,
    "multifactor": _multifactor,
    "deadline": _deadline,
    "clearway": _clearway,
}

POLICY_NAMES: Final = tuple(_MAKERS)

POLICY_SUMMARIES: Final[Mapping[str, str]] = {name: (maker.__doc__ or "").strip() for name, maker in _MAKERS.items()}
"""One line about each."""


def named_policy(name: str) -> Policy:
    """The policy of that name. InputError when there is none."""
    maker = _MAKERS.get(name)
    if maker is None:
        nearest = get_close_matches(name, POLICY_NAMES, n=1)
        hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
        raise InputError(f"policy: expected one of {', '.join(POLICY_NAMES)}, found {name!r}{hint}")
    return maker()
