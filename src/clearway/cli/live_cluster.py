"""Commands about the cluster: nodes, queues, tenants, what happens."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from clearway.cli.connection import connect
from clearway.cli.options import JsonOption
from clearway.cli.outputs import is_json_only, write_json
from clearway.cli.session import session_of

if TYPE_CHECKING:
    from clearway.client import Client

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A name that `clearway nodes` lists.")]


def nodes(context: typer.Context, json_target: JsonOption = None) -> None:
    """Nodes and what their devices do."""
    from clearway.cli.show_live import show_nodes
    from clearway.wire.api_rows import encode_rows

    session = session_of(context)
    with connect() as client:
        rows = client.nodes()
    if not is_json_only(json_target):
        show_nodes(session, rows)
    if json_target is not None:
        write_json(session, encode_rows(rows), json_target)


def queues(context: typer.Context, json_target: JsonOption = None) -> None:
    """Queues, what waits in them and what runs."""
    from clearway.cli.show_live import show_queues
    from clearway.wire.api_rows import encode_rows

    session = session_of(context)
    with connect() as client:
        rows = client.queues()
    if not is_json_only(json_target):
        show_queues(session, rows)
    if json_target is not None:
        write_json(session, encode_rows(rows), json_target)


def tenants(context: typer.Context, json_target: JsonOption = None) -> None:
    """Tenants, what they hold and may hold."""
    from clearway.cli.show_live import show_tenants
    from clearway.wire.api_rows import encode_rows

    session = session_of(context)
    with connect() as client:
        rows = client.tenants()
    if not is_json_only(json_target):
        show_tenants(session, rows)
    if json_target is not None:
        write_json(session, encode_rows(rows), json_target)


def drain(
    context: typer.Context,
    node: NodeArgument,
    reason: Annotated[str, typer.Option("--reason", "-r", metavar="TEXT", help="Why, for everybody to read.")],
    json_target: JsonOption = None,
) -> None:
    """Let nothing new start on a node."""
    from clearway.model.ids import NodeName

    with connect() as client:
        client.drain(NodeName(node), reason=reason)
        session_of(context).note("Nothing new starts on {node}; what runs there goes on", node=node)
        _write_node(context, client, node, json_target)


def undrain(context: typer.Context, node: NodeArgument, json_target: JsonOption = None) -> None:
    """Let a node be used again."""
    from clearway.model.ids import NodeName

    with connect() as client:
        client.undrain(NodeName(node))
        session_of(context).note("{node} may be used again", node=node)
        _write_node(context, client, node, json_target)


def _write_node(context: typer.Context, client: "Client", node: str, json_target: str | None) -> None:
    """The node as it is now, where it was asked for."""
    from clearway.model.ids import NodeName
    from clearway.wire.api_rows import encode_row

    if json_target is not None:
        write_json(session_of(context), encode_row(client.node(NodeName(node))), json_target)


def events(
    context: typer.Context,
    kinds: Annotated[list[str] | None, typer.Option("--kind", metavar="KIND", help="Only job, node or plan.")] = None,
    count: Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after N events.")] = None,
    is_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """What happens, as it happens."""
    from clearway.cli.slurm.values import render_moment
    from clearway.wire.api_rows import encode_row

    session = session_of(context)
    with connect() as client:
        for number, event in enumerate(client.events(kinds=tuple(kinds or ())), start=1):
            data = json.dumps(encode_row(event) if is_json else event.data, ensure_ascii=False, separators=(",", ":"))
            line = data if is_json else f"{render_moment(event.at_ms, None)} {event.seq} {event.kind} {data}"
            session.screen.print(line, markup=False, soft_wrap=True)
            sys.stdout.flush()
            if number == count:
                return
