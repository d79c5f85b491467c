"""What a job waits for, as Slurm writes it (`afterok:12:13,singleton`) and as job files do (names of other jobs)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clearway.model.jobs import DependencyKind
from clearway.wire.problems import NOTHING, ParseError, list_names, suggest_name

_EXPECTED = "a dependency such as afterok:12, afterany:12:13 or singleton"
_KINDS: Final = tuple(kind.value for kind in DependencyKind)
_ONE_TASK: Final = "the number of an array means all its tasks, and aftercorr goes task by task"
_REFUSED: Final = {
    "expand": "resizing is automatic: give the job an `elastic` range",
    "afterburstbuffer": "there are no burst buffers here; use afterany",
}


@dataclass(frozen=True, slots=True)
class DependencyRequest:
    """`target`: number of a job, name of a job of the same file, or None for SINGLETON."""

    kind: DependencyKind
    target: int | str | None = None


def parse_slurm_dependencies(text: object) -> tuple[DependencyRequest, ...]:
    """Dependencies of `-d`, all of which must hold: `type:id[:id...]` between commas; a bare number is afterany.

    The number of an array means all its tasks. Any-of (`?`), delays (`+minutes`) and single tasks of arrays (`12_3`)
    cannot be kept, and are errors.
    """
    if not isinstance(text, str | int) or isinstance(text, bool):
        raise ParseError(expected=_EXPECTED, found=text)
    if "?" in str(text):
        raise ParseError(expected=_EXPECTED, found=text, hint="only all-of (commas) is known; any-of (?) is not")
    requests: list[DependencyRequest] = []
    for part in str(text).split(","):
        kind, _, targets = part.strip().partition(":")
        if kind.isascii() and kind.isdigit() and not targets:
            kind, targets = DependencyKind.AFTER_ANY.value, kind
        requests.extend(_expand_request(kind, targets.split(":") if targets else [], text))
    if any(isinstance(request.target, str) for request in requests):
        raise ParseError(expected=_EXPECTED, found=text, hint="jobs are named by their number")
    return tuple(requests)


def parse_dependencies(value: object) -> tuple[DependencyRequest, ...]:
    """A job file's `depends_on`: one item or a list of them.

    An item is the name or number of a job that must succeed, text in Slurm's form with names or numbers
    (`afterany:prepare`, `singleton`), or a mapping such as `{afterok: [prepare, 12]}`.
    """
    items = value if isinstance(value, list | tuple) else [value]
    return tuple(request for item in items for request in _parse_item(item))


def _parse_item(item: object) -> Iterable[DependencyRequest]:
    if isinstance(item, DependencyRequest):
        return (item,)
    if isinstance(item, dict):
        return [request for kind, targets in item.items() for request in _expand_request(kind, _listed(targets), item)]
    if isinstance(item, int) and not isinstance(item, bool):
        return _expand_request(DependencyKind.AFTER_OK.value, [item], item)
    if not isinstance(item, str) or not item.strip():
        raise ParseError(expected=_EXPECTED, found=NOTHING if item is None else item)
    kind, colon, targets = item.strip().partition(":")
    if colon or kind == DependencyKind.SINGLETON:
        return _expand_request(kind, targets.split(":") if targets else [], item)
    return _expand_request(DependencyKind.AFTER_OK.value, [kind], item)


def _listed(targets: object) -> list[object]:
    return list(targets) if isinstance(targets, list | tuple) else [targets]


def _expand_request(kind: str, targets: list[object] | list[str] | list[int], found: object) -> list[DependencyRequest]:
    if kind not in _KINDS:
        hint = _REFUSED.get(kind) or suggest_name(kind, _KINDS) or f"kinds are {list_names(_KINDS)}"
        raise ParseError(expected=_EXPECTED, found=found, hint=hint)
    if kind == DependencyKind.SINGLETON:
        if targets:
            raise ParseError(expected=_EXPECTED, found=found, hint="singleton takes no job")
        return [DependencyRequest(DependencyKind.SINGLETON)]
    if not targets:
        raise ParseError(expected=_EXPECTED, found=found, hint=f"name a job: {kind}:12")
    return [DependencyRequest(DependencyKind(kind), _parse_target(target, found)) for target in targets]


def _parse_target(target: object, found: object) -> int | str:
    if isinstance(target, int) and not isinstance(target, bool) and target > 0:
        return target
    if not isinstance(target, str) or not target.strip():
        raise ParseError(expected=_EXPECTED, found=found, hint="jobs are named by number, from 1, or by name")
    text = target.strip()
    if re.fullmatch(r"[1-9][0-9]{0,17}", text):
        return int(text)
    if re.fullmatch(r"[0-9]+_([0-9]+|\*)", text):
        raise ParseError(expected=_EXPECTED, found=found, hint=_ONE_TASK)
    if re.fullmatch(r"[0-9]+\+[0-9]+", text):
        raise ParseError(expected=_EXPECTED, found=found, hint="delays after a job are not known; use --begin")
    if text.isdigit():
        raise ParseError(expected=_EXPECTED, found=found, hint="job numbers are positive")
    return text
