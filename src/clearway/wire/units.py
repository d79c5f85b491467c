"""Time, memory, CPUs, shares and power as each dialect writes them. Stored: milliseconds, bytes, thousandths, watts.

The same letters mean different things to different systems, so every function names its dialect:

| text     | Slurm              | Kubernetes        | job file, SkyPilot, dstack |
|----------|--------------------|-------------------|----------------------------|
| `64`     | 64 MiB             | 64 bytes          | error; SkyPilot: 64 GiB    |
| `64G`    | 64 × 2^30          | 64 × 10^9         | 64 × 2^30                  |
| `64Gi`   | error              | 64 × 2^30         | 64 × 2^30                  |
| `30`     | 30 minutes         |                   | error: no unit             |
| `30:00`  | 30 minutes         |                   | 30 minutes                 |

Amounts are exact fractions until the last step, which rounds up: nothing that was asked for becomes less, nor 0. Time
is not rounded here: Slurm's whole minutes are `round_up_to_minutes`, applied to limits of `#SBATCH` scripts alone.
Sources: sbatch(1) for --time and --mem, the Kubernetes page "Quantity", SkyPilot and dstack YAML references.
"""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from clearway.model.units import DAY_MS, HOUR_MS, MILLI, MINUTE_MS, SECOND_MS
from clearway.wire.problems import ParseError

TEXT_CHARACTERS_MAX: Final = 64
"""No amount needs more; guards against numbers of a million digits."""

