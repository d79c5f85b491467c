"""Values of single sbatch options, each by a parser that raises ParseError. Source: sbatch(1)."""

import re
import signal
from dataclasses import dataclass
from typing import Final

from clearway.model.runs import LimitSignal
from clearway.model.units import SECOND_MS
from clearway.wire.problems import ParseError
from clearway.wire.units import DeviceRequest, parse_count, parse_slurm_time

SIGNAL_BEFORE_DEFAULT_MS: Final = 60 * SECOND_MS
"""sbatch(1), --signal: without a time, 60 seconds."""

NICE_DEFAULT: Final = 100
"""sbatch(1), --nice without a value."""

FEATURE_LABEL: Final = "feature"
"""Key of the node label that stands for a feature of a constraint without `=`."""


@dataclass(frozen=True, slots=True)
class NodeCount:
    """`-N low[-high]`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Gres:
    """gpu: what `--gres` asks of GPUs per node, None = nothing. others: names of other resources, not acted upon."""

    gpu: DeviceRequest | None
    others: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Export:
    """`--export`: pairs set, names taken along, and whether everything is."""

    variables: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    is_all: bool


@dataclass(frozen=True, slots=True)
class Switches:
    """`--switches=count[@wait]`. wait_ms None = wait as long as it takes."""

    count: int
    wait_ms: int | None


def parse_positive(text: str) -> int:
    """A whole number of at least 1."""
    count = parse_count(text)
    if count < 1:
        raise ParseError(expected="a whole number of at least 1", found=text)
    return count


def parse_nodes(text: str) -> NodeCount:
    """`4` or `2-4`."""
    match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text.strip())
    expected = "a number of nodes such as 4 or 2-4"
    if match is None:
        raise ParseError(expected=expected, found=text)
    low, high = int(match[1]), int(match[2] or match[1])
    if not 1 <= low <= high:
        raise ParseError(expected=expected, found=text, hint="at least 1, the smaller number first")
    return NodeCount(low, high)


def parse_gpus(text: str) -> DeviceRequest:
    """`4` or `a100:4` of --gpus, --gpus-per-node, --gpus-per-task. Two types at once are a ParseError."""
    expected = "a number of GPUs with or without a type, such as 4 or a100:4"
    if "," in text:
        raise ParseError(expected=expected, found=text, hint="all replicas are equal: one type, or submit two jobs")
    model, colon, count = text.strip().rpartition(":")
    if not count.isascii() or not count.isdigit() or (colon and not model) or model.startswith("-"):
        raise ParseError(expected=expected, found=text)
    return DeviceRequest(parse_count(count), model)


def parse_gres(text: str) -> Gres:
    """`gpu`, `gpu:2`, `gpu:a100:2`, with other resources between commas; `none`."""
    expected = "resources such as gpu:2 or gpu:a100:2"
    gpus: list[DeviceRequest] = []
    others: list[str] = []
    for part in text.split(",") if text.strip().lower() != "none" else ():
        name, _, rest = part.strip().removeprefix("gres/").partition(":")
        if name in ("shard", "mps"):
            raise ParseError(expected=expected, found=text, hint="for part of a GPU use `gpu_fraction` in a job file")
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            raise ParseError(expected=expected, found=text)
        if name == "gpu" and rest.startswith("-"):
            raise ParseError(expected=expected, found=text)
        if name == "gpu":
            gpus.append(parse_gpus(rest if re.search(r"(?:^|:)[0-9]+$", rest) else f"{rest}:1".removeprefix(":")))
        else:
            others.append(name)
    if len(gpus) > 1:
        raise ParseError(expected=expected, found=text, hint="all replicas are equal: one type, or submit two jobs")
    return Gres(gpus[0] if gpus else None, tuple(others))


def parse_constraint(text: str) -> tuple[tuple[str, str], ...]:
    """Labels of `-C a&b`: (feature, a), (feature, b); `key=value` is the label itself. Or and counts are refused."""
    expected = "features that must all be there, such as a100&ib"
    labels: set[tuple[str, str]] = set()
    for feature in text.strip().split("&"):
        if not re.fullmatch(r"[\w.:/+-]+(?:=[\w.:/+-]+)?", feature.strip()):
            hint = "only `&` is known: any-of, counts and brackets cannot be kept"
            raise ParseError(expected=expected, found=text, hint=hint)
        key, equals, value = feature.strip().partition("=")
        labels.add((key, value) if equals else (FEATURE_LABEL, key))
    return tuple(sorted(labels))


def parse_signal(text: str) -> LimitSignal:
    """`[{R|B}:]signal[@seconds]`, such as `USR1@120`, `B:TERM`, `10@90`."""
    expected = "a signal such as USR1@120 or B:TERM"
    match = re.fullmatch(r"(?:([RB]{1,2}):)?([A-Za-z][A-Za-z0-9+-]*|[0-9]{1,3})(?:@([0-9]{1,5}))?", text.strip())
    if match is None:
        raise ParseError(expected=expected, found=text, hint="after @ come seconds before the limit, up to 65535")
    flags, name, seconds = match.groups()
    known = {member.name: member.value for member in signal.Signals}
    full = "SIG" + name.upper().removeprefix("SIG")
    if name.isdigit():
        full = next((other for other, number in known.items() if number == int(name)), "")
    if full not in known:
        raise ParseError(expected=expected, found=text, hint="no such signal; known are USR1, USR2, TERM, INT, HUP")
    before_ms = int(seconds) * SECOND_MS if seconds else SIGNAL_BEFORE_DEFAULT_MS
    return LimitSignal(signal=full, before_ms=before_ms, shell_only="B" in (flags or ""))


def parse_export(text: str) -> Export:
    """`ALL`, `NONE`, `NIL`, or names and NAME=value between commas."""
    variables: list[tuple[str, str]] = []
    names: list[str] = []
    is_all = False
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        if name in ("ALL", "NONE", "NIL") and not equals:
            is_all = is_all or name == "ALL"
        elif not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ParseError(expected="ALL, NONE, or variables such as ALL,SEED=1", found=text)
        elif equals:
            variables.append((name, value))
        else:
            names.append(name)
    return Export(tuple(variables), tuple(names), is_all)


def parse_switches(text: str) -> Switches:
    """`1` or `1@30:00`."""
    count, at, wait = text.strip().partition("@")
    return Switches(parse_positive(count), parse_slurm_time(wait) if at else None)


def parse_nice(text: str | None) -> int:
    """`--nice`, `--nice=50`, `--nice=-50`."""
    match = re.fullmatch(r"[+-]?[0-9]{1,9}", (text or str(NICE_DEFAULT)).strip())
    if match is None:
        raise ParseError(expected="a whole number such as 100", found=text)
    return int(match[0])


def parse_open_mode(text: str) -> bool:
    """True for append, False for truncate."""
    if text not in ("append", "truncate"):
        raise ParseError(expected="append or truncate", found=text)
    return text == "append"


def parse_exclusive(text: str | None) -> str:
    """The empty string, or with whom nodes may still be shared: `user`, `mcs`, `topo`."""
    if text not in (None, "user", "mcs", "topo"):
        raise ParseError(expected="--exclusive, or --exclusive=user", found=text)
    return text or ""


def parse_text(text: str) -> str:
    """Any text that is not empty and has no control characters, which would reach file names and terminals."""
    if not text.strip() or not text.isprintable():
        raise ParseError(expected="a text of printable characters", found=text)
    return text.strip()
