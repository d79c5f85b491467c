"""The tables, for statements. What creates and changes them is in `migrations`; a test compares the two.

Texts that people chose stand in columns only to be compared for equality, so every text is compared byte by byte
(MariaDB would else take `a` for `A`), and long ones are shortened by `rows.key_text`.
"""

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects.mysql import LONGTEXT

KEY_CHARS: Final = 200
"""Longest text in a column with an index: MariaDB takes 3,072 bytes for one index entry, four for each character."""

CHECKSUM_CHARS: Final = 64
"""SHA-256 in hexadecimal digits."""

MARIADB: Final[dict[str, Any]] = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}
"""Else the server's settings would decide, which may take `a` for `A` and `a ` for `a`."""

METADATA: Final = MetaData()

_long_text = Text().with_variant(LONGTEXT(), "mariadb")

META: Final = Table(
    "meta",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("value", _long_text, nullable=False),
    **MARIADB,
)
"""The journal's header, and the defaults that rows leave out."""

HEAD: Final = Table(
    "head",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("checksum", String(CHECKSUM_CHARS), nullable=False),
    Column("audit_seq", BigInteger, nullable=False),
    Column("audit_checksum", String(CHECKSUM_CHARS), nullable=False),
    Column("last_job", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("writer", String(KEY_CHARS), nullable=False),
    **MARIADB,
)
"""One row: where journal and audit end, so that a lost tail is seen, and who may write: `epoch` counts the writers."""

JOURNAL: Final = Table(
    "journal",
    METADATA,
    Column("seq", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("payload", _long_text, nullable=False),
    Column("checksum", String(CHECKSUM_CHARS), nullable=False),
    **MARIADB,
)

AUDIT: Final = Table(
    "audit",
    METADATA,
    Column("seq", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", String(64), nullable=False),
    Column("payload", _long_text, nullable=False),
    Column("checksum", String(CHECKSUM_CHARS), nullable=False),
    **MARIADB,
)

RUNS: Final = Table(
    "runs",
    METADATA,
    Column("first_job", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("last_job", BigInteger, nullable=False),
    Column("spec", _long_text, nullable=False),
    Column("crc", BigInteger, nullable=False),
    **MARIADB,
)
"""How jobs are run: one row for neighbours with equal specs, such as the members of an array."""

JOBS: Final = Table(
    "jobs",
    METADATA,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    Column("state", String(32), nullable=False),
    Column("user", String(KEY_CHARS), nullable=False),
    Column("tenant", String(KEY_CHARS), nullable=False),
    Column("queue", String(KEY_CHARS), nullable=False),
    Column("name", String(KEY_CHARS), nullable=False),
    Column("array_id", BigInteger, nullable=True),
    Column("submit_ms", BigInteger, nullable=False),
    Column("view", _long_text, nullable=False),
    Column("crc", BigInteger, nullable=False),
    # With the state, and without: a page of the newest is then the end of one range of an index, never a sort.
    Index("jobs_state_user", "state", "user", "id"),
    Index("jobs_state_tenant", "state", "tenant", "id"),
    Index("jobs_state_queue", "state", "queue", "id"),
    Index("jobs_state", "state", "id"),
    Index("jobs_user", "user", "id"),
    Index("jobs_tenant", "tenant", "id"),
    Index("jobs_queue", "queue", "id"),
    Index("jobs_name", "name", "id"),
    Index("jobs_array", "array_id", "id"),
    Index("jobs_submit", "submit_ms", "id"),
    **MARIADB,
)
"""One row a job: columns for what `JobQuery` asks, and the whole JobView in `view`."""
