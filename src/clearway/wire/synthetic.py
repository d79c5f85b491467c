"""A fitted model of a workload as a file (YAML or JSON), as `clearway trace fit` writes it. Keys are the
fields of the generator's `SyntheticModel`, where they are explained.

Tables of quantiles are lists of 25 numbers: at 0, 5, …, 95 %, then at 97.5, 99, 99.5, 99.9 and 100 %.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self

import pydantic
import yaml

from clearway.model.jobs import JobKind
from clearway.model.units import DAY_MS, MILLI
from clearway.wire.documents import load_document, validate_document
from clearway.wire.problems import ParseError
from clearway.wire.schema import Name, NotNegativeNumber, Positive, PositiveNumber, Schema, Text, convert, require_items

VERSION: Final = 1
MARK: Final = "synthetic_model:"
"""The first key of every such file, by which it is recognised."""
TABLE_NUMBERS: Final = 25
HOURS: Final = 24
SIGNIFICANT: Final = 6
"""Digits of a number that is written: finer than any trace tells a distribution."""

SECONDS_MAX: Final = 1e9
"""Longest time of a table, some thirty years, and most jobs of a burst: what is beyond is a slip of the pen."""
RATE_MIN: Final = 1e-9
RATE_MAX: Final = 1e9
"""Of jobs an hour and of weights: beyond these sums overflow, or nothing comes in a thousand years."""
USERS_MAX: Final = 1_000_000
SKEW_MAX: Final = 100.0
"""Of two users of which one submits a million times as often it is 20."""
RATIO_MAX: Final = 1e18
"""Time limits are at most so many times as long as runs: some logs write no limit as the largest number they know."""
WIDTH: Final = 120

HEADER: Final = (
    '# A model of a workload. Draw from it: clearway simulate "synthetic:FILE?jobs=10000&load=0.9&devices=512" …\n'
    "# Tables of quantiles are at 0, 5, …, 95 %, then at 97.5, 99, 99.5, 99.9 and 100 %; names end in their units.\n"
)


def _list_of(count: int, expected: str, at_least: float, at_most: float) -> Callable[[object], tuple[float, ...]]:
    """A parser of exactly so many numbers in a range."""

    def parse(value: object) -> tuple[float, ...]:
        if not isinstance(value, list | tuple):
            raise ParseError(expected=expected, found=value, hint="write it as [a, b, …]")
        for index, number in enumerate(value):
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if not is_number or not at_least <= number <= at_most:
                raise ParseError(expected=f"a number from {at_least:g} to {at_most:g}", found=number, field=str(index))
        if len(value) != count:
            raise ParseError(expected=expected, found=len(value))
        return tuple(float(number) for number in value)

    return parse


def _table_of(at_least: float, at_most: float = SECONDS_MAX) -> Callable[[object], tuple[float, ...]]:
    """A parser of a table of quantiles."""
    parse_list = _list_of(TABLE_NUMBERS, f"a table of {TABLE_NUMBERS} quantiles", at_least, at_most)

    def parse(value: object) -> tuple[float, ...]:
        table = parse_list(value)
        for index in range(1, TABLE_NUMBERS):
            if table[index] < table[index - 1]:
                expected = f"at least {table[index - 1]:g}, as quantiles do not fall"
                raise ParseError(expected=expected, found=table[index], field=str(index))
        return table

    return parse


def _parse_limits(value: object) -> tuple[float, ...]:
    return () if value == [] else _table_of(1, RATIO_MAX)(value)


def _parse_hours(value: object) -> tuple[float, ...]:
    hours = _list_of(HOURS, f"{HOURS} rates, one an hour from midnight", 0, RATE_MAX)(value)
    if max(hours) < RATE_MIN:
        expected = f"a rate of {RATE_MIN:g} or more in some hour"
        raise ParseError(expected=expected, found=max(hours) or "only zeros")
    return hours


Seconds = Annotated[tuple[float, ...], convert(_table_of(0))]
Pauses = Annotated[tuple[float, ...], convert(_table_of(-SECONDS_MAX))]
Counts = Annotated[tuple[float, ...], convert(_table_of(1))]
LimitRatios = Annotated[tuple[float, ...], convert(_parse_limits)]
Hours = Annotated[tuple[float, ...], convert(_parse_hours)]
Share = Annotated[NotNegativeNumber, pydantic.Field(le=1)]
Rate = Annotated[PositiveNumber, pydantic.Field(ge=RATE_MIN, le=RATE_MAX)]


class PaceModel(Schema):
    """Pace of the bursts of at least so many jobs: the generator's `BurstPace`."""

    jobs_min: Annotated[Positive, pydantic.Field(ge=2)]
    gap_quantiles_s: Seconds


