"""Writes the pages of docs/ that are made from the code: `make docs`. A test compares them with what this gives."""

from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from clearway.cli.app import make_command
from clearway.cli.messages import Language
from clearway.sim.metrics import render_metrics_doc

DOCS = Path(__file__).parents[1] / "docs"

GENERATED = "<!-- Made by `make docs` from the commands' own help; do not edit. -->\n\n"


def render_cli_doc() -> str:
    """The reference of the command line in Markdown, from the help texts."""
    command = make_command(Language.ENGLISH)
    context = typer.Context(command, info_name="clearway")
    return GENERATED + get_docs_for_click(obj=command, ctx=context, name="clearway").strip() + "\n"


PAGES = {"CLI.md": render_cli_doc, "METRICS.md": render_metrics_doc}
"""File in docs/ → the function that gives its text."""


def main() -> None:
    """Write every generated page."""
    for name, render in PAGES.items():
        (DOCS / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
