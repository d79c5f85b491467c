"""What the shell may offer to show the present state to several API servers: the newest rows, and notices as they come.

Nothing here is the truth, which is in the storage, and nothing may wait for it: publishing neither blocks nor raises.
Where it cannot be reached, the control plane goes on, `problem` says so, and readers ask the storage.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from clearway.model.errors import ClearwayError
from clearway.model.ids import JobId
from clearway.ports.control import Notice
from clearway.ports.views import ClusterView, JobView


class FanoutError(ClearwayError):
    """The present state cannot be read now; the storage has what it would say, a little later."""


class Fanout(Protocol):
    """Carries the present state from the one control plane to any number of servers. Safe for several threads."""

    def publish_view(self, view: ClusterView) -> None:
        """The cluster as it is now; the newest replaces those not sent yet."""
        ...

    def publish_jobs(self, jobs: Sequence[JobView]) -> None:
        """Rows that changed; the newest of a job replaces those not sent yet."""
        ...

    def publish_notice(self, notice: Notice) -> None:
        """For every subscriber, in order. While nothing can be sent, the oldest are dropped."""
        ...

    def read_view(self) -> ClusterView | None:
        """The newest view; None = there is none. Raises FanoutError."""
        ...

    def read_jobs(self, jobs: Sequence[JobId]) -> Mapping[JobId, JobView]:
        """The newest rows of those jobs that are known here. Raises FanoutError."""
        ...

    def subscribe(self, take: Callable[[Notice], None]) -> Callable[[], None]:
        """Have `take`, which must not raise, called for each notice from now on, from a thread of its own; returns what
        ends it.

        A notice comes once. Numbers that are left out were dropped: whoever needs them asks the storage.
        """
        ...

    @property
    def problem(self) -> str:
        """Why nothing is sent now, for people; "" = all is well."""
        ...

    def close(self) -> None:
        """Send what waits, if that is possible at once, and end all threads."""
        ...
