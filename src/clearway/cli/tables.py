"""What every table on the screen has in common."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from clearway.cli.session import Session


def make_table(session: Session, headers: Sequence[str]) -> Table:
    """An empty table; the first column holds names, the others figures. headers are translated."""
    table = Table(box=SIMPLE_HEAD)
    for place, header in enumerate(headers):
        table.add_column(session.translate(header), justify="left" if place == 0 else "right")
    return table


def show_table(session: Session, title: str, table: Table) -> None:
    """The table below its title, which is shown as it is and may be wider."""
    session.screen.print(Text(title, style="bold"), soft_wrap=True)
    session.screen.print(table)


def add_row(table: Table, cells: Iterable[str]) -> None:
    """A row of plain text: nothing in it is taken for markup."""
    table.add_row(*(Text(cell) for cell in cells))


def show_pairs(session: Session, headers: tuple[str, str], rows: Iterable[tuple[str, str]]) -> None:
    """Names and one line about each."""
    table = Table(box=None, pad_edge=False)
    table.add_column(session.translate(headers[0]), no_wrap=True, style="bold")
    table.add_column(session.translate(headers[1]))
    for row in rows:
        add_row(table, row)
    session.screen.print(table)
