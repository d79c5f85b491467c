"""Commands of whoever runs the control plane: users and tokens, the audit log, the journal, the configuration."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from clearway.cli.connection import connect, environment, places_of
from clearway.cli.options import JsonOption, StateDirOption
from clearway.cli.outputs import is_json_only, write_json, write_secret_json
from clearway.cli.session import session_of
from clearway.model.errors import InputError

if TYPE_CHECKING:
    from clearway.bootstrap.places import Places
    from clearway.wire.config import Config

EXIT_DIFFERS: Final = 1

users_app = typer.Typer(no_args_is_help=True, help="Who may use the control plane; edits the file of tokens.")
config_app = typer.Typer(no_args_is_help=True, help="The configuration file: check, show, example, reload.")
journal_app = typer.Typer(no_args_is_help=True, help="The journal: verify it, replay it, shorten starts.")

ConfigArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="YAML or TOML; else CLEARWAY_CONFIG, or the default place.")
]


@users_app.command(help="Give a user a token, printed once and kept nowhere.")
def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="How the user is called.")],
    tenants: Annotated[list[str] | None, typer.Option("--tenant", "-A", metavar="NAME", help="His tenants.")] = None,
    role: Annotated[str, typer.Option("--role", help="viewer, user, tenant_admin or operator.")] = "",
    unix_user: Annotated[str, typer.Option("--unix-user", metavar="NAME", help="In whose name his jobs run.")] = "",
    days: Annotated[int | None, typer.Option("--days", metavar="N", min=1, help="Until it expires.")] = None,
    state_dir: StateDirOption = None,
    json_target: JsonOption = None,
) -> None:
    """Make a token; defaults come from the configuration."""
    from clearway.bootstrap.users import add_user

    session = session_of(context)
    places = places_of(state_dir)
    config = config_of(places)
    token = add_user(places, config, name, role=role, tenants=tenants, unix_user=unix_user, days=days)
    if not is_json_only(json_target):
        session.screen.print(token, markup=False, highlight=False, soft_wrap=True)
        session.note("Give it to {name} on a safe way; used as CLEARWAY_TOKEN, with CLEARWAY_URL", name=name)
    if json_target is not None:
        write_secret_json(session, {"user": name, "token": token}, json_target)


@users_app.command(name="list", help="List users, roles and when their tokens expire; never the tokens.")
def list_users(context: typer.Context, state_dir: StateDirOption = None, json_target: JsonOption = None) -> None:
    """One line per token."""
    from clearway.bootstrap.users import list_users as read_users
    from clearway.cli.slurm.values import render_moment
    from clearway.cli.tables import add_row, make_table

    session = session_of(context)
    rows = read_users(places_of(state_dir))
    if not is_json_only(json_target):
        table = make_table(session, ("User", "Role", "Tenants", "Runs as", "Expires", "Token"))
        for row in rows:
            expires = render_moment(row.expires_ms, None, "–")
            add_row(table, (row.user, row.role, ", ".join(row.tenants), row.unix_user, expires, f"cw_{row.id}_…"))
        session.screen.print(table)
    if json_target is not None:
        kept = [
            {
                "user": row.user,
                "role": row.role,
                "tenants": list(row.tenants),
                "unix_user": row.unix_user,
                "expires_ms": row.expires_ms,
                "token_id": row.id,
            }
            for row in rows
        ]
        write_json(session, kept, json_target)


@users_app.command(help="Take all tokens from a user, at once.")
def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="How the user is called.")],
    state_dir: StateDirOption = None,
    json_target: JsonOption = None,
) -> None:
    """Revoke."""
    from clearway.bootstrap.users import revoke_user

    count = revoke_user(places_of(state_dir), name)
    if count == 0:
        raise InputError(f"expected a user with a token, found none called {name!r}; `clearway users list` lists them")
    session = session_of(context)
    session.note("Revoked {count} token(s) of {name}", count=count, name=name)
    if json_target is not None:
        write_json(session, {"user": name, "revoked": count}, json_target)


def token(
    context: typer.Context,
    state_dir: StateDirOption = None,
    is_export: Annotated[bool, typer.Option("--export", help="As lines for a shell, with the address.")] = False,
    json_target: JsonOption = None,
) -> None:
    """Print the token of the operator who started this control plane."""
    import shlex

    from clearway.bootstrap.places import TOKEN_VARIABLE, URL_VARIABLE, find_connection

    found = find_connection(environment(), state_dir)
    session = session_of(context)
    lines = [found.token]
    if is_export:
        lines = [
            f"export {URL_VARIABLE}={shlex.quote(found.url)}",
            f"export {TOKEN_VARIABLE}={shlex.quote(found.token)}",
        ]
    for line in lines if json_target is None else ():
        session.screen.print(line, markup=False, highlight=False, soft_wrap=True)
    if json_target is not None:
        write_secret_json(session, {"url": found.url, "token": found.token}, json_target)


def audit(
    context: typer.Context,
    after: Annotated[int, typer.Option("--after", metavar="N", min=0, help="From the line behind this number.")] = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Rows at most.")] = 1_000,
    json_target: JsonOption = None,
) -> None:
    """Who did what."""
    from clearway.cli.show_live import show_audit
    from clearway.wire.api_rows import encode_rows

    session = session_of(context)
    with connect() as client:
        rows = client.audit(after=after, limit=limit)
    if not is_json_only(json_target):
        show_audit(session, rows)
    if json_target is not None:
        write_json(session, encode_rows(rows), json_target)


# --- configuration ----------------------------------------------------------------------------------------------------


def read_config(path: Path | None) -> "Config":
    """The configuration that was asked for, or that of the environment or the default place; defaults if none is there.

    Raises InputError.
    """
    from clearway.bootstrap.configuration import find_config_file, read_config_file

    return read_config_file(find_config_file(environment(), path))


def config_of(places: "Places") -> "Config":
    """The configuration that the environment names, else that of the control plane that runs, else what `read_config`
    finds. Raises InputError."""
    from clearway.bootstrap.configuration import CONFIG_VARIABLE
    from clearway.bootstrap.places import read_running

    running = None if environment().get(CONFIG_VARIABLE) else read_running(places)
    return read_config(Path(running.config) if running is not None and running.config else None)


@config_app.command(help="Read a configuration file; exit code 2 with all mistakes, by line.")
def check(context: typer.Context, path: ConfigArgument = None, json_target: JsonOption = None) -> None:
    """Check it, its policy included."""
    session = session_of(context)
    config = read_config(path)
    if not is_json_only(json_target):
        text = "{path}: good" if config.source else "No configuration file: the defaults are in force"
        session.screen.print(session.say(text, path=config.source), markup=False, soft_wrap=True)
    if json_target is not None:
        write_json(session, {"file": config.source or None, "is_good": True}, json_target)


@config_app.command(help="Print what is in force, defaults included; passwords are masked.")
def show(context: typer.Context, path: ConfigArgument = None, json_target: JsonOption = None) -> None:
    """As YAML, or JSON."""
    import yaml

    from clearway.wire.configtext import describe_config

    session = session_of(context)
    described = describe_config(read_config(path))
    if not is_json_only(json_target):
        session.screen.file.write(yaml.safe_dump(described, sort_keys=False, allow_unicode=True))
    if json_target is not None:
        write_json(session, described, json_target)


@config_app.command(help="Print a configuration file to start one's own from.")
def example(context: typer.Context, json_target: JsonOption = None) -> None:
    """The example, with every default."""
    import yaml

    from clearway.wire.configtext import EXAMPLE

    session = session_of(context)
    if not is_json_only(json_target):
        session.screen.file.write(EXAMPLE)
    if json_target is not None:
        write_json(session, yaml.safe_load(EXAMPLE), json_target)


@config_app.command(help="Have the control plane read its file again: queues, tenants and policy, without a restart.")
def reload(context: typer.Context, json_target: JsonOption = None) -> None:
    """A file with mistakes is refused, and what was in force stays."""
    session = session_of(context)
    with connect() as client:
        notes = client.reload()
    if not is_json_only(json_target):
        for note in notes:
            session.screen.print(note, markup=False, soft_wrap=True)
    if json_target is not None:
        write_json(session, {"notes": list(notes)}, json_target)


# --- journal ----------------------------------------------------------------------------------------------------------


@journal_app.command(
    help="Read every record, and compare rows and snapshots with what the journal makes; exit code 65 if damaged."
)
def verify(context: typer.Context, state_dir: StateDirOption = None, json_target: JsonOption = None) -> None:
    """Read all of it."""
    from clearway.bootstrap.journal import verify_journal

    session = session_of(context)
    places = places_of(state_dir)
    found = verify_journal(places, config_of(places))
    if not is_json_only(json_target):
        text = "{records} records, up to number {last}: whole"
        session.screen.print(session.say(text, records=found.records, last=found.last), markup=False)
        text = "{rows} row(s) of jobs and {snapshots} snapshot(s): as the journal says"
        values = {"rows": found.rows, "snapshots": len(found.snapshots)}
        session.screen.print(session.say(text, **values), markup=False)
        if found.rows_left:
            text = "{rows} row(s) of jobs that wait or run: compared when the control plane is stopped"
            session.screen.print(session.say(text, rows=found.rows_left), markup=False)
    if json_target is not None:
        write_json(session, asdict(found), json_target)


@journal_app.command(help="Keep what the journal makes, so that a start reads only what comes after.")
def snapshot(
    context: typer.Context,
    least: Annotated[int, typer.Option("--least", metavar="N", min=1, help="Not for fewer records than these.")] = 1,
    state_dir: StateDirOption = None,
    json_target: JsonOption = None,
) -> None:
    """Beside a control plane that runs, or without one. One that runs has it done by itself."""
    from clearway.bootstrap.journal import snapshot_journal

    session = session_of(context)
    places = places_of(state_dir)
    made = snapshot_journal(places, config_of(places), least)
    if made is None:
        session.note("Too few records have come since the last snapshot: none was made")
    else:
        session.note("Snapshot of record {record}: {size} bytes", record=made.record, size=len(made.payload))
    if json_target is not None:
        kept = None if made is None else {"record": made.record, "bytes": len(made.payload)}
        write_json(session, kept, json_target)


@journal_app.command(help="Decide again from the journal's events, and compare with what was decided then.")
def replay(context: typer.Context, state_dir: StateDirOption = None, json_target: JsonOption = None) -> None:
    """Exit code 1 where a decision differs."""
    from clearway.bootstrap.journal import replay_journal

    session = session_of(context)
    places = places_of(state_dir)
    found = replay_journal(places, config_of(places))
    differs = found.difference
    if not is_json_only(json_target):
        values = {"plans": found.plans, "records": found.records}
        if differs is None:
            text = session.say("{plans} plans from {records} records: all decided again as they were", **values)
        else:
            values["at"] = differs.record
            text = session.say(
                "{plans} plans from {records} records; the first that differs is at record {at}:", **values
            )
            if found.by_name:
                text = session.say(
                    "{plans} plans from {records} records; record {at} is decided otherwise by the policy {policy} of "
                    "today, of which this part of the journal holds the name alone: it may have changed since:",
                    policy=found.by_name,
                    **values,
                )
            text += f"\n  - {differs.expected or '(none)'}\n  + {differs.found or '(none)'}"
        session.screen.print(text, markup=False, soft_wrap=True)
    if json_target is not None:
        write_json(session, asdict(found), json_target)
    if differs is not None:
        raise typer.Exit(EXIT_DIFFERS)
