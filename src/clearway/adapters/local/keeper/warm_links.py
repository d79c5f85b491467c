"""What a run hears of its replicas that warm runners fork, until each of them has begun."""

import os
from dataclasses import dataclass, field
from typing import Final

TOLD_MAX: Final = 4_096
"""Bytes that a start may tell of why it failed. The task's own side of a socket can be made to say anything, without
end."""
REASON_MAX: Final = 300


@dataclass(slots=True)
class WarmLinks:
    """untold: replica by socket, until its runner has forked it. told: sockets of those that have not begun since."""

    untold: dict[int, int] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)

    def list(self) -> tuple[int, ...]:
        """All sockets."""
        return (*self.untold, *self.told)

    def tell(self, link: int) -> int:
        """There is a process. Returns its replica."""
        self.told.add(link)
        return self.untold.pop(link)

    def drop(self, link: int) -> int | None:
        """Hear no more of it. Returns the replica of which there is no process; None = there is one."""
        self.told.discard(link)
        return self.untold.pop(link, None)


def hear(pipe: int) -> bytes:
    """What a start tells; b"" = no more, or it was lost. Raises BlockingIOError where there is nothing yet."""
    try:
        return os.read(pipe, TOLD_MAX)
    except BlockingIOError:
        raise
    except OSError:  # its process ended and left unread what it was told
        return b""


def explain(failure: bytes) -> str:
    """As `explain_failure`, of what a user's process may have written."""
    text = failure.decode(errors="replace")
    step, _, number = text.rpartition(": ")
    is_number = number.isascii() and number.isdigit() and len(number) < 4
    text = f"{step}: {os.strerror(int(number))}" if is_number else text
    return "".join(letter for letter in text if letter.isprintable())[:REASON_MAX]
