"""Amounts in words for people: devices, times, lists of jobs. English, short, without false precision."""

from collections.abc import Sequence

from clearway.model.units import DAY_MS, GIB, HOUR_MS, KIB, MIB, MILLI, MINUTE_MS, SECOND_MS

UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min"), (SECOND_MS, "s"))


def number_in_words(milli: int) -> str:
    """Thousandths as a number: `8`, `0.4`."""
    return f"{milli / MILLI:g}"


def devices_in_words(milli: int) -> str:
    """Thousandths of devices: `1 device`, `8 devices`, `0.4 devices`."""
    return f"{number_in_words(milli)} {'device' if milli == MILLI else 'devices'}"


def count_in_words(count: int, thing: str) -> str:
    """A count of things: `1 node`, `3 nodes`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def time_in_words(ms: int) -> str:
    """A length of time by its two largest units, rounded up to a second: `45 s`, `2 h`, `1 d 3 h`."""
    left = max(-(-ms // SECOND_MS), 1) * SECOND_MS
    for place, (unit, name) in enumerate(UNITS):
        if left >= unit:
            text = f"{left // unit} {name}"
            rest = left % unit
            if place + 1 < len(UNITS) and rest >= UNITS[place + 1][0]:
                text += f" {rest // UNITS[place + 1][0]} {UNITS[place + 1][1]}"
            return text
    return "1 s"


def memory_in_words(size: int) -> str:
    """Bytes in GiB: `80 GiB`, `0.5 GiB`; in MiB or KiB where they are few."""
    unit, name = (GIB, "GiB") if size >= GIB // 10 else (MIB, "MiB") if size >= MIB // 10 else (KIB, "KiB")
    return f"{size / unit:.4g} {name}"


def list_in_words(names: Sequence[str], joined_by: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {joined_by} {names[-1]}"


def jobs_in_words(jobs: Sequence[int], more: int = 0) -> str:
    """`job 3`, `jobs 3 and 5`, `jobs 3, 5 and 12 more`."""
    names = [str(job) for job in jobs]
    if more > 0:
        names.append(f"{more} more")
    return f"{'job' if len(names) == 1 else 'jobs'} {list_in_words(names)}"


def power_in_words(watts: int) -> str:
    """Watts as people write them: `350 W`, `12.5 kW`, `1.2 MW`."""
    for unit, name in ((1_000_000, "MW"), (1_000, "kW")):
        if watts >= unit:
            return f"{watts / unit:.4g} {name}"
    return f"{watts} W"
