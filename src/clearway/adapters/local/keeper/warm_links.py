"""What a run hears of its replicas that warm runners fork, until each of them has begun."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

TOLD_MAX: Final = 4_096
"""Bytes that a start may tell of why it failed. The task's own side of a socket can be made to say anything, without
end."""
REASON_MAX: Final = 300


@dataclass(slots=True)
class WarmLinks:
    """untold: replica by socket, until its runner has forked it. told: sockets of those that have not begun since.
    first: where replica 0 tells, which opens output files that all may share before any other does; -1 = it has.
    held: what waits for that."""

    untold: dict[int, int] = field(default_factory=dict)
    told: set[int] = field(default_factory=set)
    first: int = -1
    held: list[Callable[[], None]] = field(default_factory=list)

    @property
    def is_all_begun(self) -> bool:
        """Whether nothing has to happen before each replica is a process that knows what to execute."""
        return not self.untold and not self.held

    def expect(self, link: int, index: int) -> None:
        """A runner was asked for this replica."""
        self.untold[link] = index
        self.expect_cold(link, index)

    def expect_cold(self, pipe: int, index: int) -> None:
        """The replica is being started without a runner."""
        if index == 0:
            self.first = pipe

    def after_first(self, act: Callable[[], None], pipe: int = -1) -> None:
        """Do it once replica 0 has opened its files, or at once, where it is itself the one that tells there."""
        if self.first in (-1, pipe):
            act()
        else:
            self.held.append(act)

    def go_on(self) -> None:
        """Do what was held up, if nothing holds it up any more."""
        while self.held and self.first < 0:
            self.held.pop(0)()

    def all(self) -> tuple[int, ...]:
        """All sockets."""
        return (*self.untold, *self.told)

    def tell(self, link: int) -> int:
        """There is a process. Returns its replica."""
        self.told.add(link)
        return self.untold.pop(link)

    def drop(self, link: int) -> int | None:
        """Hear no more of it. Returns the replica of which there is no process; None = there is one."""
        self.told.discard(link)
        if link == self.first:
            self.first = -1
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
