"""The first tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.mysql import LONGTEXT

revision = "0001"
down_revision = None

_MARIADB = {
    "mariadb_engine": "InnoDB",
    "mariadb_charset": "utf8mb4",
    "mariadb_collate": "utf8mb4_nopad_bin",
}


def upgrade() -> None:
    """Make every table that is not there yet."""
    _create("meta", sa.Column("name", sa.String(64), primary_key=True), _text("value"))
    _create(
        "head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        _number("seq"),
        sa.Column("checksum", sa.String(64), nullable=False),
        _number("audit_seq"),
        sa.Column("audit_checksum", sa.String(64), nullable=False),
        _number("last_job"),
        _number("epoch"),
        sa.Column("writer", sa.String(200), nullable=False),
    )
    for name in ("journal", "audit"):
        _create(
            name,
            _key("seq"),
            _number("at_ms"),
            sa.Column("kind", sa.String(64), nullable=False),
            _text("payload"),
            sa.Column("checksum", sa.String(64), nullable=False),
        )
    _create("runs", _key("first_job"), _number("last_job"), _text("spec"), _number("crc"))
    _create_jobs()
    if op.get_context().dialect.name == "sqlite":
        _tell_sizes()


def _create_jobs() -> None:
    _create(
        "jobs",
        _key("id"),
        sa.Column("state", sa.String(32), nullable=False),
        *(sa.Column(name, sa.String(200), nullable=False) for name in ("user", "tenant", "queue", "name")),
        sa.Column("array_id", sa.BigInteger, nullable=True),
        _number("submit_ms"),
        _text("view"),
        _number("crc"),
    )
    for name in ("user", "tenant", "queue"):
        _index(f"jobs_state_{name}", "state", name, "id")
    for name in ("state", "user", "tenant", "queue", "name"):
        _index(f"jobs_{name}", name, "id")
    _index("jobs_array", "array_id", "id")
    _index("jobs_submit", "submit_ms", "id")


def _tell_sizes() -> None:
    """What SQLite's planner is to think of the indexes: it would else take all for equally good, or what it once found.

    After the number of rows: how many have the same first column, the same first two, and all three.
    """
    sizes = {
        "jobs_state_user": "100000 8000 40 1",
        "jobs_state_tenant": "100000 8000 400 1",
        "jobs_state_queue": "100000 8000 2000 1",
        "jobs_state": "100000 8000 1",
        "jobs_user": "100000 500 1",
        "jobs_tenant": "100000 5000 1",
        "jobs_queue": "100000 25000 1",
        "jobs_name": "100000 50 1",
        "jobs_array": "100000 100 1",
        "jobs_submit": "100000 2 1",
    }
    op.execute("ANALYZE")
    op.execute("DELETE FROM sqlite_stat1")
    for index, size in sizes.items():
        op.execute(f"INSERT INTO sqlite_stat1 (tbl, idx, stat) VALUES ('jobs', '{index}', '{size}')")  # noqa: S608


def _create(name: str, *columns: sa.Column[Any]) -> None:
    op.create_table(name, *columns, if_not_exists=True, **_MARIADB)


def _index(name: str, *columns: str) -> None:
    op.create_index(name, "jobs", list(columns), if_not_exists=True)


def _key(name: str) -> sa.Column[Any]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, primary_key=True, autoincrement=False)


def _number(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.BigInteger, nullable=False)


def _text(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.Text().with_variant(LONGTEXT(), "mariadb"), nullable=False)
