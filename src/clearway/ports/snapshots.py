"""What the shell may offer to shorten a start: what was made of the journal up to some record, kept beside it.

A snapshot is never the truth. It is tied to a record by the record's checksum, which stands for all before it, and to a
`basis`, which stands for whatever else went into it; one that is damaged, of another journal or of another basis is
left out with a line for people, and an older one, or the whole journal, is read instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """record: number of the journal's record after which it was made."""

    record: int
    basis: str
    payload: bytes


class Snapshots(Protocol):
    """Snapshots of one journal."""

    def find(self, basis: str) -> Iterator[Snapshot]:
        """Those that are whole and belong to the journal as it is, the newest first."""
        ...

    def keep(self, snapshot: Snapshot) -> None:
        """Write it, so that it survives the death of the machine or is not there at all; older ones than the one before
        are dropped. Raises StorageError."""
        ...
