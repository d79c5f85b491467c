"""Jobs that wait and have no pods any more: their controllers make these anew, or somebody deleted what they were of.

Who deletes a Job, or whatever else made the pods, takes its job back: the object is asked for at once, and again now
and then. Where no object says whether there will be pods, a job is kept for a while.
"""

from typing import Final

from clearway.adapters.kubernetes.allowing import Allowing
from clearway.adapters.kubernetes.runs import Bundle
from clearway.adapters.kubernetes.sightings import GONE
from clearway.model.events import JobCancelled

EMPTY_MS: Final = 15 * 60_000
"""Longer than Kubernetes' own controllers ever pause before they make a pod anew (10 minutes)."""


class Orphans(Allowing):
    """The part of the book about jobs without pods."""

    def _note_empty(self, now_ms: int, bundle: Bundle) -> None:
        """A waiting job was looked at."""
        key = bundle.group.key
        if self._live(bundle):
            self._empty.pop(key, None)
        elif key not in self._empty:
            self._ask_again(now_ms, bundle)

    def _ask_again(self, now_ms: int, bundle: Bundle) -> None:
        self._empty[bundle.group.key] = now_ms + EMPTY_MS
        if bundle.group.source is not None:
            self._wanted[bundle.group.source] = None

    def _look_at_empty(self, now_ms: int) -> None:
        """Take back the jobs that will have no pods any more."""
        for key, until_ms in list(self._empty.items()):
            bundle = self.bundles.get(key)
            if bundle is None or bundle.job is None or bundle.run is not None or self._live(bundle):
                del self._empty[key]
            elif until_ms == GONE or (now_ms >= until_ms and bundle.group.source is None):
                del self._empty[key]
                self._events.append(JobCancelled(now_ms, bundle.job))
                self._forget(bundle)
            elif now_ms >= until_ms:
                self._ask_again(now_ms, bundle)
