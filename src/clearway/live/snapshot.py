"""What a control plane remembers after a record of its journal, as bytes, so that a start need not read what is before.

The bytes say the same for the same journal: whoever reads it up to that record gets them again, which is how a snapshot
is proved. They hold what was read, under no policy in particular (`Kernel.begin_reading`): any policy may go on from
there. `basis` names all that is in them beside the journal; with another basis the journal must be read.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Final

from clearway import __version__
from clearway.engine.accounts import Accounts
from clearway.engine.arrays import ArraySlots
from clearway.engine.crowds import Crowds
from clearway.engine.dependencies import Dependencies
from clearway.engine.inventory import Inventory
from clearway.engine.nodes import Classes, Eligibility, Names, Requirement
from clearway.engine.order import PendingOrder
from clearway.engine.records import Claim, JobRecord
from clearway.engine.rows import JobRows
from clearway.engine.typical import TypicalClasses
from clearway.forecast.demand import DemandHistory
from clearway.forecast.feed import DemandFeed
from clearway.forecast.runtime import RuntimeHistory, Source
from clearway.live.books import Book
from clearway.live.guard import GuardSettings
from clearway.model.allocation import Allocation
from clearway.model.cluster import NodeSpec, QueueSpec, TenantSpec
from clearway.model.errors import InputError
from clearway.model.jobs import JobSpec, Outcome, Request
from clearway.model.plan import Cap, Migrate, ReasonCode, Resize, Start, Stop, Suspend
from clearway.ports.views import JobView
from clearway.wire.packing import Packing

COMPRESSION: Final = 1
"""Of zlib: most of the bytes are zeros and numbers that count up."""

_NOTHING: Final[frozenset[str]] = frozenset()

PACKING: Final = Packing(
    values=(
        Allocation,
        Cap,
        JobView,
        Migrate,
        NodeSpec,
        QueueSpec,
        Request,
        Resize,
        Start,
        Stop,
        Suspend,
        TenantSpec,
    ),
    shared=(JobSpec,),
    boxes={
        Accounts: _NOTHING,
        ArraySlots: _NOTHING,
        Book: _NOTHING,
        Claim: _NOTHING,
        Classes: _NOTHING,
        Crowds: _NOTHING,
        DemandFeed: _NOTHING,
        DemandHistory: _NOTHING,
        Dependencies: _NOTHING,
        Eligibility: _NOTHING,
        Inventory: _NOTHING,
        JobRecord: _NOTHING,
        JobRows: _NOTHING,
        Names: _NOTHING,
        PendingOrder: _NOTHING,
        RuntimeHistory: _NOTHING,
        TypicalClasses: _NOTHING,
    },
    names=(Outcome, ReasonCode, Requirement, Source),
)


def render(parts: Mapping[str, Any]) -> bytes:
    """Parts as bytes."""
    text = json.dumps(PACKING.pack(dict(parts)), separators=(",", ":"), allow_nan=False)
    return zlib.compress(text.encode(), COMPRESSION)


def parse(payload: bytes, names: Iterable[str]) -> dict[str, Any]:
    """The parts of these names that `render` was given. Raises InputError."""
    try:
        parts = PACKING.unpack(json.loads(zlib.decompress(payload)))
    except (zlib.error, ValueError) as error:
        raise InputError(f"expected a snapshot's content, found other bytes: {error}") from error
    if not isinstance(parts, dict) or list(parts) != list(names):
        raise InputError("expected a snapshot's parts by name, found something else")
    return parts


@cache
def sources_digest() -> str:
    """Of all that makes state of events: another release may make other state of the same journal."""
    package = Path(__file__).parents[1]
    folders = ("engine", "forecast", "kernel", "live", "model", "ports", "wire")
    files = [path for folder in folders for path in sorted((package / folder).glob("*.py"))]
    digest = hashlib.sha256(__version__.encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_basis(half_life_ms: int, guard: GuardSettings) -> str:
    """What a snapshot says beside the journal."""
    told = json.dumps({"half_life_ms": half_life_ms, **asdict(guard)}, sort_keys=True)
    return hashlib.sha256(f"{sources_digest()}\n{told}".encode()).hexdigest()
