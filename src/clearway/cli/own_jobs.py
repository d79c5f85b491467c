"""Changing several jobs of which some are other users': one's own are changed, the others named. Light to import."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from clearway.client import Client
    from clearway.model.ids import JobId
    from clearway.ports.views import JobView

    Change = Callable[[Sequence[JobId]], tuple[JobId, ...]]

ROLE_OF_ONE: Final = "user"
"""Who may change his own jobs and no others. (Viewers change none; others all that they see.)"""


def own_user(client: "Client") -> str | None:
    """In whose name the caller's jobs run, where he may change no others; else None."""
    whoami = client.whoami()
    return whoami.unix_user if whoami.role == ROLE_OF_ONE else None


def change_own(
    client: "Client", change: "Change", jobs: "Sequence[JobView]"
) -> "tuple[tuple[JobId, ...], list[JobView]]":
    """(what `change` answers of those of `jobs` that the caller may change, the others). Raises ForbiddenError where
    it was not others' jobs that were denied."""
    from clearway.client.errors import ForbiddenError

    if not jobs:
        return (), []
    try:
        return change([job.id for job in jobs]), []
    except ForbiddenError:
        user = own_user(client)
        own = [job.id for job in jobs if job.user == user]
        if user is None or len(own) == len(jobs):
            raise
        return (change(own) if own else ()), [job for job in jobs if job.user != user]


def requeue_held(client: "Client", jobs: "Sequence[JobView]") -> "Change":
    """A change that has jobs out of `jobs` wait again, held. They are held first, or they would start anew in between.
    Nothing is held where one of them must not run again."""

    def change(numbers: "Sequence[JobId]") -> "tuple[JobId, ...]":
        if all(job.requeue for job in jobs if job.id in numbers):
            client.hold(numbers)
        return client.requeue(numbers)

    return change


def held_later(jobs: "Sequence[JobView]", held: "Sequence[JobId]") -> "list[JobView]":
    """Those of `jobs` that were told to be held while they run."""
    from clearway.cli.slurm.values import is_waiting

    return [job for job in jobs if job.id in held and not is_waiting(job)]
