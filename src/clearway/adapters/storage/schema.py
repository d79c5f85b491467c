"""Brings the tables to what this release expects. Called by the one writer, which keeps others out meanwhile."""

from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from clearway.ports.storage import JournalError

SCHEMA_HEAD: Final = "0001"
"""The newest change in `migrations/versions`; a test holds it against them."""

FOLDER: Final = Path(__file__).with_name("migrations")


def make_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def read_version(connection: Connection) -> str | None:
    """Which change was carried out last; None = no tables yet."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if version is None else str(version)


def check_version(label: str, version: str | None) -> None:
    """Raise JournalError for a version that this release does not know."""
    known = {script.revision for script in ScriptDirectory.from_config(make_config()).walk_revisions()}
    if version is not None and version not in known:
        raise JournalError(
            f"{label}: expected tables of version {SCHEMA_HEAD} or older, found version {version}: "
            "a newer release made them; use that one"
        )


def migrate(label: str, connection: Connection) -> None:
    """Carry out what is missing. Each change can be repeated: MariaDB cannot undo one that was cut short."""
    version = read_version(connection)
    if version == SCHEMA_HEAD:
        return
    check_version(label, version)
    command.upgrade(make_config(connection), "head")
