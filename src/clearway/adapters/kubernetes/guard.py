"""A mistake of Clearway's own about one pod, or one object that a user made, is no reason to stop for all others.

Whoever judges a pod catches everything, notes it here, puts back what it had changed, and says `BROKEN` to the pod.
"""

import logging
from collections.abc import Hashable
from typing import Final

log = logging.getLogger(__name__)

BROKEN: Final = "the pod could not be understood by this scheduler; an operator finds the reason in its log"

NOTED_MAX: Final = 10_000
"""What is remembered; what is forgotten is judged, and logged, once more."""


class Guard:
    """Remembers what could not be judged, in the version in which it was seen."""

    def __init__(self) -> None:
        self._noted: dict[Hashable, Hashable] = {}

    def note(self, key: Hashable, version: Hashable, name: str) -> None:
        """In an `except`: the exception is logged, with its traceback, once for each version."""
        if self.knows(key, version):
            return
        self._noted.pop(key, None)
        self._noted[key] = version
        if len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]
        log.exception("%s could not be judged and is left out; all else goes on. This is a mistake in Clearway", name)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._noted

    def knows(self, key: Hashable, version: Hashable) -> bool:
        """Whether it could not be judged as it is."""
        return key in self._noted and self._noted[key] == version

    def forget(self, key: Hashable) -> None:
        """It was judged."""
        self._noted.pop(key, None)