AMOUNT_MAX: Final = (1 << 60) - 1
"""Every amount must fit a signed 64-bit integer, with room for sums."""

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_BINARY_POWERS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_KUBERNETES_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DURATION_UNITS: Final = (
    ("w", 7 * DAY_MS),
    ("d", DAY_MS),
    ("h", HOUR_MS),
    ("m", MINUTE_MS),
    ("s", SECOND_MS),
    ("ms", 1),
)
_DURATION_WORDS: Final = {
    **dict.fromkeys(("w", "week", "weeks"), "w"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
}

_SLURM_TIME_EXPECTED = "a time as Slurm writes it (min, min:sec, h:m:s, d-h, d-h:m or d-h:m:s; 0 = no limit)"
_DURATION_EXPECTED = "a duration with units, such as 90s, 15m, 2h30m or 1d"
_SPAN_EXPECTED = "a time such as 90s, 2h30m, 30:00 (30 minutes) or 2-12 (2 days 12 hours)"
_SLURM_MEMORY_EXPECTED = "a whole number with K, M, G, T or P (1024-based; without a letter: MiB)"
_MEMORY_EXPECTED = "a memory size with a unit, such as 512MB, 64GB or 1.5TiB (1024-based)"
_QUANTITY_EXPECTED = "a Kubernetes quantity, such as 500m, 2, 64Gi or 128e6"
_CPUS_EXPECTED = "a number of CPUs, such as 4, 0.5 or 500m"
_SHARE_EXPECTED = "a share of one device above 0 and up to 1, such as 0.4 or 40%"

Scalar = str | int | float


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """`count` devices; model empty = any; memory_bytes 0 = any."""

    count: int
    model: str = ""
    memory_bytes: int = 0


# --- time ---------------------------------------------------------------------------------------------------------


def parse_slurm_time(text: Scalar) -> int | None:
    """Milliseconds of `min`, `min:sec`, `h:m:s`, `d-h`, `d-h:m` or `d-h:m:s`; None = no limit (0, UNLIMITED).

    The last field is not seconds but what the form says: `30:00` is 30 minutes, `2-12` is 60 hours. Fields may exceed
    60, as in Slurm (`90` is 90 minutes). Raises ParseError on anything else.
    """
    cleaned = _clean(text, _SLURM_TIME_EXPECTED)
    if cleaned.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    match = re.fullmatch(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?", cleaned)
    if match is None:
        raise ParseError(expected=_SLURM_TIME_EXPECTED, found=text, hint="for 90 minutes write 90 or 1:30:00")
    days, first, second, third = match.groups()
    if days is not None or third is not None:
        hours, minutes, seconds = int(first), int(second or 0), int(third or 0)
    else:
        hours, minutes, seconds = 0, int(first), int(second or 0)
    total = int(days or 0) * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS
    return _bounded(total, text, _SLURM_TIME_EXPECTED) or None


def render_slurm_time(time_ms: int | None) -> str:
    """`[d-]hh:mm:ss`, seconds rounded up; `UNLIMITED` for None."""
    if time_ms is None:
        return "UNLIMITED"
    seconds = -(-time_ms // SECOND_MS)
    days, rest = divmod(seconds, DAY_MS // SECOND_MS)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def round_up_to_minutes(time_ms: int) -> int:
    """Whole minutes, in milliseconds: the resolution of Slurm's time limits (sbatch(1), --time)."""
    return -(-time_ms // MINUTE_MS) * MINUTE_MS


def parse_duration(text: Scalar) -> int:
    """Milliseconds of `90s`, `15m`, `2h30m`, `1d`, `250ms`, `1.5 hours`; larger units first, each at most once."""
    cleaned = _clean(text, _DURATION_EXPECTED)
    if not re.fullmatch(rf"(?:{_NUMBER}\s*[a-z]+\s*)+", cleaned):
        raise ParseError(expected=_DURATION_EXPECTED, found=text, hint=_hint_duration(cleaned))
    sizes = dict(_DURATION_UNITS)
    total, last = Fraction(0), math.inf
    for number, word in re.findall(rf"({_NUMBER})\s*([a-z]+)", cleaned):
        size = sizes[_DURATION_WORDS[word]] if word in _DURATION_WORDS else 0
        if not 0 < size < last:
            hint = f"unit {word!r} is unknown or out of place; use w, d, h, m, s, ms, the larger first"
            raise ParseError(expected=_DURATION_EXPECTED, found=text, hint=hint)
        total, last = total + Fraction(number) * size, size
    return _bounded(math.ceil(total), text, _DURATION_EXPECTED)


def render_duration(time_ms: int) -> str:
    """`1d2h30m`, exactly: `parse_duration` gives `time_ms` back."""
    parts, rest = [], time_ms
    for unit, size in _DURATION_UNITS[1:]:
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def describe_time(time_ms: int | None) -> str:
    """Words for a person: `2 days 12 hours`, `30 minutes`, `no limit`."""
    if time_ms is None:
        return "no limit"
    words = {"d": "day", "h": "hour", "m": "minute", "s": "second", "ms": "millisecond"}
    parts = re.findall(r"([0-9]+)([a-z]+)", render_duration(time_ms))
    return " ".join(f"{count} {words[unit]}{'' if count == '1' else 's'}" for count, unit in parts)


def parse_time_span(value: Scalar) -> int | None:
    """A job file's time in milliseconds: a duration or a Slurm time with `:` or `-`; None = no limit (0, unlimited).

    A bare number is an error: Slurm means minutes by it, Kubernetes seconds.
    """
    cleaned = _clean(value, _SPAN_EXPECTED)
    if cleaned.lower() in ("0", "unlimited", "infinite"):
        return None
    if re.fullmatch(_NUMBER, cleaned):
        hint = f"a bare number could be minutes or seconds; write {cleaned}m or {cleaned}s"
        raise ParseError(expected=_SPAN_EXPECTED, found=value, hint=hint)
    if re.fullmatch(r"[0-9:-]+", cleaned):
        return parse_slurm_time(cleaned)
    return parse_duration(cleaned)


# --- memory -------------------------------------------------------------------------------------------------------


def parse_slurm_memory(text: Scalar) -> int:
    """Bytes of Slurm's --mem and its like: a bare number is MiB, K/M/G/T/P are 1024-based. `512K` is 524,288 bytes."""
    match = re.fullmatch(r"([0-9]+)(?:([KMGTP])B?)?", _clean(text, _SLURM_MEMORY_EXPECTED).upper())
    if match is None:
        raise ParseError(expected=_SLURM_MEMORY_EXPECTED, found=text, hint="for one and a half GiB write 1536M")
    number, letter = match.groups()
    return _bounded(int(number) * _binary(letter or "M"), text, _SLURM_MEMORY_EXPECTED)


def render_slurm_memory(size_bytes: int) -> str:
    """The largest of T, G, M, K that divides `size_bytes`; else K, rounded up. Never `0` for what is not 0."""
    for letter in ("T", "G", "M"):
        if size_bytes and size_bytes % _binary(letter) == 0:
            return f"{size_bytes // _binary(letter)}{letter}"
    return f"{-(-size_bytes // _binary('K'))}K"


def parse_kubernetes_quantity(text: Scalar) -> Fraction:
    """Exact value of a quantity: suffixes n u m k M G T P E (powers of 10), Ki..Ei (powers of 2), e or E exponents."""
    cleaned = _clean(text, _QUANTITY_EXPECTED)
    match = re.fullmatch(r"\+?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,2})", cleaned)
    if match is None:
        raise ParseError(expected=_QUANTITY_EXPECTED, found=text, hint=_hint_quantity(cleaned))
    number, suffix = match.groups()
    value = Fraction(number.rstrip(".") if number.endswith(".") else number)
    if suffix.endswith("i"):
        return value * _binary(suffix[0])
    power = _KUBERNETES_DECIMAL[suffix] if suffix in _KUBERNETES_DECIMAL else int(suffix[1:])
    return value * Fraction(10) ** power


def parse_kubernetes_memory(text: Scalar) -> int:
    """Bytes of a quantity, rounded up: `1M` is 1,000,000, `1Mi` is 1,048,576."""
    return _bounded(math.ceil(parse_kubernetes_quantity(text)), text, _QUANTITY_EXPECTED)


def parse_kubernetes_cpu(text: Scalar) -> int:
    """Thousandths of a CPU, rounded up: `500m` is 500, `2` is 2000."""
    return _bounded(math.ceil(parse_kubernetes_quantity(text) * MILLI), text, _QUANTITY_EXPECTED)


def render_kubernetes_memory(size_bytes: int) -> str:
    """The largest of Ei..Ki that divides `size_bytes`, or plain bytes: exact."""
    for letter in reversed(_BINARY_POWERS):
        if size_bytes and size_bytes % _binary(letter) == 0:
            return f"{size_bytes // _binary(letter)}{letter}i"
    return str(size_bytes)


def render_kubernetes_cpu(cpu_milli: int) -> str:
    """`2` for whole CPUs, else thousandths as `1500m`."""
    return str(cpu_milli // MILLI) if cpu_milli % MILLI == 0 else f"{cpu_milli}m"


def parse_memory(value: Scalar) -> int:
    """A job file's memory in bytes, rounded up: `64GB`, `64GiB`, `64G` are all 64 × 2^30. The unit is required."""
    cleaned = _clean(value, _MEMORY_EXPECTED)
    match = re.fullmatch(rf"({_NUMBER})\s*(?:([KMGTPE])(?:IB|I|B)?|B)", cleaned.upper())
    if match is None:
        bare = re.fullmatch(_NUMBER, cleaned)
        hint = (
            f"a bare number has no unit; write {cleaned}GB or {cleaned}MB" if bare else "units: B, KB, MB, GB, TB, PB"
        )
        raise ParseError(expected=_MEMORY_EXPECTED, found=value, hint=hint)
    number, letter = match.groups()
    size = Fraction(number) * (_binary(letter) if letter else 1)
    return _bounded(math.ceil(size), value, _MEMORY_EXPECTED)


def render_memory(size_bytes: int) -> str:
    """`64GiB`, `1536MiB`, `1000B`: exactly what `parse_memory` reads back."""
    rendered = render_kubernetes_memory(size_bytes)
    return rendered + "B"


def parse_memory_minimum(value: Scalar) -> int:
    """Bytes of `40GB`, `40GB+` or `32+` (SkyPilot, in GB), `40GB..` (dstack): at least so much."""
    text = _strip_open_end(value, "a memory size or minimum, such as 40GB or 40GB..")
    is_sky = isinstance(value, str) and value.strip().endswith("+") and re.fullmatch(_NUMBER, str(text)) is not None
    return parse_memory(f"{text}GB" if is_sky else text)


# --- counts, CPUs, shares, devices, power -----------------------------------------------------------------------------


def parse_count(value: Scalar) -> int:
    """A whole number of at least 0, without a unit."""
    cleaned = _clean(value, "a whole number")
    if not re.fullmatch(r"[0-9]+", cleaned):
        raise ParseError(expected="a whole number", found=value, hint="digits only, such as 8")
    return _bounded(int(cleaned), value, "a whole number")


def parse_cpus(value: Scalar) -> int:
    """Thousandths of a CPU, rounded up: `4`, `0.5`, `500m`."""
    match = re.fullmatch(rf"({_NUMBER})(m?)", _clean(value, _CPUS_EXPECTED))
    if match is None:
        raise ParseError(expected=_CPUS_EXPECTED, found=value, hint="500m is half a CPU")
    number, milli = match.groups()
    return _bounded(math.ceil(Fraction(number) * (1 if milli else MILLI)), value, _CPUS_EXPECTED)


def parse_cpus_minimum(value: Scalar) -> int:
    """Thousandths of `4`, `4+` (SkyPilot) or `4..` (dstack): at least so many."""
    return parse_cpus(_strip_open_end(value, "a number of CPUs or minimum, such as 4, 0.5 or 4.."))


def parse_share(value: Scalar) -> int:
    """Thousandths of one device, 1..1000, rounded up: `0.4`, `40%`. Exact: 0.4 is 400."""
    match = re.fullmatch(rf"({_NUMBER})\s*(%?)", _clean(value, _SHARE_EXPECTED))
    if match is None:
        raise ParseError(expected=_SHARE_EXPECTED, found=value, hint="two fifths of a device: 0.4")
    number, percent = match.groups()
    milli = math.ceil(Fraction(number) * MILLI / (100 if percent else 1))
    if not 1 <= milli <= MILLI:
        raise ParseError(expected=_SHARE_EXPECTED, found=value, hint="for whole devices give `gpus`")
    return milli


def parse_milli(value: Scalar) -> int:
    """Devices in thousandths, for quotas and limits: `8`, `0.5`. Rounded up."""
    expected = "a number of devices, such as 8 or 0.5"
    cleaned = _clean(value, expected)
    if not re.fullmatch(_NUMBER, cleaned):
        raise ParseError(expected=expected, found=value, hint="digits, with a point if need be")
    return _bounded(math.ceil(Fraction(cleaned) * MILLI), value, expected)


NO_MODELS: Final = frozenset(
    (
        *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve", "sixteen"),
        *("none", "all", "any", "some", "auto", "max", "min", "half", "quarter", "few", "many", "a", "an"),
        *("yes", "no", "true", "false", "on", "off"),
    )
)
"""Words that people write for a count. No device is called so, and a job that asks for one would wait for ever."""

_COUNTED: Final = frozenset(("gpus", "devices", "cards", "accelerators"))
"""Words that only follow a count. (`GPU` itself is part of some models' names.)"""


def parse_devices(value: Scalar) -> DeviceRequest:
    """`8`, `H100:8` (SkyPilot), `A100:40GB:2` (dstack), `H100` (one): model, memory per device and count in any order
    after the model. A part of digits is the count, a part with a memory unit the memory."""
    expected = "a number of devices or MODEL:COUNT, such as 8, H100:8 or A100:40GB:2"
    count, model, memory = -1, "", 0
    for place, part in enumerate(_clean(value, expected).split(":")):
        if re.fullmatch(r"[0-9]+", part) and count < 0:
            count = _bounded(int(part), value, expected)
        elif re.fullmatch(rf"{_NUMBER}\s*[KMGT]i?B", part, re.IGNORECASE) and not memory:
            memory = parse_memory(part)
        elif re.fullmatch(r"[A-Za-z][\w.+ -]*", part) and place == 0:
            model = part.strip()
        else:
            raise ParseError(expected=expected, found=value, hint="each part at most once, the model first")
    words = model.lower().split()
    if words and (words[0] in NO_MODELS or not _COUNTED.isdisjoint(words)):
        hint = f"{model!r} would be taken for a model's name; write the count in digits"
        raise ParseError(expected=expected, found=value, hint=hint)
    return DeviceRequest(count=1 if count < 0 else count, model=model, memory_bytes=memory)


def parse_power(value: Scalar) -> int:
    """Watts, rounded up: `700`, `700W`, `1.2kW`, `2MW`. A bare number is watts."""
    expected = "a power such as 700, 700W, 500kW or 2MW"
    match = re.fullmatch(rf"({_NUMBER})\s*([kM]?)W?", _clean(value, expected))
    if match is None or (match.group(2) and not str(value).endswith("W")):
        raise ParseError(expected=expected, found=value, hint="units: W, kW, MW")
    scale = {"": 1, "k": 1_000, "M": 1_000_000}[match.group(2)]
    return _bounded(math.ceil(Fraction(match.group(1)) * scale), value, expected)


# --- leaves -------------------------------------------------------------------------------------------------------


def _clean(value: Scalar, expected: str) -> str:
    """The text of a scalar without outer blanks; a boolean, an infinity or an endless text is a problem."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ParseError(expected=expected, found=value)
    if isinstance(value, float):
        return _render_float(value, expected)
    if isinstance(value, int):
        value = str(_bounded(value, value, expected))
    cleaned = value.strip()
    if not cleaned or len(cleaned) > TEXT_CHARACTERS_MAX:
        raise ParseError(expected=expected, found=value, hint=f"at most {TEXT_CHARACTERS_MAX} characters")
    return cleaned


def _render_float(value: float, expected: str) -> str:
    if not math.isfinite(value):
        raise ParseError(expected=expected, found=value)
    text = f"{value:.12f}".rstrip("0").rstrip(".")
    if float(text) != value:
        raise ParseError(expected=expected, found=value, hint="write it in plain digits, in quotes")
    return text


def _bounded(amount: int, found: Scalar, expected: str) -> int:
    if abs(amount) > AMOUNT_MAX:
        raise ParseError(expected=expected, found=found, hint=f"the largest that can be kept is {AMOUNT_MAX}")
    return amount


def _binary(letter: str) -> int:
    return 1 << (10 * _BINARY_POWERS[letter])


def _hint_duration(cleaned: str) -> str:
    if re.fullmatch(_NUMBER, cleaned):
        return f"a bare number has no unit; write {cleaned}m or {cleaned}s"
    return "units: w, d, h, m, s, ms, in lower case"


def _hint_quantity(cleaned: str) -> str:
    if cleaned.endswith("B"):
        return "Kubernetes writes no B: 64Gi, not 64GiB"
    return "kilo is a small k; powers of two end in i, such as Ki"


def _strip_open_end(value: Scalar, expected: str) -> Scalar:
    """Without the `+` or `..` that says: or more. Raises ParseError for an upper bound."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if ".." in text and not text.endswith(".."):
        hint = "an upper bound cannot be asked for: leave it out"
        raise ParseError(expected=expected, found=value, hint=hint)
    return text.removesuffix(".." if text.endswith("..") else "+")
