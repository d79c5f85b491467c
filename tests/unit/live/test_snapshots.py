"""A snapshot and the rest of the journal make what the whole journal makes, byte for byte, under whichever policy."""

import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from clearway.adapters.storage import SnapshotFolder
from clearway.forecast.runtime import RuntimeHistory
from clearway.kernel import Kernel
from clearway.live.guard import GuardSettings
from clearway.live.memory import Memory
from clearway.live.recall import take_snapshot
from clearway.live.replay import replay_journal
from clearway.live.verify import Verifier
from clearway.model.cluster import TenantSpec
from clearway.model.errors import InputError
from clearway.model.events import ControlStarted
from clearway.model.jobs import Dependency, DependencyKind, JobKind
from clearway.policies.named import named_policy
from clearway.ports.control import PROVISIONAL_ID
from clearway.ports.snapshots import Snapshot
from clearway.ports.storage import JournalError, StorageError
from support.live import Plane, make_spec

TENANTS = tuple(TenantSpec(name=name) for name in ("blue", "red"))
KINDS = (JobKind.TRAIN, JobKind.TASK)


def make_kernel(name):
    return Kernel(named_policy(name), RuntimeHistory())


def make_memory(policy="easy"):
    return Memory(make_kernel(policy), GuardSettings())


def busy_plane(seed, policy="easy", rounds=12):
    """Jobs of several users and tenants that wait, run, fail, are held, cancelled and depend on others."""
    draw = random.Random(seed)
    plane = Plane(nodes=3, devices=4, policy=policy, tenants=TENANTS).start()
    for _ in range(rounds):
        specs, scripts = [], []
        for place in range(draw.randint(1, 5)):
            depends = place and draw.random() < 0.3
            dependency = (Dependency(kind=DependencyKind.AFTER_ANY, job=PROVISIONAL_ID + place - 1),) if depends else ()
            spec = make_spec(
                place,
                devices=draw.choice((1, 1, 2, 4)),
                user=draw.choice("ab"),
                tenant=draw.choice(("blue", "red")),
                name=f"step{draw.randint(0, 3)}",
                kind=draw.choice(KINDS),
                held=draw.random() < 0.1,
                estimate_ms=draw.randint(1, 900),
                dependencies=dependency,
            )
            specs.append(spec)
            outcome = draw.choice(("", "", " outcome=FAILED"))
            scripts.append(f"run_ms={draw.randint(1, 900)}{outcome}")
        numbers = plane.submit(*specs, scripts=scripts)
        if draw.random() < 0.3:
            plane.do(plane.control.cancel((draw.choice(numbers),), actor="op"))
        plane.run(until_ms=plane.clock.now_ms() + draw.randint(1, 600))
    return plane


class MemorySnapshots:
    """`clearway.ports.snapshots.Snapshots`, whatever the basis."""

    def __init__(self):
        self.kept = []

    def find(self, basis):
        return iter([snapshot for snapshot in reversed(self.kept) if snapshot.basis == basis])

    def keep(self, snapshot):
        self.kept.append(snapshot)


@pytest.mark.parametrize("seed", range(3))
def test_snapshot_and_rest_make_what_the_whole_journal_makes(seed):
    records = list(busy_plane(seed).store.read_journal())
    whole, dumps = make_memory(), {}
    for number, event in records:
        whole.recover(event)
        if number % 11 == 0:
            dumps[number] = whole.dump()
    for number, payload in dumps.items():
        memory = make_memory("fifo")
        memory.load(payload)
        assert memory.dump() == payload
        for _, event in records[number:]:
            memory.recover(event)
        assert memory.dump() == whole.dump()


