"""Opening: URLs, drivers, tables and their changes."""

import importlib.util

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from clearway.adapters.storage import open_reader, open_store
from clearway.adapters.storage.schema import SCHEMA_HEAD, make_config
from clearway.adapters.storage.tables import METADATA
from clearway.model.errors import InputError, MissingExtraError
from clearway.ports.storage import JobQuery, JournalError, StorageError
from support.stored import make_submission


@pytest.mark.parametrize(
    "url",
    [
        "",
        "clearway.db",
        "oracle://host/name",
        "mysql://host/name",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///a?b=c",
    ],
)
def test_a_url_that_cannot_be_used_is_refused_with_an_example(url):
    with pytest.raises(InputError, match="expected"):
        open_store(url)


@pytest.mark.parametrize(
    ("url", "command"),
    [
        ("postgresql://ann:secret@host/name", r"pip install clearway\[postgresql\]"),
        ("mariadb://ann:secret@host/name", r"pip install clearway\[mariadb\]"),
    ],
)
def test_a_missing_driver_is_named_with_the_command_that_brings_it(url, command, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=command) as refusal:
        open_store(url)
    assert "secret" not in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_store_that_is_not_there_is_not_made_unless_asked(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    for opening in (lambda: open_store(url, create=False), lambda: open_reader(url)):
        with pytest.raises(StorageError, match="expected a store, found no such file"):
            opening()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "store.db"
    path.write_text("important notes\n" * 100)
    with pytest.raises(JournalError, match="file is not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_text() == "important notes\n" * 100


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "folder").write_text("")
    with pytest.raises(StorageError, match="cannot be opened for writing"):
        open_store(f"sqlite:///{tmp_path}/folder/store.db")


def test_the_newest_change_is_the_one_that_the_code_expects():
    assert ScriptDirectory.from_config(make_config()).get_current_head() == SCHEMA_HEAD


def test_the_changes_make_the_tables_that_the_statements_expect(tmp_path):
    open_store(f"sqlite:///{tmp_path}/store.db").close()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()


def test_a_change_that_was_cut_short_is_repeated(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    store = open_store(url)
    store.append(make_submission(1, 3))
    store.close()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE alembic_version")
        connection.exec_driver_sql("DROP INDEX jobs_submit")
    engine.dispose()
    store = open_store(url)
    assert len(store.reader.find_jobs(JobQuery(submitted_from_ms=0))) == 3
    assert store.append(make_submission(4)) == 4
    store.close()
