"""How commands reach the control plane: by the environment, or the files that `clearway up` left for its own user.

Without Typer, which takes longer to load than all that a Slurm-named command does.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from clearway.bootstrap.places import TOKEN_VARIABLE, Places, find_connection, find_state_dir

if TYPE_CHECKING:
    from clearway.client import Client
    from clearway.ports.views import JobQuery, JobView


def environment() -> dict[str, str]:
    """A copy of this process's environment."""
    return dict(os.environ)  # noqa: TID251 - the command line is the border


def submitted_environment() -> dict[str, str]:
    """What a job inherits of this process's environment: all but the token, which would lie in the database."""
    return {name: value for name, value in environment().items() if name != TOKEN_VARIABLE}


def places_of(state_dir: Path | None = None) -> Places:
    """Files of the state directory that was asked for, or of the default one."""
    return Places(find_state_dir(environment(), state_dir))


def connect(state_dir: Path | None = None) -> "Client":
    """A client of the control plane. Raises InputError where nothing says which."""
    from clearway.client import Client

    found = find_connection(environment(), state_dir)
    return Client(found.url, found.token, ca_file=found.ca_file)


def fetch_jobs(client: "Client", wanted: "JobQuery", limit: int) -> "list[JobView]":
    """Up to `limit` jobs, however many pages that takes."""
    from itertools import islice

    return list(islice(client.all_jobs(wanted), limit))
