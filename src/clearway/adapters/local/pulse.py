"""Whether the keeper lives: who was asked and does not answer is silent, who says anything is not. Pure."""

from typing import Final

SILENT_LOOKS: Final = 10
"""Looks in a row, a second apart, after which a keeper that owes an answer counts as silent. It answers within
milliseconds; only a full disk or a machine that swaps makes that seconds. Looks, and not time: where this process
itself was stopped, nobody can say that the other did not answer."""
SILENT: Final = "its keeper does not answer; its jobs run on, and nothing new starts until it does"


class Pulse:
    """owes: the keeper was asked for something, or there is none. is_due: it is to be asked, once a look, since its
    answer wakes who asked. is_silent: as `take_turn` last said."""

    def __init__(self) -> None:
        self.owes = False
        self.is_due = False
        self.is_silent = False
        self._looks = 0

    def hear(self, *, is_answer: bool) -> None:
        """It has said something, perhaps what it was asked for."""
        self._looks = 0
        self.owes = self.owes and not is_answer

    def give_up(self) -> None:
        """It was waited for long enough."""
        self.owes, self._looks = True, SILENT_LOOKS

    def look(self) -> bool:
        """A second of this process has passed; True = there is something to ask or to tell. From any thread."""
        self._looks += self.owes
        self.is_due = not self.owes
        return self.is_due or self._looks == SILENT_LOOKS

    def ask(self) -> bool:
        """Whether to ask it now; it owes the answer then."""
        is_due, self.is_due = self.is_due, False
        self.owes = self.owes or is_due
        return is_due

    def take_turn(self) -> bool:
        """Whether it fell silent, or speaks again, since the last call."""
        was_silent, self.is_silent = self.is_silent, self._looks >= SILENT_LOOKS
        return was_silent != self.is_silent
