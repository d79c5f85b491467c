"""Slurm's compact lists: array tasks `1-10:2%3` and node names `gpu[001-128,200]`."""

import itertools
import re
from dataclasses import dataclass
from typing import Final

from clearway.wire.problems import ParseError
from clearway.wire.units import Scalar

ARRAY_TASKS_MAX: Final = 100_000
"""Tasks of one array. Slurm's own default is 1,000 (MaxArraySize); the twin replays larger ones."""

ARRAY_INDEX_MAX: Final = 4_000_000
"""Slurm's largest index (MaxArraySize)."""

NAMES_MAX: Final = 200_000
"""Names in one expression: twice the largest cluster that we promise to handle."""

_ARRAY_EXPECTED = "array tasks such as 0-15, 1,3,5, 1-10:2 or 1-100%8"
_NAMES_EXPECTED = "node names such as gpu7 or gpu[001-128,200]"


@dataclass(frozen=True, slots=True)
class ArrayTasks:
    """indices: rising, without doubles. parallel_max: how many may run at once, 0 = no limit."""

    indices: tuple[int, ...]
    parallel_max: int = 0

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """What each task sees of the whole array, as Slurm tells it; a step that is not the same all over is 1."""
        steps = {after - before for before, after in itertools.pairwise(self.indices)}
        return (
            ("SLURM_ARRAY_TASK_COUNT", str(len(self.indices))),
            ("SLURM_ARRAY_TASK_MIN", str(self.indices[0])),
            ("SLURM_ARRAY_TASK_MAX", str(self.indices[-1])),
            ("SLURM_ARRAY_TASK_STEP", str(steps.pop() if len(steps) == 1 else 1)),
        )


def parse_array(text: Scalar) -> ArrayTasks:
    """Tasks of `-a`: `first-last[:step]` and single numbers between commas, `%limit` at the end."""
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise ParseError(expected=_ARRAY_EXPECTED, found=text, hint="put it in quotes")
    body, percent, limit = str(text).replace(" ", "").partition("%")
    if percent and not (limit.isascii() and limit.isdigit() and len(limit) <= 9 and int(limit) > 0):
        raise ParseError(
            expected=_ARRAY_EXPECTED, found=text, hint="after % comes how many may run at once, at least 1"
        )
    indices: set[int] = set()
    for part in body.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?", part)
        if match is None:
            raise ParseError(expected=_ARRAY_EXPECTED, found=text, hint=f"{part!r} is neither a number nor a range")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or step == 0 or last > ARRAY_INDEX_MAX:
            hint = f"ranges rise, steps are at least 1, the largest index is {ARRAY_INDEX_MAX}"
            raise ParseError(expected=_ARRAY_EXPECTED, found=text, hint=hint)
        indices.update(range(first, last + 1, step))
        if len(indices) > ARRAY_TASKS_MAX:
            raise ParseError(expected=f"at most {ARRAY_TASKS_MAX} tasks", found=text, hint="split the array")
    return ArrayTasks(tuple(sorted(indices)), int(limit or 0))


def expand_names(text: Scalar) -> tuple[str, ...]:
    """Every name of a host list, in the order written: `a[1-2]b,c` is a1b, a2b, c. Zeros in front are kept."""
    if isinstance(text, bool) or not isinstance(text, str) or not text.strip():
        raise ParseError(expected=_NAMES_EXPECTED, found=text, hint="put names in quotes")
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text.replace(" ", "")):
        names.extend(_expand_pattern(part, text, NAMES_MAX - len(names)))
    return tuple(names)


def _expand_pattern(pattern: str, text: str, names_max: int) -> list[str]:
    pieces = re.split(r"\[([^\[\]]+)\]", pattern)
    if not pattern or any(re.search(r"[\[\]]", piece) for piece in pieces):
        raise ParseError(expected=_NAMES_EXPECTED, found=text, hint=f"brackets or commas do not match in {pattern!r}")
    choices = [_expand_numbers(piece, text, names_max) if place % 2 else [piece] for place, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > names_max:
        raise ParseError(expected=f"at most {NAMES_MAX} names", found=text, hint="split the group")
    return ["".join(combination) for combination in itertools.product(*choices)]


def _expand_numbers(inner: str, text: str, names_max: int) -> list[str]:
    """`001-003,7` → 001, 002, 003, 7."""
    numbers: list[str] = []
    for part in inner.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ParseError(expected=_NAMES_EXPECTED, found=text, hint=f"{part!r} is not a rising range of numbers")
        first, last, width = int(match[1]), int(match[2] or match[1]), len(match[1])
        if last - first >= names_max:
            raise ParseError(expected=f"at most {NAMES_MAX} names", found=text, hint="split the group")
        numbers.extend(f"{number:0{width}}" for number in range(first, last + 1))
    return numbers
