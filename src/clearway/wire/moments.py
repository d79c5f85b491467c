"""Absolute times of begin and deadline, in Unix milliseconds. The present is an argument, and so is the time zone.

Honoured from sbatch(1), --begin: `now`, `now+count[unit]` (without a unit: seconds), `2026-01-31[T12:00[:30]]`,
`HH:MM[:SS]` (the next time the clock shows it), `today`, `midnight`, `noon`, `fika` (15:00), `teatime` (16:00),
`tomorrow`. ISO times may carry `Z` or an offset; others are taken in `zone`. The forms MMDDYY and MM/DD/YY are refused:
half of the world reads them the other way round.
"""

import datetime
import re
from typing import Final

from clearway.model.units import SECOND_MS
from clearway.wire.problems import ParseError
from clearway.wire.units import TEXT_CHARACTERS_MAX, parse_duration

_EXPECTED = "a time such as now+1hour, 2026-01-31T12:00 or 18:30"
_CLOCK_WORDS: Final = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_DAY: Final = datetime.timedelta(days=1)


def parse_moment(text: object, *, now_ms: int, zone: datetime.tzinfo = datetime.UTC) -> int:
    """Unix milliseconds of `text`. now_ms: the present, likewise. Raises ParseError."""
    if not isinstance(text, str) or len(text) > TEXT_CHARACTERS_MAX:
        raise ParseError(expected=_EXPECTED, found=text, hint="put a time in quotes")
    word = text.strip()
    if word.lower() == "now":
        return now_ms
    if word.lower().startswith("now+"):
        count = word[4:].strip()
        return now_ms + parse_duration(f"{count}s" if count.isascii() and count.isdigit() else count)
    present = datetime.datetime.fromtimestamp(now_ms / SECOND_MS, zone)
    return _to_ms(_parse_clock(word.lower(), present) or _parse_iso(word, zone))


def render_moment(moment_ms: int) -> str:
    """ISO 8601 in UTC, such as `2026-01-31T12:00:00Z`; milliseconds only where there are any."""
    seconds, rest = divmod(moment_ms, SECOND_MS)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (f".{rest:03}Z" if rest else "Z")


def _parse_clock(word: str, present: datetime.datetime) -> datetime.datetime | None:
    """The next moment at which the clock shows what `word` says; None if it speaks of no clock time."""
    midnight = present.replace(hour=0, minute=0, second=0, microsecond=0)
    if word == "today":
        return present
    if word == "tomorrow":
        return midnight + _DAY
    match = re.fullmatch(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*(am|pm)?", word)
    if word in _CLOCK_WORDS:
        moment = midnight.replace(hour=_CLOCK_WORDS[word])
    elif match is not None:
        moment = midnight + _parse_time_of_day(match, word)
    else:
        return None
    return moment if moment > present else moment + _DAY


def _parse_time_of_day(match: re.Match[str], word: str) -> datetime.timedelta:
    hour, minute, second = int(match.group(1)), int(match.group(2)), int(match.group(3) or 0)
    half = match.group(4)
    is_valid = minute < 60 and second < 60 and (1 <= hour <= 12 if half else hour < 24)
    if not is_valid:
        raise ParseError(expected=_EXPECTED, found=word, hint="hours 0-23 (1-12 with am or pm), minutes 0-59")
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    return datetime.timedelta(hours=hour, minutes=minute, seconds=second)


def _parse_iso(word: str, zone: datetime.tzinfo) -> datetime.datetime:
    if not re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", word):
        raise ParseError(expected=_EXPECTED, found=word, hint="dates are written year-month-day")
    try:
        moment = datetime.datetime.fromisoformat(word)
    except ValueError as error:
        raise ParseError(expected=_EXPECTED, found=word, hint=str(error)) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


def _to_ms(moment: datetime.datetime) -> int:
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return since // datetime.timedelta(milliseconds=1)
