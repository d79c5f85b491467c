"""Keys of submissions: the same key is answered with the same jobs, after a restart too. Rebuilt from the journal."""

from collections import OrderedDict
from typing import Final

from clearway.live.books import each_part
from clearway.model.events import Event, SubmissionAccepted
from clearway.model.ids import JobId

KEYS_MAX: Final = 100_000
"""Keys remembered, the latest; clients try again within minutes, and a key with its numbers takes some 300 bytes."""


class Keys:
    """(Submitter, key) → numbers of the jobs that were accepted under it."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[tuple[str, str], tuple[JobId, ...]] = OrderedDict()

    def note(self, event: Event) -> None:
        """Take in one record."""
        for part in each_part(event):
            if isinstance(part, SubmissionAccepted):
                self._jobs[part.actor, part.key] = part.jobs
                if len(self._jobs) > KEYS_MAX:
                    self._jobs.popitem(last=False)

    def find(self, actor: str, key: str) -> tuple[JobId, ...] | None:
        """The jobs of an accepted submission, None = the key is new."""
        return self._jobs.get((actor, key))

    def kept(self) -> OrderedDict[tuple[str, str], tuple[JobId, ...]]:
        """What `restore` takes."""
        return self._jobs

    def restore(self, kept: OrderedDict[tuple[str, str], tuple[JobId, ...]]) -> None:
        """Know what another knew."""
        self._jobs = kept
