"""Users and tokens of one state directory. The file is edited in place; a control plane that runs sees it at once."""

import os
from collections.abc import Sequence
from typing import Final

from clearway.bootstrap.places import Places, now_ms, read_running, read_secret
from clearway.client import Client
from clearway.client.errors import ApiError
from clearway.model.errors import InputError
from clearway.model.ids import ROOT_TENANT, TenantName
from clearway.server.auth import Role, TokenEntry, read_token_file
from clearway.server.auth import add_user as add_token
from clearway.server.auth import revoke_user as revoke_tokens
from clearway.wire.config import Config
from clearway.wire.problems import suggest_name

DAY_MS: Final = 86_400_000


def add_user(
    places: Places,
    config: Config,
    name: str,
    *,
    role: str = "",
    tenants: Sequence[str] | None = None,
    unix_user: str = "",
    days: int | None = None,
) -> str:
    """A new token for `name`. What is not given comes from the configuration, else the defaults. Raises InputError."""
    _check_there(places)
    known = next((user for user in config.users if user.name == name), None)
    role = role or (known.role if known else Role.USER)
    if role not in tuple(Role):
        raise InputError(f"expected a role out of {', '.join(Role)}, found {role!r}; {suggest_name(role, tuple(Role))}")
    chosen = tuple(tenants or ()) or ((known.tenant if known else config.default_tenant),)
    _check_tenants(chosen, config, places)
    expires_ms = None if days is None else now_ms() + days * DAY_MS
    return add_token(
        places.tokens,
        user=name,
        role=Role(role),
        tenants=tuple(TenantName(tenant) for tenant in chosen) if role != Role.OPERATOR else (),
        unix_user=unix_user,
        expires_ms=expires_ms,
    )


def list_users(places: Places) -> tuple[TokenEntry, ...]:
    """All entries, none of which holds a token."""
    _check_there(places)
    return read_token_file(places.tokens)


def revoke_user(places: Places, name: str) -> int:
    """Take all tokens from `name`; how many there were."""
    _check_there(places)
    return revoke_tokens(places.tokens, user=name)


def _check_tenants(chosen: Sequence[str], config: Config, places: Places) -> None:
    """Raise InputError for a tenant that there is not: jobs of its users would be refused, one by one."""
    known: list[str] = [ROOT_TENANT, *(tenant.name for tenant in config.site.tenants)]
    if any(name not in known for name in chosen):
        known = list(dict.fromkeys([*known, *_find_tenants(places)]))
    for name in chosen:
        if name not in known:
            where = config.source or "no configuration file"
            raise InputError(
                f"--tenant: expected a tenant out of {', '.join(known)} ({where}), found {name!r}; "
                f"{suggest_name(name, known) or 'add it to `tenants` of the configuration first'}"
            )


def _find_tenants(places: Places) -> list[str]:
    """Those of the control plane that runs, such as the namespaces of a Kubernetes cluster."""
    running = read_running(places)
    if running is None:
        return []
    try:
        with Client(running.url, read_secret(places.token), ca_file=running.ca_file or None) as client:
            return [str(tenant.name) for tenant in client.tenants()]
    except (ApiError, InputError):
        return []


def _check_there(places: Places) -> None:
    if not os.path.lexists(places.tokens):
        raise InputError(
            f"{places.tokens}: expected the file of tokens, found none; `clearway up` makes it, or name --state-dir"
        )
