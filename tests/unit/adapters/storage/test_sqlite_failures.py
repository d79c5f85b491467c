"""SQLite on disks that are full, read-only or failing: nothing half written, and at work again by itself."""

import contextlib
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator

import pytest

from clearway.adapters.storage import SqlStore, open_store
from clearway.ports.storage import Changes, JobQuery, StorageError
from support.mounts import set_read_only, tiny_disk
from support.stored import make_submission


def check_holds(store: SqlStore, count: int) -> None:
    """Exactly the jobs 1 to `count`, in every table."""
    expected = make_submission(1, count)
    assert list(store.read_journal()) == list(enumerate(expected.events, 1))
    assert store.reader.find_jobs(JobQuery(limit=10_000)) == expected.jobs
    assert store.reader.read_audit(limit=10_000) == tuple(enumerate(expected.audit, 1))
    assert store.last_job_id() == count


def fill(store: SqlStore) -> int:
    """Append until it is refused; returns how many jobs there are."""
    count = 0
    with contextlib.suppress(StorageError):
        while count < 100_000:
            store.append(make_submission(count + 1, 10))
            count += 10
    assert count < 100_000, "the disk was never full"
    return count


@contextlib.contextmanager
def files_no_longer_than(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_grow_refuses_writes_and_takes_them_again(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    with files_no_longer_than(600_000):
        count = fill(store)
        check_holds(store, count)
        with pytest.raises(StorageError, match=r"store\.db: writing: "):
            store.append(make_submission(count + 1, 1_000))
    assert store.append(make_submission(count + 1, 1_000)) == count + 1_000
    check_holds(store, count + 1_000)
    store.close()


def test_a_full_disk_refuses_writes_and_takes_them_again_when_there_is_room():
    with tiny_disk(2_000) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(b"x" * 600_000)
        store = open_store(f"sqlite:///{disk}/store.db")
        count = fill(store)
        check_holds(store, count)
        for _ in range(3):
            with pytest.raises(StorageError, match="full"):
                store.append(make_submission(count + 1, 100))
        ballast.unlink()
        assert store.append(make_submission(count + 1, 100)) == count + 100
        check_holds(store, count + 100)
        store.close()


def test_a_full_disk_still_lets_a_store_be_opened_when_there_is_room_again():
    with tiny_disk(2_000) as disk:
        store = open_store(f"sqlite:///{disk}/store.db")
        store.append(make_submission(1, 10))
        store.close()
        ballast = disk / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4_096)
        with pytest.raises(StorageError):
            open_store(f"sqlite:///{disk}/store.db")
        ballast.unlink()
        store = open_store(f"sqlite:///{disk}/store.db")
        check_holds(store, 10)
        store.close()


def test_a_disk_that_turns_read_only_refuses_writes_and_takes_them_again():
    with tiny_disk(4_000) as disk:
        store = open_store(f"sqlite:///{disk}/store.db")
        store.append(make_submission(1, 10))
        store.close()
        set_read_only(disk, is_on=True)
        with pytest.raises(StorageError, match="cannot be opened for writing: Read-only file system"):
            open_store(f"sqlite:///{disk}/store.db")
        set_read_only(disk, is_on=False)
        store = open_store(f"sqlite:///{disk}/store.db")
        assert store.append(make_submission(11)) == 11
        check_holds(store, 11)
        store.close()


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_commit_that_fails_is_looked_for_and_never_written_twice(tmp_path, monkeypatch, is_kept):
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    store.append(make_submission(1))
    dialect = store._database.writer.dialect
    commit = dialect.do_commit

    def fail(connection: sqlite3.Connection) -> None:
        if is_kept:
            commit(connection)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(dialect, "do_commit", fail)
    with pytest.raises(StorageError, match="disk I/O error"):
        store.append(make_submission(2, 2))
    monkeypatch.undo()
    assert store.append(make_submission(2, 3)) == 4
    check_holds(store, 4)
    assert store.append(Changes()) == 4
    store.close()


HOLD = """
import sys
from clearway.adapters.storage import open_store
store = open_store(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_by_name_and_let_in_after_the_first_died(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StorageError, match=f"found process {holder.pid} on .* writing to it: stop it first"):
            open_store(url)
        holder.kill()
        holder.wait()
    store = open_store(url)
    assert store.append(make_submission(1)) == 1
    store.close()


def test_another_name_of_the_file_is_no_way_past_the_lock(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    (tmp_path / "alias.db").symlink_to(tmp_path / "store.db")
    with pytest.raises(StorageError, match="stop it first"):
        open_store(f"sqlite:///{tmp_path}/alias.db")
    store.close()


def test_a_backup_made_while_it_is_written_to_is_a_whole_store(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/store.db")
    store.append(make_submission(1, 10))
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as source,
        contextlib.closing(sqlite3.connect(tmp_path / "backup.db")) as target,
    ):
        source.backup(target)
    store.append(make_submission(11))
    store.close()
    backup = open_store(f"sqlite:///{tmp_path}/backup.db")
    check_holds(backup, 10)
    assert backup.append(make_submission(11)) == 11
    backup.close()


def test_only_the_owner_can_read_what_users_submit(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/deep/store.db")
    store.append(make_submission(1))
    files = sorted((tmp_path / "deep").iterdir())
    assert [path.name for path in files] == ["store.db", "store.db-shm", "store.db-wal", "store.db.lock"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700
    store.close()
