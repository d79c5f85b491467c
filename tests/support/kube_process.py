"""`clearway up --backend kubernetes` as a process, and clients of it."""

import signal
import subprocess
import sys
from pathlib import Path

from clearway.bootstrap.places import Places, read_running, read_secret
from clearway.client import Client
from support.cluster import until


class Process:
    """One control plane over a cluster; started again, it goes on where it was killed."""

    def __init__(self, kubeconfig, folder, config="", name="state"):
        self.state = folder / name
        self._words = [sys.executable, "-m", "clearway.cli", "up", "--backend", "kubernetes"]
        self._words += ["--kubeconfig", str(kubeconfig), "--state-dir", str(self.state)]
        self._listen = "0"
        if config:
            path = folder / f"{name}.yaml"
            path.write_text(config)
            self._words += ["--config", str(path)]
        self._log = (folder / f"{name}.log").open("ab")
        self.running = None

    def start(self):
        words = [*self._words, "--listen", self._listen]
        self.running = subprocess.Popen(words, stdout=self._log, stderr=self._log)

    def listen(self, port):
        """At this port from the next start on, instead of at any."""
        self._listen = str(port)

    def read_log(self):
        """What it said so far."""
        return Path(self._log.name).read_text()

    def check(self):
        """Fail where it ended by itself."""
        assert self.running.poll() is None, self.read_log()[-2000:]

    def client(self):
        """A client of it, once it serves."""

        def is_served():
            self.check()
            running = read_running(Places(self.state))
            return running is not None and running.pid == self.running.pid and running

        url = until("a control plane that serves", is_served, 400).url
        return Client(url, read_secret(Places(self.state).token))

    def kill(self):
        self.check()
        self.running.send_signal(signal.SIGKILL)
        self.running.wait()

    def close(self):
        if self.running is not None and self.running.poll() is None:
            self.running.send_signal(signal.SIGCONT)
            self.running.terminate()
            self.running.wait(60)
        self._log.close()
