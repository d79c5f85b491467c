"""What every command has at hand: the language, the screen, and where messages go."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.text import Text

from clearway.cli.interrupts import hear_interrupts
from clearway.cli.messages import Language, choose_language, translate

ProgressCallback = Callable[[int, int], None]
"""Called with (done, in all)."""

EXIT_INTERRUPTED = 130

WIDTH_WITHOUT_TERMINAL = 160
"""Columns assumed when the output is a file or a pipe: wide enough for every table, so that none is folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """screen: results, on standard output. notes: progress, remarks and errors, on standard error."""

    language: Language
    screen: Console
    notes: Console

    def translate(self, text: str) -> str:
        """`text` in the session's language, braces and all."""
        return translate(text, self.language)

    def say(self, text: str, **values: object) -> str:
        """`text` in the session's language with its `{fields}` filled in."""
        return self.translate(text).format(**values)

    def note(self, text: str, **values: object) -> None:
        """A remark on standard error."""
        self.notes.print(Text(self.say(text, **values)), soft_wrap=True)

    @contextmanager
    def progress(self, text: str, **values: object) -> Iterator[ProgressCallback]:
        """Yield a callback that moves a bar on standard error; without a terminal there nothing is shown."""
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        is_shown = self.notes.is_terminal
        bars = Progress(*columns, console=self.notes, transient=True, disable=not is_shown)
        with hear_interrupts(self._end_interrupted), bars:
            bar = bars.add_task(self.say(text, **values), total=None)
            yield lambda done, total: bars.update(bar, completed=done, total=total)

    def _end_interrupted(self) -> None:
        """End the process as Ctrl-C does, without waiting for what it is doing."""
        self.notes.show_cursor()
        os._exit(EXIT_INTERRUPTED)


def make_session(asked_language: str | None) -> Session:
    """A session on this process's streams and environment."""
    return Session(
        language=choose_language(asked_language, os.environ),  # noqa: TID251 - the command line is the border
        screen=_console(is_error=False),
        notes=_console(is_error=True),
    )


def session_of(context: typer.Context) -> Session:
    """The session that the root command made."""
    session = context.obj
    assert isinstance(session, Session)
    return session


def _console(*, is_error: bool) -> Console:
    stream = sys.stderr if is_error else sys.stdout
    width = None if stream.isatty() else WIDTH_WITHOUT_TERMINAL
    return Console(file=stream, width=width, highlight=False)
