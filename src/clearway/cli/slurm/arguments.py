"""Options of a Slurm command, by the rules of getopt_long that Slurm itself follows: `-u ada`, `-uada`, `--user=ada`,
`--us ada`; the last of an option that comes twice counts."""

import getopt
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

EXIT_USAGE: Final = 1
"""Slurm's commands end with 1 for nearly everything that goes wrong."""
EXIT_OPTION: Final = 255
"""With this, `sbatch` and `srun` end for an option that they do not know or whose value does not parse."""


class UsageError(Exception):
    """The command line cannot be obeyed; the message says why. Shown as `squeue: error: ...`, a line each.

    code: of the exit. is_bare: lines are shown as they are, for Slurm has no name before them.
    """

    def __init__(self, message: str, *, code: int = EXIT_USAGE, is_bare: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_bare = is_bare


def refuse_option(name: str, problem: str, code: int = EXIT_USAGE) -> UsageError:
    """What getopt says, and after it Slurm."""
    more = "" if name == "sacct" else f'\nTry "{name} --help" for more information'
    return UsageError(f"{name}: {problem}{more}", code=code, is_bare=True)


@dataclass(frozen=True, slots=True)
class Options:
    """What a command takes. flags, values: `(short or "", long)`. refused: long name → why not."""

    flags: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    takes_operands_last: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """What was typed. values: by long name, a flag as ""; operands: the rest."""

    values: dict[str, str] = field(default_factory=dict)
    operands: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self.values

    def get(self, name: str, default: str = "") -> str:
        """Its value."""
        return self.values.get(name, default)

    def listed(self, name: str) -> tuple[str, ...]:
        """Its value as a list by commas; empty = not given."""
        return split_list(self.get(name))


def split_list(text: str) -> tuple[str, ...]:
    """`a,b[1-2,4]` cut at commas outside of brackets."""
    return tuple(part.strip() for part in re.split(r",(?![^\[]*\])", text) if part.strip())


def read_options(name: str, arguments: Sequence[str], options: Options) -> Given:
    """Raises UsageError for what the command `name` does not know."""
    letters = "".join(short for short, _ in options.flags) + "".join(
        f"{short}:" for short, _ in options.values if short
    )
    names = [name for _, name in options.flags] + [f"{name}=" for _, name in options.values]
    read = getopt.getopt if options.takes_operands_last else getopt.gnu_getopt
    try:
        pairs, operands = read(list(arguments), letters, names)
    except getopt.GetoptError as error:
        raise refuse_option(name, _in_words_of_libc(error)) from error
    long_of = {f"-{short}": name for short, name in (*options.flags, *options.values) if short}
    values = {long_of.get(name, name.lstrip("-")): value for name, value in pairs}
    return Given(values, tuple(operands))


def _in_words_of_libc(error: getopt.GetoptError) -> str:
    """Python's getopt says the same in other words."""
    option, is_long = error.opt, len(error.opt) > 1
    if "requires argument" in error.msg:
        return f"option '--{option}' requires an argument" if is_long else f"option requires an argument -- '{option}'"
    if "must not have" in error.msg:
        return f"option '--{option}' doesn't allow an argument"
    if "unique prefix" in error.msg:
        return f"option '--{option}' is ambiguous"
    return f"unrecognized option '--{option}'" if is_long else f"invalid option -- '{option}'"
