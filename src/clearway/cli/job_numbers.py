"""Jobs as people name them: `12`, `123_4` for a member of an array, `123_[1-3]`, and `123` for a whole array."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from clearway.model.errors import InputError
from clearway.model.ids import JobId

if TYPE_CHECKING:
    from clearway.client import Client
    from clearway.ports.views import JobView

_NUMBER: Final = re.compile(r"([1-9][0-9]{0,17})(?:_(?:([0-9]{1,9})|\[([0-9,:-]+)\]))?$")


def resolve_jobs(client: "Client", names: Iterable[str]) -> "list[JobView]":
    """The jobs that are meant, in order. A number of an array stands for all its members. Raises InputError."""
    return list({job.id: job for name in names for job in find_jobs(client, name)}.values())


def find_jobs(client: "Client", name: str) -> "list[JobView]":
    """Rows of what `name` means. Raises InputError for what is no number, and where there is no such job."""
    found, missing = find_members(client, name)
    if missing:
        raise InputError(
            f"expected tasks of an array that are there, found none of {missing}; `clearway jobs` lists them"
        )
    return found


def find_members(client: "Client", name: str) -> "tuple[list[JobView], str]":
    """(rows of what `name` means, the name of those of its tasks that there are not; "" = none). Raises InputError for
    what is no number, and where there is no such job."""
    from clearway.ports.views import JobQuery

    match = _NUMBER.fullmatch(name.strip())
    if match is None:
        raise InputError(f"expected a job such as 12, 123_4 or 123_[1-3], found {name!r}; `clearway jobs` lists them")
    number = JobId(int(match[1]))
    if match[2] is None and match[3] is None:
        return list(client.all_jobs(JobQuery(array=number))) or [client.job(number)], ""
    wanted = _indices(match[2] or match[3])
    found = [job for job in client.all_jobs(JobQuery(array=number)) if job.array_index in wanted]
    missing = wanted - {job.array_index for job in found}
    return found, f"{number}_{_name_indices(sorted(missing))}" if missing else ""


def _name_indices(indices: list[int]) -> str:
    from clearway.cli.slurm.values import render_ranges

    return str(indices[0]) if len(indices) == 1 else f"[{render_ranges(indices)}]"


def _indices(text: str) -> set[int]:
    from clearway.wire.ranges import parse_array

    return set(parse_array(text).indices)


def parse_job(name: str) -> JobId:
    """A plain number. Raises InputError."""
    if not re.fullmatch(r"[1-9][0-9]{0,17}", name.strip()):
        raise InputError(f"expected the number of a job such as 12, found {name!r}; `clearway jobs` lists them")
    return JobId(int(name))


def one_job(client: "Client", name: str) -> "JobView":
    """The single job that `name` means; of an array, the first member."""
    return find_jobs(client, name)[0]
