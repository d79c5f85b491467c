"""The mixed demonstration: told by what the control plane itself reports."""

import threading
from typing import Final

from clearway.client import Client

POLL_S: Final = 0.2


class Demonstration:
    """Submits the jobs and watches them. lines: what happened, for people; is_over: nothing more will."""

    def __init__(self, client: Client, ended: threading.Event) -> None:
        self._client = client
        self._ended = ended
        self.lines: list[str] = []
        self.is_over = False
        self.is_good = False

    def run(self) -> None:
        """Submit and watch, until all has ended or the user has seen enough."""
        self.is_over = True

    def findings(self) -> list[str]:
        """What was seen, a line each."""
        return []
