"""A control plane as users start it, `clearway up` in a process of its own, for `bench.living`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from clearway.bootstrap.places import Places, find_connection
from clearway.client import Client
from clearway.model.ids import JobId
from clearway.ports.views import JobQuery
from clearway.wire.api import SubmittedFile

READY_S: Final = 900.0
"""The first start on a machine compiles the engine."""


@contextmanager
def control_plane(devices: str, **settings: object) -> Iterator[tuple[Client, Path]]:
    """A client of a fresh control plane with virtual devices, and a folder for jobs. settings: of its configuration."""
    with TemporaryDirectory(prefix="clearway-bench-") as name:
        folder = Path(name)
        work = folder / "work"
        work.mkdir()
        config = folder / "clearway.yaml"
        lines = [f"cluster: {devices}", "listen: 127.0.0.1:0", "log_level: warning"]
        config.write_text("\n".join([*lines, *(f"{key}: {value}" for key, value in settings.items())]) + "\n")
        words = [
            sys.executable,
            "-m",
            "clearway.cli",
            "up",
            "--config",
            str(config),
            "--state-dir",
            str(folder / "state"),
        ]
        with open(folder / "up.log", "wb") as log:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            with _await_ready(process, folder) as client:
                yield client, work
                _cancel_all(client)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


def connect(work: Path) -> Client:
    """Another client of the control plane whose folder for jobs is `work`."""
    found = find_connection({}, work.parent / "state")
    return Client(found.url, found.token, timeout_s=120.0)


def _await_ready(process: "subprocess.Popen[bytes]", folder: Path) -> Client:
    deadline = time.monotonic() + READY_S
    server = Places(folder / "state").server
    while time.monotonic() < deadline and process.poll() is None:
        if server.exists():
            return connect(folder / "work")
        time.sleep(0.05)
    raise RuntimeError(f"expected a control plane, found:\n{(folder / 'up.log').read_text(errors='replace')}")


def _cancel_all(client: Client) -> None:
    active = [row.id for row in client.all_jobs(JobQuery(limit=10_000)) if not row.state.is_final]
    if active:
        client.cancel(active)
        client.wait(active)


def submit(client: Client, work: Path, *jobs: dict[str, Any]) -> tuple[JobId, ...]:
    """Submit jobs, each given by the keys of a job file, in one request."""
    files = [SubmittedFile(job=job) for job in jobs]
    return client.submit(files, cwd=str(work), environment={"PATH": os.environ["PATH"]}).jobs


def count_active(client: Client) -> int:
    """How many jobs have not ended."""
    counts = client.count_jobs(JobQuery())
    return sum(count for state, count in counts.items() if not state.is_final)
