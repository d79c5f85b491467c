"""Accounts of this machine: as whom a job runs."""

import os
import pwd
from dataclasses import dataclass

from clearway.model.errors import ClearwayError


class AccountError(ClearwayError):
    """A job cannot run as its user here; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """uid, gid: None = what the control plane runs as."""

    name: str
    home: str
    login_shell: str
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()


def find_account(name: str) -> Account:
    """The account by that name ("" = our own), if we may run as it. Raises AccountError."""
    own = os.geteuid()
    try:
        entry = pwd.getpwnam(name) if name else pwd.getpwuid(own)
    except (KeyError, ValueError):
        expected = f"an account of this machine to run the job; found user {name!r}, who has none here"
        hint = "make the account, or give the token another: `clearway users add --unix-user`"
        raise AccountError(f"expected {expected}: {hint}") from None
    if own != 0:
        if entry.pw_uid != own:
            mine = pwd.getpwuid(own).pw_name
            found = f"found user {name!r} and a control plane that runs as {mine!r}"
            raise AccountError(f"expected root to run jobs of several users; {found}: start it as root, or as {name!r}")
        return Account(name=entry.pw_name, home=entry.pw_dir, login_shell=entry.pw_shell)
    return Account(
        name=entry.pw_name,
        home=entry.pw_dir,
        login_shell=entry.pw_shell,
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        groups=tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
    )