@pytest.mark.parametrize("policy", ["easy", "clearway", "gittins", "fifo"])
def test_decisions_after_a_start_are_the_same_with_a_snapshot_and_without(policy):
    logs = []
    for snapshots in (None, MemorySnapshots()):
        plane = busy_plane(7, policy)
        if snapshots is not None:
            records = list(plane.store.read_journal())
            take_snapshot(make_memory(), snapshots, lambda _, found=records: iter(found[: len(found) // 2]), 1)
        lines = []
        plane.options |= {"snapshots": snapshots, "decision_log": lines.append}
        plane.start()
        plane.submit(*[make_spec(place, estimate_ms=50) for place in range(9)], scripts=["run_ms=70"] * 9)
        plane.run()
        assert (plane.control.read_from > 0) == (snapshots is not None)
        logs.append((lines, plane.control.digest.hexdigest(), plane.store.rows))
    assert logs[0][0]
    assert logs[0] == logs[1]


def test_another_policy_goes_on_from_the_snapshot_and_the_journal_proves_it():
    plane = busy_plane(5)
    snapshots = MemorySnapshots()
    made = take_snapshot(make_memory(), snapshots, plane.store.read_journal, 1)
    plane.options |= {"snapshots": snapshots}
    plane.start()
    plane.submit(*[make_spec(place) for place in range(20)], scripts=["run_ms=40"] * 20)
    read = []
    whole = plane.store.read_journal
    plane.store.read_journal = lambda after=0: read.append(after) or whole(after)
    plane.do(plane.control.set_policy(named_policy("fifo")))
    assert read == [made.record]
    plane.run()
    assert [event.policy for event in plane.store.events if isinstance(event, ControlStarted)][-1] == "fifo"
    assert replay_journal(list(whole()), lambda started: make_kernel(started.policy)).difference is None


def test_no_snapshot_is_made_where_too_little_has_come():
    plane, snapshots = busy_plane(2, rounds=2), MemorySnapshots()
    assert take_snapshot(make_memory(), snapshots, plane.store.read_journal, 1_000) is None
    assert take_snapshot(make_memory(), snapshots, plane.store.read_journal, 1) is not None
    assert take_snapshot(make_memory(), snapshots, plane.store.read_journal, 1) is None


@pytest.mark.parametrize("payload", [b"", b"x\x9c", b"not zlib at all"])
def test_bytes_of_something_else_change_nothing(payload):
    memory = make_memory()
    with pytest.raises(InputError, match="snapshot"):
        memory.load(payload)
    assert memory.dump() == make_memory().dump()


# --- the folder -------------------------------------------------------------------------------------------------------


def make_folder(path, told, checksums=None):
    checksums = {number: f"sum {number}" for number in range(1, 100)} if checksums is None else checksums
    return SnapshotFolder(path / "snapshots", checksums.get, told.append)


def make_snapshot(record, payload=b"content"):
    return Snapshot(record=record, basis="basis", payload=payload)


def test_newest_and_the_one_before_are_kept(tmp_path):
    told = []
    folder = make_folder(tmp_path, told)
    for record in (9, 10, 11):
        folder.keep(make_snapshot(record))
    assert list(folder.find("basis")) == [make_snapshot(11), make_snapshot(10)]
    assert not told


@pytest.mark.parametrize("place", [0, 20, -1])
def test_damaged_snapshot_is_left_out_with_a_line_and_the_one_before_is_taken(tmp_path, place):
    told = []
    folder = make_folder(tmp_path, told)
    folder.keep(make_snapshot(9))
    folder.keep(make_snapshot(10))
    path = tmp_path / "snapshots" / "10.snapshot"
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
    assert list(folder.find("basis")) == [make_snapshot(9)]
    assert len(told) == 1
    assert "10.snapshot" in told[0]


def test_snapshot_cut_at_any_byte_is_left_out(tmp_path):
    told = []
    folder = make_folder(tmp_path, told)
    folder.keep(make_snapshot(9))
    path = tmp_path / "snapshots" / "9.snapshot"
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert list(folder.find("basis")) == []
    assert len(told) == len(whole)


def test_snapshot_of_another_journal_or_of_other_settings_is_left_out(tmp_path):
    told, checksums = [], {9: "nine"}
    folder = make_folder(tmp_path, told, checksums)
    folder.keep(make_snapshot(9))
    assert list(folder.find("another basis")) == []
    checksums[9] = "another nine"
    assert list(folder.find("basis")) == []
    assert ["other settings" in told[0], "record 9 is another" in told[1]] == [True, True]


def test_snapshots_of_the_journal_before_a_restore_make_room_for_those_made_after_it(tmp_path):
    before = {record: f"old{record}" for record in (100, 150)}
    for record in before:
        make_folder(tmp_path, [], before).keep(make_snapshot(record))
    told = []
    folder = make_folder(tmp_path, told, {60: "new60", 80: "new80", 100: "new100"})
    for record in (60, 80):
        folder.keep(make_snapshot(record))
    assert [found.record for found in folder.find("basis")] == [80, 60]
    assert told == []


def test_what_a_killed_writer_left_goes_with_the_next_snapshot(tmp_path):
    folder = make_folder(tmp_path, [])
    folder.keep(make_snapshot(9))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    for pid in (ended.pid, os.getppid()):
        (tmp_path / "snapshots" / f".8.snapshot.{pid}").write_bytes(b"half")
    folder.keep(make_snapshot(10))
    names = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert names == [f".8.snapshot.{os.getppid()}", "10.snapshot", "9.snapshot"]


def test_snapshot_that_cannot_be_written_leaves_nothing(tmp_path):
    folder = make_folder(tmp_path, [])
    (tmp_path / "snapshots").write_text("a file where the folder should be")
    with pytest.raises(StorageError, match="no snapshot was written"):
        folder.keep(make_snapshot(9))
    assert [path.name for path in tmp_path.iterdir()] == ["snapshots"]


# --- verify -----------------------------------------------------------------------------------------------------------


def verify(plane, snapshots=()):
    verifier = Verifier(make_memory(), plane.store, snapshots)
    for number, event in plane.store.read_journal():
        verifier.take(number, event)
    return verifier.finish(is_still=True)


def test_verify_proves_rows_and_snapshots():
    plane, snapshots = busy_plane(4), MemorySnapshots()
    made = take_snapshot(make_memory(), snapshots, plane.store.read_journal, 1)
    checked = verify(plane, snapshots.kept)
    assert checked.rows == len(plane.store.rows) > 0
    assert checked.snapshots == [made.record]


def test_verify_takes_what_jobs_said_of_their_progress_for_what_it_is():
    plane = Plane(devices=2).start()
    ended, running = plane.submit(make_spec(0), make_spec(1), scripts=["run_ms=2000", "run_ms=9000"])
    plane.backend.said = {ended: 0.25, running: 0.5}
    plane.run(until_ms=1_500)
    plane.run(until_ms=5_000)
    assert plane.state(ended).is_final
    assert [plane.store.rows[job].progress for job in (ended, running)] == [0.25, 0.5]
    assert verify(plane).rows == 2


def test_verify_names_the_row_that_the_journal_does_not_make():
    plane = busy_plane(4)
    job, row = next((job, row) for job, row in plane.store.rows.items() if row.state.is_final)
    plane.store.rows[job] = make_other(row)
    with pytest.raises(JournalError, match=rf"row of job {job}: expected end_ms"):
        verify(plane)
    del plane.store.rows[job]
    with pytest.raises(JournalError, match=rf"row of job {job}: missing"):
        verify(plane)


def make_other(row):
    return replace(row, end_ms=row.end_ms + 1)


def test_verify_names_the_snapshot_that_the_journal_does_not_make():
    plane = busy_plane(4)
    other = busy_plane(6)
    snapshots = MemorySnapshots()
    take_snapshot(make_memory(), snapshots, other.store.read_journal, 1)
    wrong = Snapshot(record=9, basis=snapshots.kept[0].basis, payload=snapshots.kept[0].payload)
    with pytest.raises(JournalError, match="snapshot of record 9"):
        verify(plane, [wrong])
