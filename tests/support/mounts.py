"""Small file systems in memory, for disks that are full or read-only."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tiny_disk(kilobytes: int) -> Iterator[Path]:
    """A file system of this size; skips the test where none may be mounted."""
    with tempfile.TemporaryDirectory(prefix="clearway-") as folder:
        size = f"size={kilobytes}k,mode=700"
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting a file system needs root: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def set_read_only(folder: Path, *, is_on: bool) -> None:
    """Remount a file system, as its driver does with a disk that fails."""
    subprocess.run(["mount", "-o", "remount,ro" if is_on else "remount,rw", str(folder)], check=True)
