"""Has snapshots of the journal made now and then, by a process of lowest priority beside the control plane's.

That process reads what came since the last one, as any start does; the control plane is not held up, and keeps nothing
twice. It fails alone: then the next start reads more.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOG = logging.getLogger(__name__)

RECORDS: Final = 50_000
"""A snapshot is made when so many records have come since the last: a start then takes seconds, and making it costs a
few per cent of one processor where records come as fast as one machine decides."""

LOOK_S: Final = 5.0
"""How often the number of records is looked at."""

NICE: Final = 19


class SnapshotMaker:
    """command: makes one. last_record: number of the journal's last record now. begun: that of the newest snapshot.
    records: after so many another is made."""

    def __init__(
        self, command: Sequence[str], last_record: Callable[[], int], *, begun: int, records: int = RECORDS
    ) -> None:
        self._command, self._last_record, self._made, self._records = tuple(command), last_record, begun, records
        self._closing = threading.Event()
        self._child: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="clearway-snapshots", daemon=True)

    def begin(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and the process that makes one now."""
        self._closing.set()
        with self._lock:
            if self._child is not None:
                self._child.terminate()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while not self._closing.is_set():
            now = self._last_record()
            if now - self._made >= self._records:
                self._made = now  # where it fails, the next is tried as many records later
                self._make()
            self._closing.wait(LOOK_S)

    def _make(self) -> None:
        with self._lock:
            if self._closing.is_set():
                return
            child = self._child = subprocess.Popen(  # noqa: S603 - of our own words alone
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, child.pid, NICE)
        _, told = child.communicate()
        with self._lock:
            self._child = None
        if child.returncode and not self._closing.is_set():
            _LOG.warning("no snapshot of the journal was made, the next start reads more: %s", told.strip())


def snapshot_command(folder: Path, least: int = RECORDS) -> list[str]:
    """What makes one, by the configuration that `server.json` names."""
    command = [sys.executable, "-m", "clearway.cli", "journal", "snapshot"]
    return [*command, "--state-dir", str(folder), "--least", str(least)]
