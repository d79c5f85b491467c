"""A real `clearway up` in a process of its own, and the command against it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from clearway.bootstrap.places import Places, read_running, read_secret
from clearway.client import Client

MAIN = "from clearway.cli import main; main()"
READY_S = 180
"""The first start on a machine compiles the engine."""
WAIT_S = 120


def wait_until(is_so: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> None:
    """Look until `is_so`, or fail."""
    deadline = time.monotonic_ns() + int(limit_s * 1e9)
    while not is_so():
        assert time.monotonic_ns() < deadline, f"waited {limit_s} s in vain: {what}"
        time.sleep(0.02)


class ControlPlane:
    """Started by `start`; `folder` is its state directory, and `work` where commands are typed.

    devices: "" = those that it finds."""

    def __init__(self, folder: Path, devices: str = "1x4") -> None:
        self.folder = folder / "state"
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.devices = devices
        self.log = folder / "up.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def places(self) -> Places:
        return Places(self.folder)

    def environment(self) -> dict[str, str]:
        own = ("CLEARWAY", "SLURM", "SBATCH", "SQUEUE", "SINFO", "SACCT")
        given = os.environ.items()  # noqa: TID251 - a test run is a program; its environment is its border
        kept = {name: value for name, value in given if not name.startswith(own)}
        return {**kept, "LC_ALL": "C.UTF-8", "CLEARWAY_STATE_DIR": str(self.folder), "XDG_CONFIG_HOME": str(self.work)}

    def start(self, *words: str) -> None:
        """Start it and wait until it is ready."""
        self.spawn(*words)
        assert self.process is not None
        pid = self.process.pid

        def is_ready() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            running = read_running(self.places)
            return running is not None and running.pid == pid

        wait_until(is_ready, "a control plane that is ready", READY_S)

    def spawn(self, *words: str) -> None:
        """Start it, and do not wait."""
        devices = ("--devices", self.devices) if self.devices else ()
        command = [sys.executable, "-c", MAIN, "up", "--listen", "0", *devices, *words]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.work, env=self.environment(), stdout=log, stderr=log, start_new_session=True
            )

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send it a signal, and wait for its end; its exit status."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(WAIT_S)

    def run(self, *words: str, limit_s: float = WAIT_S) -> subprocess.CompletedProcess[str]:
        """`clearway` with these words."""
        return subprocess.run(
            [sys.executable, "-c", MAIN, *words],
            cwd=self.work,
            env=self.environment(),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=limit_s,
        )

    def say(self, *words: str, limit_s: float = WAIT_S) -> str:
        """What a command prints that must not fail."""
        answer = self.run(*words, limit_s=limit_s)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def client(self) -> Client:
        running = read_running(self.places)
        assert running is not None
        return Client(running.url, read_secret(self.places.token))

    def tidy(self) -> None:
        """Leave nothing that runs."""
        if self.process is not None and self.process.poll() is None:
            self.run("down", "--stop-jobs")
            self.process.wait(WAIT_S)
