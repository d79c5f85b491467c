"""How long a job will run, from how long like jobs ran: recent samples per key, from the narrowest key that knows.

Keys back off from (user, name, size) to everybody. Where the user said how long the job would take (its estimate, or
else its limit), jobs of the same user that said the same are alike, and so is the ratio of run time to what was said
(Tsafrir et al., TPDS 2007: people repeat their jobs, and their errors).

Quantiles are predictive: of n samples the k-th smallest is not exceeded by the next one with probability k / (n + 1).
Where a key has too few samples for a tail, the tail also takes in wider keys, and never lies inside what was seen.

Pure and bounded: at most `KEYS_MAX` keys of `SAMPLES_KEPT` samples; the keys longest without news are forgotten first.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from clearway.model.jobs import JobSpec

SAMPLES_KEPT: Final = 8
"""Samples per key. Jobs come in batches of near copies, so more samples of one key say little that is new: they make
the median no better and the tails too narrow. Measured as the share of runs within the 90 % quantile of their time of
submission, with 8 and with 32 samples: Philly 90 and 83 %, RICC 81 and 70 %, MetaCentrum 86 and 77 %, HPC2N 98 and
87 %; mean of shorter over longer of run time and median: 0.67 and 0.69, 0.44 and 0.45, 0.37 and 0.37, 0.53 and 0.53."""

SAMPLES_MIN: Final = 2
"""Fewer samples than this do not speak for a key while a wider one knows more (Tsafrir et al. use the last two)."""

KEYS_MAX: Final = 100_000
"""Keys kept. A job has at most nine; at some 600 bytes each this is 60 MB at the very most."""

CUT_OFF_STRETCH: Final = 2
"""A run that was cut off counts as this many times as long: of heavy-tailed run times, what has lasted is likely to
last as long again. The limit of the job that is predicted caps it."""

_PPM: Final = 1_000_000
_THOUSAND: Final = 1_000


class Source(IntEnum):
    """What a prediction is drawn from, narrow to wide. RATIO: run time over what the user said, times what is said."""

    USER_NAME_SIZE = 0
    USER_NAME = 1
    USER_SIZE_SAID = 2
    USER_RATIO = 3
    USER_SIZE = 4
    USER = 5
    QUEUE_RATIO = 6
    QUEUE_SIZE = 7
    ALL = 8


_RATIOS: Final = (Source.USER_RATIO, Source.QUEUE_RATIO)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Run time of one job in ms: one in ten such jobs is shorter than low_ms, half are shorter than median_ms, nine in
    ten than high_ms. samples: how many runs the median rests on. source: which runs these are."""

    low_ms: int
    median_ms: int
    high_ms: int
    samples: int
    source: Source


_Key = tuple[Source, str, str, int, int]


def _said_ms(spec: JobSpec) -> int:
    """What the user said about the run time; 0 = nothing."""
    return spec.estimate_ms or spec.limit_ms or 0


def _keys(spec: JobSpec, said_ms: int) -> Iterator[_Key]:
    """Keys of a job, narrow to wide: source, user or queue, name, size class, what was said.

    Sizes are alike within a factor of two, names up to a trailing number. Without a user, the tenant stands for one.
    """
    user = spec.user or spec.tenant
    size = (spec.replicas * spec.request.device_milli).bit_length()
    name = spec.name.rstrip("0123456789-_.")
    if name:
        yield (Source.USER_NAME_SIZE, user, name, size, 0)
        yield (Source.USER_NAME, user, name, 0, 0)
    if said_ms:
        yield (Source.USER_SIZE_SAID, user, "", size, said_ms)
        yield (Source.USER_RATIO, user, "", 0, 0)
    yield (Source.USER_SIZE, user, "", size, 0)
    yield (Source.USER, user, "", 0, 0)
    if said_ms:
        yield (Source.QUEUE_RATIO, spec.queue, "", 0, 0)
    yield (Source.QUEUE_SIZE, spec.queue, "", size, 0)
    yield (Source.ALL, "", "", 0, 0)


