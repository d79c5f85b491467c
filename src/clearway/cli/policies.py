"""`clearway policies`: what there is to choose from, and each as a file to start one's own from."""

from typing import Annotated

import typer

from clearway.cli.chinese import POLICIES
from clearway.cli.messages import Language
from clearway.cli.options import JsonOption
from clearway.cli.outputs import is_json_only, write_json
from clearway.cli.session import session_of

policies_app = typer.Typer(invoke_without_command=True, help="List the policies, or show one as a YAML file.")


@policies_app.callback()
def list_policies(context: typer.Context, json_target: JsonOption = None) -> None:
    """One line per policy, unless a sub-command follows."""
    if context.invoked_subcommand is not None:
        return
    from clearway.bootstrap.policies import policy_summaries
    from clearway.cli.tables import show_pairs

    session = session_of(context)
    if not is_json_only(json_target):
        translated = POLICIES if session.language is Language.CHINESE else {}
        rows = ((name, translated.get(name, summary)) for name, summary in policy_summaries())
        show_pairs(session, ("Policy", "What it does"), rows)
    if json_target is not None:
        write_json(session, [{"name": name, "summary": text} for name, text in policy_summaries()], json_target)


@policies_app.command(help="Print a policy as YAML: change it, and give the file to --policy.")
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `clearway policies` lists.")],
    json_target: JsonOption = None,
) -> None:
    """Print the settings of one policy."""
    from clearway.bootstrap.policies import policy_as_mapping, render_policy_yaml

    session = session_of(context)
    if not is_json_only(json_target):
        session.screen.file.write(render_policy_yaml(name))
    if json_target is not None:
        write_json(session, policy_as_mapping(name), json_target)
