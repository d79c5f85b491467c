"""The journal and the rows made from it, in a relational database: SQLite, PostgreSQL or MariaDB, by URL."""

from clearway.adapters.storage.reader import SqlReader
from clearway.adapters.storage.snapshots import SnapshotFolder
from clearway.adapters.storage.store import SqlStore, open_reader, open_store

__all__ = ["SnapshotFolder", "SqlReader", "SqlStore", "open_reader", "open_store"]