class RuntimeHistory:
    """What has been learned about run times. Deterministic: the same observations give the same predictions."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: OrderedDict[_Key, list[int]] = OrderedDict()

    def observe_finished(self, spec: JobSpec, run_ms: int, *, completed: bool) -> None:
        """A job ran for `run_ms`; completed is False when it was cut off (the true run time is longer)."""
        value = max(run_ms if completed else CUT_OFF_STRETCH * run_ms, 1)
        said_ms = _said_ms(spec)
        samples = self._samples
        for key in _keys(spec, said_ms):
            known = samples.get(key)
            if known is None:
                known = samples[key] = []
                if len(samples) > KEYS_MAX:
                    samples.popitem(last=False)
            else:
                samples.move_to_end(key)
            known.append(value * _PPM // said_ms if key[0] in _RATIOS else value)
            if len(known) > SAMPLES_KEPT:
                del known[0]

    def predict_ms(self, spec: JobSpec, quantile: float, elapsed_ms: int = 0) -> int | None:
        """Run time that a share `quantile` of such jobs does not exceed; None when nothing is known.

        Never above the job's limit. elapsed_ms: how long it has run already; only longer runs are alike then.
        """
        found = self._find(spec, quantile, elapsed_ms)
        return None if found is None else found[0]

    def predict(self, spec: JobSpec, elapsed_ms: int = 0) -> Prediction | None:
        """Run time with its spread and where it comes from; None when nothing is known."""
        low = self._find(spec, 0.1, elapsed_ms)
        median = self._find(spec, 0.5, elapsed_ms)
        high = self._find(spec, 0.9, elapsed_ms)
        if low is None or median is None or high is None:
            return None
        return Prediction(min(low[0], median[0]), median[0], max(high[0], median[0]), median[1], median[2])

    def __len__(self) -> int:
        """Keys kept."""
        return len(self._samples)

    def _find(self, spec: JobSpec, quantile: float, elapsed_ms: int) -> tuple[int, int, Source] | None:
        """The quantile in ms, the number of samples behind it, and their source."""
        said_ms = _said_ms(spec)
        permille = round(quantile * _THOUSAND)
        edge: int | None = None
        found: tuple[int, int, Source] | None = None
        for key in _keys(spec, said_ms):
            known = self._samples.get(key)
            if known is None:
                continue
            source = key[0]
            scale = said_ms if source in _RATIOS else _PPM
            ordered = sorted(known)
            first = bisect_right(ordered, elapsed_ms * _PPM // scale) if elapsed_ms else 0
            count = len(ordered) - first
            if count < SAMPLES_MIN and not (count and source is Source.ALL):
                continue
            value, is_within = _quantile(ordered, first, permille)
            edge = _outer(edge, value * scale // _PPM, permille)
            found = (edge, count, source)
            if is_within:
                break
        if found is None:
            return (_capped(spec, 2 * elapsed_ms), 0, Source.ALL) if elapsed_ms and self._samples else None
        return (_capped(spec, max(found[0], elapsed_ms + 1)), found[1], found[2])


def _quantile(ordered: list[int], first: int, permille: int) -> tuple[int, bool]:
    """Quantile of ordered[first:], linear between samples, and whether it lies within them (else the last on its side).

    Of n samples the k-th smallest is not exceeded by the next value with probability k / (n + 1).
    """
    place, part = divmod(permille * (len(ordered) - first + 1), _THOUSAND)
    if place < 1:
        return ordered[first], False
    below = first + place - 1
    if below >= len(ordered) - 1:
        return ordered[-1], below == len(ordered) - 1 and part == 0
    return ordered[below] + (ordered[below + 1] - ordered[below]) * part // _THOUSAND, True


def _outer(edge: int | None, value: int, permille: int) -> int:
    """The one of a narrower key's last sample and a wider key's quantile that lies further out on its side."""
    if edge is None:
        return value
    return max(edge, value) if permille > _THOUSAND // 2 else min(edge, value)


def _capped(spec: JobSpec, run_ms: int) -> int:
    return run_ms if spec.limit_ms is None else min(run_ms, spec.limit_ms)
