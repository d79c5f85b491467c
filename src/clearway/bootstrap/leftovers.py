"""Queues and tenants that are in force though the configuration names them no more.

What is in force is what the journal says, not what the file said before: it may have changed while nobody ran.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from clearway.model.errors import InputError
from clearway.model.ids import ROOT_TENANT, TenantName
from clearway.ports.control import Control, Removed
from clearway.ports.views import ClusterView, TenantView
from clearway.wire.config import Config

ACTOR: Final = "clearway"
"""In whose name a start removes what the file names no more."""

Await = Callable[["Future[None]"], None]
"""Waits for an answer; raises what it says."""


def find_leftovers(
    cluster: ClusterView, config: Config, *, named_before: Iterable[TenantName] | None = None
) -> Removed:
    """What is in force and has no place in the configuration; tenants below others last.

    named_before: where tenants come to be by themselves, as of namespaces: those that a file named; others of which
    nothing is set are left alone. None = all come from files.
    """
    queues = {queue.name for queue in config.site.queues}
    tenants = {ROOT_TENANT, *(tenant.name for tenant in config.site.tenants)}
    ours = None if named_before is None else frozenset(named_before)
    return Removed(
        queues=tuple(queue.name for queue in cluster.queues if queue.name not in queues),
        tenants=tuple(
            tenant.name
            for tenant in cluster.tenants
            if tenant.name not in tenants and (ours is None or tenant.name in ours or _is_set(tenant))
        ),
    )


def _is_set(tenant: TenantView) -> bool:
    """Whether a file must have said something of it."""
    return tenant.guaranteed_milli is not None or tenant.weight != 1 or tenant.parent not in (None, ROOT_TENANT)


def remove_leftovers(control: Control, config: Config, file: Path, wait: Await, *, are_pods: bool) -> Sequence[str]:
    """At a start: remove each that nothing is in; a sentence about those that stay, if any. Raises what `wait` does but
    for InputError."""
    found = find_leftovers(control.cluster(), config, named_before=() if are_pods else None)
    asked = [(f"queue {name}", Removed(queues=(name,))) for name in found.queues]
    asked += [(f"tenant {name}", Removed(tenants=(name,))) for name in reversed(found.tenants)]
    staying = []
    for named, removed in asked:
        try:
            wait(control.set_site((), (), actor=ACTOR, removed=removed))
        except InputError:
            staying.append(named)
    if not staying:
        return ()
    told = f"{file} names no more, but jobs are in them, or below them: {', '.join(staying)}; they stay in force until"
    return (f"{told} `clearway config reload` finds them empty",)
