"""Queues and tenants of a site (YAML or JSON):

queues:
  - {name: urgent, priority: 100, preempts: [production]}
  - {name: production, gpus_max: 512, job_gpus_max: 64, time_limit_max: 7d, time_limit_default: 1d}
tenants:
  - {name: vision, weight: 2, guaranteed: 64, borrow_max: 32}
  - {name: vision-students, parent: vision, guaranteed: 8, borrow_max: 0, lend_max: 8}
"""

import graphlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

import pydantic

from clearway.model.cluster import QueueSpec, Quota, TenantSpec
from clearway.model.ids import ROOT_TENANT, QueueName, TenantName
from clearway.wire.documents import Document, load_document, parse_document, validate_document
from clearway.wire.problems import ParseError, suggest_name
from clearway.wire.schema import Count, Name, PositiveNumber, Schema, Whole, convert
from clearway.wire.units import parse_milli, parse_time_span

SYNONYMS: Final = {
    **dict.fromkeys(("devices_max", "max_gpus", "gpu_limit"), "gpus_max"),
    **dict.fromkeys(("max_time", "limit_max", "time_max"), "time_limit_max"),
    **dict.fromkeys(("default_time", "limit_default", "time_default"), "time_limit_default"),
    **dict.fromkeys(("quota", "nominal_quota", "nominalQuota"), "guaranteed"),
    **dict.fromkeys(("borrowing_limit", "borrowingLimit"), "borrow_max"),
    **dict.fromkeys(("lending_limit", "lendingLimit"), "lend_max"),
    **dict.fromkeys(("shares", "fair_share", "overQuotaWeight"), "weight"),
    "partitions": "queues",
    "accounts": "tenants",
}

DeviceMilli = Annotated[int, convert(parse_milli)]
TimeLimit = Annotated[int | None, convert(parse_time_span)]


class QueueModel(Schema):
    """Where jobs wait. What is left out has no limit."""

    name: Name
    priority: Whole = 0
    gpus_max: DeviceMilli | None = None
    job_gpus_max: DeviceMilli | None = None
    running_max: Count | None = None
    time_limit_max: TimeLimit = None
    time_limit_default: TimeLimit = None
    preempts: tuple[Name, ...] = ()

    @pydantic.model_validator(mode="after")
    def _check_limits(self) -> Self:
        longest, assumed = self.time_limit_max, self.time_limit_default
        if longest is not None and assumed is not None and assumed > longest:
            expected = "at most `time_limit_max`"
            raise ParseError(expected=expected, found=assumed, hint="lower it", field="time_limit_default")
        return self


class TenantModel(Schema):
    """A team. Without `guaranteed`, `borrow_max` and `lend_max` it has no quota: no limit and nothing of its own."""

    name: Name
    parent: Name | None = None
    weight: PositiveNumber = 1.0
    guaranteed: DeviceMilli | None = None
    borrow_max: DeviceMilli | None = None
    lend_max: DeviceMilli | None = None

    @pydantic.model_validator(mode="after")
    def _check_lending(self) -> Self:
        if self.lend_max is not None and self.lend_max > (self.guaranteed or 0):
            expected = "at most what is `guaranteed`"
            raise ParseError(
                expected=expected, found=self.lend_max, hint="nobody lends what is not his", field="lend_max"
            )
        return self


class SiteModel(Schema):
    """A site file."""

    queues: tuple[QueueModel, ...] = ()
    tenants: tuple[TenantModel, ...] = ()

    @pydantic.model_validator(mode="after")
    def _check_queues(self) -> Self:
        names = check_unique("queues", [queue.name for queue in self.queues])
        for index, queue in enumerate(self.queues):
            for other in queue.preempts:
                if other not in names:
                    field = f"queues.{index}.preempts"
                    raise ParseError(
                        expected="a queue of this file", found=other, hint=suggest_name(other, names), field=field
                    )
        return self

    @pydantic.model_validator(mode="after")
    def _check_tenants(self) -> Self:
        names = check_unique("tenants", [tenant.name for tenant in self.tenants])
        for index, tenant in enumerate(self.tenants):
            if tenant.parent is not None and tenant.parent not in names and tenant.parent != ROOT_TENANT:
                hint = suggest_name(tenant.parent, names) or "leave it out for a tenant at the top"
                field = f"tenants.{index}.parent"
                raise ParseError(expected="a tenant of this file", found=tenant.parent, hint=hint, field=field)
        _check_circles(self.tenants, names)
        return self


@dataclass(frozen=True, slots=True)
class Site:
    """queues in the order of the file; tenants with parents before their children."""

    queues: tuple[QueueSpec, ...]
    tenants: tuple[TenantSpec, ...]


def load_site_file(path: Path) -> Site:
    """Queues and tenants of the file at `path`. Raises InputError, also where it cannot be read."""
    return _read_site(load_document(path))


def parse_site_file(text: str, *, source: str) -> Site:
    """Queues and tenants of a YAML or JSON file. Raises InputError that lists all errors with lines."""
    return _read_site(parse_document(text, source=source))


def _read_site(document: Document) -> Site:
    return make_site(validate_document(document, SiteModel, synonyms=SYNONYMS))


def make_site(model: SiteModel) -> Site:
    """Queues and tenants of a file that was read."""
    return Site(
        queues=tuple(_make_queue(queue) for queue in model.queues),
        tenants=_order_tenants([_make_tenant(tenant) for tenant in model.tenants]),
    )


def check_unique(field: str, names: list[str]) -> dict[str, int]:
    """Place of each name; a name that comes twice is a ParseError."""
    places: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in places:
            raise ParseError(expected="each name once", found=name, hint="rename it", field=f"{field}.{index}.name")
        places[name] = index
    return places


def _check_circles(tenants: tuple[TenantModel, ...], places: Mapping[str, int]) -> None:
    graph = {tenant.name: [tenant.parent] for tenant in tenants if tenant.parent in places}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle: list[str] = error.args[1]
        shown, field = " → ".join(circle), f"tenants.{places[circle[0]]}.parent"
        raise ParseError(expected="parents without a circle", found=shown, hint="cut it", field=field) from error


def _make_queue(queue: QueueModel) -> QueueSpec:
    return QueueSpec(
        name=QueueName(queue.name),
        priority=queue.priority,
        devices_max_milli=queue.gpus_max,
        job_devices_max_milli=queue.job_gpus_max,
        running_max=queue.running_max,
        limit_max_ms=queue.time_limit_max,
        limit_default_ms=queue.time_limit_default,
        preempts=tuple(QueueName(other) for other in queue.preempts),
    )


def _make_tenant(tenant: TenantModel) -> TenantSpec:
    quota = None
    if any(given is not None for given in (tenant.guaranteed, tenant.borrow_max, tenant.lend_max)):
        quota = Quota(
            guaranteed_milli=tenant.guaranteed or 0,
            borrow_max_milli=tenant.borrow_max,
            lend_max_milli=tenant.lend_max,
        )
    parent = TenantName(tenant.parent) if tenant.parent else None
    return TenantSpec(name=TenantName(tenant.name), parent=parent, weight=tenant.weight, quota=quota)


def _order_tenants(tenants: list[TenantSpec]) -> tuple[TenantSpec, ...]:
    """Parents first, otherwise in the order of the file."""
    by_name = {tenant.name: tenant for tenant in tenants}

    def depth_of(tenant: TenantSpec) -> int:
        depth = 0
        while tenant.parent in by_name:
            depth, tenant = depth + 1, by_name[tenant.parent]
        return depth

    return tuple(sorted(tenants, key=depth_of))
