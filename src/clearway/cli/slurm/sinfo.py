"""`sinfo`: partitions and nodes."""

import sys
from collections.abc import Sequence
from typing import Final

from clearway.bootstrap.places import now_ms
from clearway.cli.connection import environment
from clearway.cli.slurm.arguments import Options, UsageError, read_options
from clearway.cli.slurm.common import DATA_FLAGS, wants_data, write_data
from clearway.cli.slurm.sinfo_text import render_sinfo
from clearway.cli.slurm.values import NODE_STATE_CODES
from clearway.ports.views import NodeState, NodeView

OPTIONS: Final = Options(
    flags=(
        ("h", "noheader"),
        ("l", "long"),
        ("N", "Node"),
        ("s", "summarize"),
        ("R", "list-reasons"),
        ("a", "all"),
        ("e", "exact"),
        ("r", "responding"),
        *DATA_FLAGS,
        ("v", "verbose"),
    ),
    values=(("p", "partition"), ("n", "nodes"), ("t", "states"), ("o", "format"), ("O", "Format")),
)


WIDER_WORDS: Final = {NodeState.DRAINING: {"drain"}, NodeState.DRAINED: {"drain"}}
"""Words that mean several states."""
STATE_WORDS: Final = tuple(
    dict.fromkeys(["all", *(word for state in NodeState for word in (state.value, NODE_STATE_CODES[state]))])
)


def run(arguments: Sequence[str]) -> int:
    """Print the table."""
    from clearway.cli.connection import connect

    given = read_options("sinfo", arguments, OPTIONS)
    if given.operands:
        raise UsageError(f"Unrecognized arguments: {' '.join(given.operands)}")
    with connect() as client:
        cluster = client.cluster()
    states = tuple(state.lower() for state in given.listed("states"))
    for state in states:
        if state not in STATE_WORDS:
            raise UsageError(f'Bad state string: "{state}"\nvalid states: {",".join(STATE_WORDS)}')
    nodes = [node for node in cluster.nodes if _matches(node, given.get("nodes"), states)]
    asked = given.listed("partition")
    queues = [queue for queue in cluster.queues if not asked or queue.name in asked]
    if wants_data(given):
        write_data(given, nodes=nodes, partitions=queues)
        return 0
    text = render_sinfo(
        nodes,
        queues,
        now_ms=now_ms(),
        format_short=given.get("format") or environment().get("SINFO_FORMAT", ""),
        format_long=given.get("Format"),
        has_header=not given.has("noheader"),
        is_long=given.has("long"),
        by_node=given.has("Node"),
        is_summary=given.has("summarize"),
        are_reasons=given.has("list-reasons"),
    )
    sys.stdout.write(text)
    return 0


def _matches(node: NodeView, names: str, states: Sequence[str]) -> bool:
    if names:
        from clearway.wire.ranges import expand_names

        if node.name not in expand_names(names):
            return False
    words = {node.state.value, NODE_STATE_CODES[node.state]} | WIDER_WORDS.get(node.state, set())
    return not states or "all" in states or bool(words & set(states))
