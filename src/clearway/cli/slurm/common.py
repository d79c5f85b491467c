"""What several Slurm-named commands share."""

import pwd
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from clearway.bootstrap.places import current_user
from clearway.cli.slurm.arguments import Given, UsageError
from clearway.cli.slurm.values import STATE_CODES
from clearway.ports.views import JobState, JobView

if TYPE_CHECKING:
    from clearway.client import Client

DATA_FLAGS: Final = (("", "json"), ("", "yaml"))


def is_job_name(name: str) -> bool:
    """Whether it is written as the name of a job: `12`, `12_3`, `12_[1-3]`."""
    return re.fullmatch(r"[1-9][0-9]{0,17}(?:_(?:[0-9]{1,9}|\[[0-9,:-]+\]))?", name.strip()) is not None


def write_error(name: str, text: str) -> None:
    """`name: error: text` on standard error."""
    sys.stderr.write(f"{name}: error: {text}\n")


def parse_states(words: Sequence[str], refuse: Callable[[str], UsageError]) -> tuple[JobState, ...]:
    """States by short or long name; `all` = any. Raises what `refuse` makes of another word."""
    by_name = {code: state for state, code in STATE_CODES.items()} | {state.value: state for state in JobState}
    states: list[JobState] = []
    for word in words:
        if word.lower() == "all":
            return tuple(JobState)
        if word.upper() not in by_name:
            raise refuse(word)
        states.append(by_name[word.upper()])
    return tuple(states)


def users_of(given: Given) -> tuple[str, ...]:
    """`-u` and `--me`."""
    return given.listed("user") or ((current_user(),) if given.has("me") else ())


def unknown_users(client: "Client", users: Sequence[str]) -> list[str]:
    """Those of `users` of whom neither this machine nor the control plane has heard."""
    from clearway.ports.views import JobQuery

    strangers = [user for user in users if not _is_account(user)]
    if not strangers:
        return []
    whoami = client.whoami()
    known = (whoami.user, whoami.unix_user)
    return [user for user in strangers if user not in known and not client.count_jobs(JobQuery(users=(user,)))]


def _is_account(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def find_all(client: "Client", names: Sequence[str]) -> tuple[list[JobView], list[str]]:
    """(jobs, names of which there are none): of an array, the tasks that it has."""
    from clearway.cli.job_numbers import find_members
    from clearway.client.errors import NotFoundError, RefusedError

    found: list[JobView] = []
    missing: list[str] = []
    for name in names:
        try:
            members, without = find_members(client, name)
        except (NotFoundError, RefusedError):
            members, without = [], name
        found.extend(members)
        missing.extend([without] if without else [])
    return found, missing


def wants_data(given: Given) -> bool:
    """`--json` and `--yaml`: rows for programs instead of a table."""
    return given.has("json") or given.has("yaml")


def write_data(given: Given, **rows: Sequence[object]) -> None:
    """`{name: [...]}` with the rows of the API, as JSON or YAML."""
    import json

    from clearway.wire.api_rows import encode_rows

    text = json.dumps({name: encode_rows(each) for name, each in rows.items()}, indent=1)
    if given.has("yaml"):
        import yaml

        text = yaml.safe_dump(json.loads(text), sort_keys=False).rstrip("\n")
    sys.stdout.write(f"{text}\n")
