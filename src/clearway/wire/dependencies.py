"""What a job waits for, as Slurm writes it (`afterok:12:13,singleton`) and as job files do (names of other jobs).

All of it must hold, or with `?` between the parts any one. `after:12+30` waits until 30 minutes after the start of job
12; `afterok:12_3` waits for task 3 of array 12 alone.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from clearway.model.ids import JobId
from clearway.model.jobs import Dependency, DependencyKind
from clearway.model.units import MINUTE_MS
from clearway.wire.problems import NOTHING, ParseError, list_names, suggest_name

_EXPECTED = "a dependency such as afterok:12, afterany:12:13 or singleton"
_KINDS: Final = tuple(kind.value for kind in DependencyKind)
_ALL_TASKS: Final = "the number of an array alone means all its tasks"
_MIXED: Final = "commas (all must hold) or question marks (any one is enough), not both"
_ANY: Final = "any"
_REFUSED: Final = {
    "expand": "resizing is automatic: give the job an `elastic` range",
    "afterburstbuffer": "there are no burst buffers here; use afterany",
}


@dataclass(frozen=True, slots=True)
class DependencyRequest:
    """`target`: number of a job, name of a job of the same file, or None for SINGLETON. The rest as in `Dependency`;
    is_any: one of the job's dependencies is enough."""

    kind: DependencyKind
    target: int | str | None = None
    task: int | None = None
    delay_ms: int = 0
    is_any: bool = False

    def on(self, job: JobId | None) -> Dependency:
        """The dependency, with the job that the target means."""
        return Dependency(kind=self.kind, job=job, task=self.task, delay_ms=self.delay_ms)


def parse_slurm_dependencies(text: object) -> tuple[DependencyRequest, ...]:
    """Dependencies of `-d`: `type:id[:id...]` between commas, or between question marks; a bare number is afterany."""
    if not isinstance(text, str | int) or isinstance(text, bool):
        raise ParseError(expected=_EXPECTED, found=text)
    is_any = "?" in str(text)
    if is_any and "," in str(text):
        raise ParseError(expected=_EXPECTED, found=text, hint=_MIXED)
    requests: list[DependencyRequest] = []
    for part in str(text).split("?" if is_any else ","):
        kind, _, targets = part.strip().partition(":")
        if kind.isascii() and kind.isdigit() and not targets:
            kind, targets = DependencyKind.AFTER_ANY.value, kind
        requests.extend(_expand_request(kind, targets.split(":") if targets else [], text))
    if any(isinstance(request.target, str) for request in requests):
        raise ParseError(expected=_EXPECTED, found=text, hint="jobs are named by their number")
    return _any_of(requests) if is_any else tuple(requests)


def _any_of(requests: Iterable[DependencyRequest]) -> tuple[DependencyRequest, ...]:
    return tuple(replace(request, is_any=True) for request in requests)


def parse_dependencies(value: object) -> tuple[DependencyRequest, ...]:
    """A job file's `depends_on`: one item or a list of them.

    An item is the name or number of a job that must succeed, text in Slurm's form with names or numbers
    (`afterany:prepare`, `singleton`), or a mapping such as `{afterok: [prepare, 12]}`. All must hold; of
    `{any: [...]}`, or of one text with question marks, any one is enough.
    """
    if isinstance(value, dict) and value.keys() == {_ANY}:
        return _any_of(request for item in _listed(value[_ANY]) for request in _parse_item(item))
    requests = tuple(request for item in _listed(value) for request in _parse_item(item))
    if len({request.is_any for request in requests}) > 1 or (isinstance(value, dict) and _ANY in value):
        raise ParseError(expected=_EXPECTED, found=value, hint=f"either all must hold or any one: {{{_ANY}: [...]}}")
    return requests


def _parse_item(item: object) -> Iterable[DependencyRequest]:
    if isinstance(item, DependencyRequest):
        return (item,)
    if isinstance(item, dict):
        return [request for kind, targets in item.items() for request in _expand_request(kind, _listed(targets), item)]
    if isinstance(item, int) and not isinstance(item, bool):
        return _expand_request(DependencyKind.AFTER_OK.value, [item], item)
    if not isinstance(item, str) or not item.strip():
        raise ParseError(expected=_EXPECTED, found=NOTHING if item is None else item)
    if "?" in item:
        return _any_of(request for part in item.split("?") for request in _parse_item(part))
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
    return [_parse_target(DependencyKind(kind), target, found) for target in targets]


def _parse_target(kind: DependencyKind, target: object, found: object) -> DependencyRequest:
    """One job with what stands behind it: `12`, `12+30`, `12_3`, `prepare`, `prepare+30`."""
    if not isinstance(target, str):
        return DependencyRequest(kind, _parse_job(target, found))
    text, delay_ms = target.strip(), 0
    if delayed := re.fullmatch(r"(.+)\+([0-9]{1,7})", text):
        if kind != DependencyKind.AFTER:
            raise ParseError(expected=_EXPECTED, found=found, hint="minutes (+) are for `after`: after:12+30")
        text, delay_ms = delayed[1], int(delayed[2]) * MINUTE_MS
    if member := re.fullmatch(r"([1-9][0-9]{0,17})_([0-9]{1,17})", text):
        return DependencyRequest(kind, int(member[1]), int(member[2]), delay_ms)
    return DependencyRequest(kind, _parse_job(text, found), delay_ms=delay_ms)


def _parse_job(target: object, found: object) -> int | str:
    if isinstance(target, int) and not isinstance(target, bool) and target > 0:
        return target
    if not isinstance(target, str) or not target.strip():
        raise ParseError(expected=_EXPECTED, found=found, hint="jobs are named by number, from 1, or by name")
    text = target.strip()
    if re.fullmatch(r"[1-9][0-9]{0,17}", text):
        return int(text)
    if re.fullmatch(r"[0-9]+_.*", text):
        raise ParseError(expected=_EXPECTED, found=found, hint=f"a task is named as in 12_3; {_ALL_TASKS}")
    if text.isdigit():
        raise ParseError(expected=_EXPECTED, found=found, hint="job numbers are positive")
    return text
