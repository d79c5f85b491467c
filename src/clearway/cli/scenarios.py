"""`clearway scenario`: situations that are built in and need no file."""

from typing import Annotated

import typer

from clearway.cli.options import HtmlOption, JsonOption, SeedOption
from clearway.cli.outputs import finish_with, is_json_only, note_compiling, note_written, ready_outputs, write_json
from clearway.cli.session import session_of

scenario_app = typer.Typer(no_args_is_help=True, help="Run a built-in scenario.")

CASE_STUDY = "A centre of 128 GPUs for four weeks: split by hand, and allocated by Clearway."
SCENARIOS = (("case-study", CASE_STUDY),)


@scenario_app.command(name="list", help="List the built-in scenarios.")
def list_scenarios(context: typer.Context, json_target: JsonOption = None) -> None:
    """One line per scenario."""
    from clearway.cli.tables import show_pairs

    session = session_of(context)
    if not is_json_only(json_target):
        show_pairs(
            session, ("Scenario", "What it is"), tuple((name, session.translate(text)) for name, text in SCENARIOS)
        )
    if json_target is not None:
        write_json(session, [{"name": name, "summary": text} for name, text in SCENARIOS], json_target)


@scenario_app.command(name="case-study", help=CASE_STUDY)
def case_study(
    context: typer.Context,
    seed: SeedOption = 0,
    training_nodes: Annotated[
        int, typer.Option("--training-nodes", metavar="N", min=2, max=15, help="Nodes for training on the static side.")
    ] = 9,
    json_target: JsonOption = None,
    html: HtmlOption = None,
) -> None:
    """Run both sides, show them against the published result, write."""
    from clearway.bootstrap import reports
    from clearway.bootstrap.casestudy import case_study_as_json, run_case_study
    from clearway.cli.show_casestudy import show_case_study

    session = session_of(context)
    if html is not None:
        reports.check_html_possible()
    ready_outputs(json_target, html)
    note_compiling(session)
    with session.progress("Simulating the case study") as progress:
        outcome = run_case_study(seed, training_nodes=training_nodes, progress=progress)
    if html is not None:
        sides = (outcome.static, outcome.dynamic)
        reports.write_runs_html(sides, html, title=session.translate(CASE_STUDY), language=session.language.value)
        note_written(session, html)
    finish_with(session, lambda: case_study_as_json(outcome), json_target, lambda: show_case_study(session, outcome))
