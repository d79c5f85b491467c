"""A snapshot of a cluster as a file: JSON lines, the first says what it is; then a node, queue, tenant or job each."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from clearway.model.cluster import LinkSpec, NodeSpec, QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.ports.snapshot import ClusterSnapshot, SnapshotJob
from clearway.wire.api_rows import decode_row, encode_row

FORMAT: Final = "clearway-snapshot"
VERSION: Final = 1
MARK: Final = f'{{"format": "{FORMAT}"'
"""With this every such file begins."""

KINDS: Final[dict[str, type[Any]]] = {"node": NodeSpec, "queue": QueueSpec, "tenant": TenantSpec, "job": SnapshotJob}


def render_snapshot(snapshot: ClusterSnapshot) -> Iterator[str]:
    """The lines of the file, without their ends."""
    head: dict[str, Any] = {"format": FORMAT, "version": VERSION, "at_ms": snapshot.at_ms}
    head["nodes_away"] = snapshot.nodes_away
    if snapshot.links:
        head["links"] = {level: encode_row(link) for level, link in snapshot.links}
    yield json.dumps(head)
    parts = (("node", snapshot.nodes), ("queue", snapshot.queues), ("tenant", snapshot.tenants), ("job", snapshot.jobs))
    for kind, rows in parts:
        for row in rows:
            yield json.dumps({kind: encode_row(row)}, ensure_ascii=False)


def parse_snapshot(lines: Iterable[tuple[int, str]], *, source: str) -> ClusterSnapshot:
    """The snapshot that numbered lines hold. Raises InputError that names the line which does not fit."""
    found: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    head: dict[str, Any] = {}
    links: tuple[tuple[str, LinkSpec], ...] = ()
    for number, line in lines:
        try:
            data = json.loads(line)
            if not head:
                head = _check_head(data)
                links = tuple((level, decode_row(LinkSpec, link)) for level, link in head.get("links", {}).items())
                continue
            ((kind, row),) = data.items()
            found[kind].append(decode_row(KINDS[kind], row))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
            raise InputError(f"{source}:{number}: expected a line of a snapshot, found {error}") from error
    if not head:
        raise InputError(f"{source}: expected a snapshot of `clearway snapshot`, found nothing")
    return ClusterSnapshot(
        at_ms=int(head["at_ms"]),
        nodes=tuple(found["node"]),
        nodes_away=tuple(head["nodes_away"]),
        queues=tuple(found["queue"]),
        tenants=tuple(found["tenant"]),
        jobs=tuple(found["job"]),
        links=links,
    )


def _check_head(data: dict[str, Any]) -> dict[str, Any]:
    if data.get("format") != FORMAT or data.get("version") != VERSION:
        raise ValueError(f"another format or version than {FORMAT} {VERSION}")
    if type(data.get("at_ms")) is not int or not isinstance(data.get("nodes_away"), list):
        raise ValueError("no time (at_ms) or no list of nodes (nodes_away)")
    return data
