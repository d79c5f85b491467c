"""Run as a program: have Docker's daemon take containers away, and end with 0 once it says that they are not there.

Arguments: where the daemon listens, whose containers these are, their names. A run of which a client was killed may be
about to start in the daemon; only its word says that nothing more will. What a killed client had made, and never
started, is taken away with the next.
"""

import http.client
import json
import socket
import sys
import time
from typing import Final
from urllib.parse import quote

SCHEME: Final = "unix://"
LABEL: Final = "clearway"
ANSWER_S: Final = 10.0
"""Longest wait for an answer; ending a container takes some tenths of a second."""
AGAIN_S: Final = 0.05
TRIES_MAX: Final = 100
FORSAKEN_S: Final = 60
"""A container that was made so long ago and not started belongs to a client that was killed."""
GONE: Final = (204, 404)
BUSY: Final = 409


class Daemon(http.client.HTTPConnection):
    """By its socket."""

    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=ANSWER_S)
        self._path = path

    def connect(self) -> None:
        """See `HTTPConnection.connect`."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def ask(self, method: str, path: str) -> tuple[int, bytes]:
        """Status and body of an answer. Raises OSError, HTTPException."""
        self.request(method, path)
        answer = self.getresponse()
        return answer.status, answer.read()


def remove(daemon: Daemon, name: str) -> bool:
    """End a container and take it away; whether it is gone."""
    for _ in range(TRIES_MAX):
        status, _ = daemon.ask("DELETE", f"/containers/{quote(name)}?force=1&v=1")
        if status in GONE:
            return True
        if status != BUSY:  # that it is being removed already
            return False
        time.sleep(AGAIN_S)
    return False


def remove_forsaken(daemon: Daemon, owner: str) -> None:
    """Take away what clients made that were killed before they could start it."""
    filters = quote(json.dumps({"label": [f"{LABEL}={owner}"], "status": ["created"]}))
    status, body = daemon.ask("GET", f"/containers/json?all=1&filters={filters}")
    for found in json.loads(body) if status == http.client.OK else ():
        if found["Created"] < time.time_ns() // 1_000_000_000 - FORSAKEN_S:
            remove(daemon, found["Id"])


def main(host: str, owner: str, *names: str) -> int:
    """Exit status: 0 = none of the names is a container's any more."""
    daemon = Daemon(host.removeprefix(SCHEME))
    try:
        gone = [remove(daemon, name) for name in names]
        if not all(gone):
            return 1
        remove_forsaken(daemon, owner)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"Docker's daemon at {host}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