class SessionsModel(Schema):
    """Batches of one user in a row: the generator's `SessionModel`."""

    batch_quantiles: Counts
    pause_quantiles_s: Pauses
    shape_likeness: Share
    size_likeness: Share
    pause_likeness: Share
    hour_weights: Hours


class ShapeModel(Schema):
    """A shape of job: the generator's `JobShape`."""

    replicas: Positive
    devices: Positive
    share_milli: Annotated[Positive, pydantic.Field(le=MILLI)] = MILLI
    weight: Rate
    run_quantiles_s: Seconds
    burst_probability: Share
    burst_size_quantiles: Counts

    @pydantic.model_validator(mode="after")
    def _check_share(self) -> Self:
        if self.share_milli < MILLI and self.devices != 1:
            expected = "1 device where a share of it is asked for"
            raise ParseError(expected=expected, found=self.devices, hint="use replicas", field="devices")
        return self


class TenantModel(Schema):
    """A tenant and its share of the users' activity."""

    name: Text
    weight: Rate


class KindModel(Schema):
    """A kind of job and its share of the batches."""

    kind: JobKind
    weight: Rate


class SyntheticFile(Schema):
    """The whole file."""

    synthetic_model: Annotated[int, pydantic.Field(strict=True, ge=VERSION, le=VERSION)]
    name: Name
    source: Text = ""
    jobs_per_hour: Rate
    hour_weights: Hours
    users: Annotated[Positive, pydantic.Field(le=USERS_MAX)]
    user_skew: Annotated[NotNegativeNumber, pydantic.Field(le=SKEW_MAX)]
    tenants: Annotated[tuple[TenantModel, ...], convert(require_items)]
    kinds: Annotated[tuple[KindModel, ...], convert(require_items)]
    limit_quantiles: LimitRatios = ()
    resolution_ms: Annotated[Positive, pydantic.Field(le=DAY_MS)] = 1
    run_likeness: Share = 0.0
    burst_gap_s: Annotated[NotNegativeNumber, pydantic.Field(le=SECONDS_MAX)] = 0.0
    burst_paces: tuple[PaceModel, ...] = ()
    sessions: SessionsModel | None = None
    shapes: Annotated[tuple[ShapeModel, ...], convert(require_items)]

    @pydantic.model_validator(mode="after")
    def _check_paces(self) -> Self:
        for index in range(1, len(self.burst_paces)):
            before, jobs = self.burst_paces[index - 1].jobs_min, self.burst_paces[index].jobs_min
            if jobs <= before:
                field = f"burst_paces.{index}.jobs_min"
                raise ParseError(
                    expected=f"more than {before}, which stands before it", found=jobs, hint="sort them", field=field
                )
        return self


def load_synthetic_file(path: Path) -> SyntheticFile:
    """The model in the file at `path`. Raises InputError that lists all errors with lines."""
    return validate_document(load_document(path), SyntheticFile)


class _Quoted(str):
    """Text that is written in quotes: a tenant may be called 1e5."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes `_Quoted`."""


_Dumper.add_representer(
    _Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')
)


def render_synthetic_file(values: Mapping[str, object]) -> str:
    """The file of a model that is given by its keys; numbers are rounded to SIGNIFICANT digits."""
    data = {"synthetic_model": VERSION, **{key: _as_written(value) for key, value in values.items()}}
    return HEADER + yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=WIDTH
    )


def _as_written(value: Any) -> Any:
    if isinstance(value, str):
        return _Quoted(value)
    if isinstance(value, float):
        number = float(f"{value:.{SIGNIFICANT}g}")
        return int(number) if number.is_integer() else number
    if isinstance(value, Mapping):
        return {key: _as_written(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [_as_written(one) for one in value]
    return value
