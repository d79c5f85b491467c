"""Decisions as bytes and as lines: the same run gives the same digest and the same log, byte for byte.

The digest goes over, per command, a fixed head (kind, time, job, generation, grace or watts, number of replicas) and,
where there is an allocation, its node and device indices, all as 64-bit integers. Text would cost ten times as much.
"""

import hashlib
from collections.abc import Sequence
from struct import Struct
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from clearway.model.allocation import Allocation
from clearway.model.commands import Command, WakeAt
from clearway.model.plan import Cap, Migrate, Resize, Start, Stop, Suspend

PARTS_KEPT: Final = 4_096
"""Byte strings gathered before they are hashed in one go: large enough to make hashing cheap, a few hundred KB."""

_HEAD: Final = Struct("=7q")
_KINDS: Final = {kind: code for code, kind in enumerate((Start, Stop, Suspend, Resize, Migrate, Cap, WakeAt))}


class DecisionDigest:
    """SHA-256 over all commands in order."""

    __slots__ = ("_hash", "_parts")

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._parts: list[bytes] = []

    def add(self, now_ms: int, commands: Sequence[Command]) -> None:
        """Commands decided at `now_ms`."""
        parts = self._parts
        for command in commands:
            if type(command) is Start:
                allocation = command.allocation
                nodes = allocation.nodes
                head = _HEAD.pack(0, now_ms, command.job, command.generation, 0, 0, len(nodes))
                parts += (head, nodes.tobytes(), allocation.devices.tobytes())
            else:
                parts.extend(_parts_of(now_ms, command))
        if len(parts) > PARTS_KEPT:
            self._flush()

    def add_words(self, words: NDArray[np.int64]) -> None:
        """Starts as `engine.agenda` writes them: their heads, nodes and devices one behind the other."""
        self._flush()
        self._hash.update(words.data)

    def _flush(self) -> None:
        self._hash.update(b"".join(self._parts))
        self._parts.clear()

    def hexdigest(self) -> str:
        """The digest so far."""
        self._flush()
        return self._hash.hexdigest()


def _parts_of(now_ms: int, command: Command) -> list[bytes]:
    kind = _KINDS[type(command)]
    match command:
        case Start() | Resize() | Migrate():
            beneficiary = 0 if isinstance(command, Start) else command.beneficiary or 0
            return [
                _HEAD.pack(kind, now_ms, command.job, command.generation, 0, beneficiary, command.allocation.replicas),
                command.allocation.nodes.tobytes(),
                command.allocation.devices.tobytes(),
            ]
        case Stop():
            head = _HEAD.pack(
                kind, now_ms, command.job, command.generation, command.grace_ms, command.beneficiary or 0, 0
            )
            return [head, (command.cause or "cancelled").encode()]
        case Suspend():
            return [_HEAD.pack(kind, now_ms, command.job, command.generation, 0, command.beneficiary or 0, 0)]
        case Cap():
            return [_HEAD.pack(kind, now_ms, command.node, 0, command.watts, 0, 0)]
        case WakeAt():
            return [_HEAD.pack(kind, now_ms, 0, 0, command.at_ms, 0, 0)]
        case _:
            assert_never(command)


def render_decision(now_ms: int, command: Command) -> str:
    """One line of a decision log: time, verb, and all that the command says."""
    match command:
        case Start() | Resize() | Migrate():
            text = f"job={command.job} generation={command.generation} {_render_allocation(command.allocation)}"
        case Stop():
            cause = command.cause or "cancelled"
            text = f"job={command.job} generation={command.generation} cause={cause} grace_ms={command.grace_ms}"
        case Suspend():
            text = f"job={command.job} generation={command.generation}"
        case Cap():
            text = f"node={command.node} watts={command.watts}"
        case WakeAt():
            text = f"at_ms={command.at_ms}"
        case _:
            assert_never(command)
    beneficiary = getattr(command, "beneficiary", None)
    suffix = "" if beneficiary is None else f" beneficiary={beneficiary}"
    return f"{now_ms} {type(command).__name__.lower()} {text}{suffix}"


def _render_allocation(allocation: Allocation) -> str:
    nodes, devices = (",".join(map(str, part.tolist())) for part in (allocation.nodes, allocation.devices))
    return f"nodes={nodes} devices={devices}"
