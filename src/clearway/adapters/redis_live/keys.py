"""What stands where in Redis."""

from dataclasses import dataclass
from typing import Final

NOTICES_MAX: Final = 10_000
"""Notices that are kept for subscribers who were away for a moment."""

JOB_LIVES_S: Final = 86_400
"""A job's row is dropped when it has not changed for a day: then the storage is asked."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of keys, for one control plane. prefix: tells control planes apart that share a Redis."""

    prefix: str = "clearway"

    @property
    def view(self) -> str:
        """Text: the ClusterView."""
        return f"{self.prefix}:view"

    @property
    def notices(self) -> str:
        """Stream: `run`, and `notice`."""
        return f"{self.prefix}:notices"

    def job(self, number: int) -> str:
        """Text: the JobView."""
        return f"{self.prefix}:job:{number}"
