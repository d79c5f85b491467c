"""Who may do what: each route needs one permission, each role has some, and tenants bound what they reach.

Default deny: a route that is not in `ROUTES` cannot be served. Tenants are compared whole, in the tree, and never as
text that begins alike. What a caller may not see is answered as what does not exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from clearway.model.ids import ROOT_TENANT, TenantName
from clearway.ports.views import JobView, TenantView
from clearway.server.auth import Identity, Role
from clearway.wire.api import API

DEPTH_MAX: Final = 64
"""Of the tree of tenants. A circle, which nobody should be able to make, ends here."""


class Permission(StrEnum):
    """What a route needs."""

    PUBLIC = "public"
    SELF_READ = "self.read"
    JOBS_READ = "jobs.read"
    JOBS_SUBMIT = "jobs.submit"
    JOBS_CHANGE = "jobs.change"
    RUNS_READ = "runs.read"
    LOGS_READ = "logs.read"
    CLUSTER_READ = "cluster.read"
    METRICS_READ = "metrics.read"
    NODES_CHANGE = "nodes.change"
    AUDIT_READ = "audit.read"
    SNAPSHOT_READ = "snapshot.read"
    CONFIG_CHANGE = "config.change"


_READS: Final = (
    Permission.SELF_READ,
    Permission.JOBS_READ,
    Permission.LOGS_READ,
    Permission.CLUSTER_READ,
    Permission.METRICS_READ,
)
_USES: Final = (*_READS, Permission.JOBS_SUBMIT, Permission.JOBS_CHANGE, Permission.RUNS_READ)

PERMISSIONS: Final[Mapping[Role, frozenset[Permission]]] = {
    Role.VIEWER: frozenset(_READS),
    Role.USER: frozenset(_USES),
    Role.TENANT_ADMIN: frozenset(_USES),
    Role.OPERATOR: frozenset(set(Permission) - {Permission.PUBLIC}),
}

ROUTES: Final[Mapping[tuple[str, str], Permission]] = {
    ("GET", "/health"): Permission.PUBLIC,
    ("GET", "/ready"): Permission.PUBLIC,
    ("GET", "/metrics"): Permission.METRICS_READ,
    ("GET", f"{API}/openapi.json"): Permission.PUBLIC,
    ("GET", f"{API}/whoami"): Permission.SELF_READ,
    ("POST", f"{API}/jobs"): Permission.JOBS_SUBMIT,
    ("GET", f"{API}/jobs"): Permission.JOBS_READ,
    ("GET", f"{API}/jobs/counts"): Permission.JOBS_READ,
    ("POST", f"{API}/jobs/cancel"): Permission.JOBS_CHANGE,
    ("POST", f"{API}/jobs/hold"): Permission.JOBS_CHANGE,
    ("POST", f"{API}/jobs/release"): Permission.JOBS_CHANGE,
    ("POST", f"{API}/jobs/requeue"): Permission.JOBS_CHANGE,
    ("GET", f"{API}/jobs/{{job}}"): Permission.JOBS_READ,
    ("DELETE", f"{API}/jobs/{{job}}"): Permission.JOBS_CHANGE,
    ("GET", f"{API}/jobs/{{job}}/run"): Permission.RUNS_READ,
    ("GET", f"{API}/jobs/{{job}}/why"): Permission.JOBS_READ,
    ("GET", f"{API}/jobs/{{job}}/logs"): Permission.LOGS_READ,
    ("GET", f"{API}/jobs/{{job}}/logs/follow"): Permission.LOGS_READ,
    ("GET", f"{API}/cluster"): Permission.CLUSTER_READ,
    ("GET", f"{API}/nodes"): Permission.CLUSTER_READ,
    ("GET", f"{API}/nodes/{{node}}"): Permission.CLUSTER_READ,
    ("POST", f"{API}/nodes/{{node}}/drain"): Permission.NODES_CHANGE,
    ("POST", f"{API}/nodes/{{node}}/undrain"): Permission.NODES_CHANGE,
    ("GET", f"{API}/queues"): Permission.CLUSTER_READ,
    ("GET", f"{API}/tenants"): Permission.CLUSTER_READ,
    ("GET", f"{API}/plans"): Permission.CLUSTER_READ,
    ("GET", f"{API}/snapshot"): Permission.SNAPSHOT_READ,
    ("GET", f"{API}/events"): Permission.JOBS_READ,
    ("GET", f"{API}/audit"): Permission.AUDIT_READ,
    ("POST", f"{API}/reload"): Permission.CONFIG_CHANGE,
}


@dataclass(frozen=True, slots=True)
class Reach:
    """What a caller may see and touch. tenants None = all."""

    identity: Identity
    tenants: frozenset[TenantName] | None

    def sees(self, tenant: TenantName) -> bool:
        """Whether jobs of this tenant exist for him."""
        return self.tenants is None or tenant in self.tenants

    def may_touch(self, job: JobView) -> bool:
        """Whether he may change this job, or read how it is run: his own, or as one who answers for its tenant."""
        if not self.sees(job.tenant) or self.identity.role == Role.VIEWER:
            return False
        return self.identity.role != Role.USER or job.user == self.identity.unix_user

    def narrow(self, wanted: Iterable[TenantName]) -> tuple[TenantName, ...] | None:
        """The tenants for a query that asks for `wanted` (none = all that he sees); () = all there are; None = it
        finds nothing."""
        asked = tuple(dict.fromkeys(wanted))
        if self.tenants is None:
            return asked
        kept = tuple(tenant for tenant in asked if tenant in self.tenants) if asked else tuple(sorted(self.tenants))
        return kept or None


def needs_tree(identity: Identity) -> bool:
    """Whether what a caller reaches depends on what lies below the tenants in which he is named."""
    return identity.role in (Role.VIEWER, Role.TENANT_ADMIN)


def find_reach(identity: Identity, tenants: Iterable[TenantView]) -> Reach:
    """What `identity` reaches in the tree of `tenants`: a user what he is named in, viewers and administrators also
    what lies below it, an operator everything."""
    if identity.role == Role.OPERATOR:
        return Reach(identity, None)
    named = frozenset(identity.tenants)
    if not needs_tree(identity):
        return Reach(identity, named)
    parents = {tenant.name: tenant.parent for tenant in tenants}
    return Reach(identity, named | {tenant for tenant in parents if _lies_below(tenant, named, parents)})


def _lies_below(
    tenant: TenantName, named: frozenset[TenantName], parents: Mapping[TenantName, TenantName | None]
) -> bool:
    above: TenantName | None = tenant
    for _ in range(DEPTH_MAX):
        if above in named:
            return True
        if above is None:
            return ROOT_TENANT in named
        above = parents.get(above)
    return False
