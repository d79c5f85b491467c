"""Request traces of model serving: each request becomes a `task` job of one device.

Sources: Azure LLM inference trace 2023 (Patel et al., "Splitwise", ISCA 2024); Mooncake (Qin et al., FAST 2025);
ServeGen (Xiang et al., arXiv 2505.09999).

The traces have no service times, so they come from tokens by `ServiceTime`: a fixed overhead, a time per prompt token
and a time per output token. It knows no batching and no prefix cache, so device time is overstated wherever a server
would batch; what is real in these workloads is when requests come and how their sizes vary.
"""

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearway.model.errors import InputError
from clearway.model.jobs import JobKind, Request
from clearway.model.units import SECOND_MS
from clearway.sim.text_files import ProgressCallback, iterate_lines, open_text
from clearway.sim.traces.assemble import JobDraft, JobOptions, SkipTally, TraceFacts, assemble_workload
from clearway.sim.traces.columns import (
    CsvRow,
    iterate_csv,
    parse_number,
    parse_wall_clock_ms,
    parse_whole,
    split_record,
)
from clearway.sim.workload import Workload

AZURE_HEADER = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SERVEGEN_HEADER = ("client", "window_start_s", "rate_rps", "cv", "arrival_model", "param1", "param2")
WINDOW_S = 600
"""Length of one window of ServeGen's rates."""
ARRIVALS_MAX = 1_000_000
"""Requests drawn at most: two weeks of the largest client list are tens of millions."""
PROMPT_TOKENS_TYPICAL = 1_024
OUTPUT_TOKENS_TYPICAL = 256
"""Tokens of a request where no distribution lies beside the rates: the order of magnitude of chat services."""
NEGATIVE_TOKENS = "a negative token count"
NOT_AN_OBJECT = "a line that is not a JSON object with timestamp, input_length and output_length"
BAD_WINDOW = "an arrival model that is not Gamma, Weibull or empty, or a parameter that is not positive"

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """overhead_ms + prompt tokens × prefill_ms_per_token + output tokens × decode_ms_per_token.

    The defaults are of the order that Splitwise (ISCA 2024, figures 5 and 6) measures for a 70-billion-parameter model
    on one H100 machine: about 100 ms for a prompt of 1,500 tokens, 30 ms for each output token.
    """

    overhead_ms: float = 10.0
    prefill_ms_per_token: float = 0.065
    decode_ms_per_token: float = 30.0

    def run_ms(self, prompt_tokens: int, output_tokens: int) -> int:
        """At least 1 ms."""
        prompt_ms, output_ms = self.prefill_ms_per_token * prompt_tokens, self.decode_ms_per_token * output_tokens
        return max(1, round(self.overhead_ms + (prompt_ms + output_ms)))

    def runs_ms(self, prompt_tokens: IntArray, output_tokens: IntArray) -> IntArray:
        """`run_ms` of many requests, int64."""
        prompt_ms, output_ms = self.prefill_ms_per_token * prompt_tokens, self.decode_ms_per_token * output_tokens
        return np.maximum(1, np.rint(self.overhead_ms + (prompt_ms + output_ms)).astype(np.int64))


SERVICE_TIME = ServiceTime()
NOTE = "Service times are computed from token counts (no batching, no prefix cache)."
ONE_DEVICE = Request(devices=1)
TASK_OPTIONS = JobOptions(kind=JobKind.TASK)


def recognise_azure(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header of the Azure trace."""
    return bool(head) and tuple(split_record(head[0])) == AZURE_HEADER


def recognise_mooncake(head: tuple[str, ...]) -> bool:
    """Whether the first line begins as a record of Mooncake (it may be too long to be whole in the head)."""
    return (
        bool(head)
        and head[0].startswith("{")
        and all(f'"{key}"' in head[0][:200] for key in ("timestamp", "input_length"))
    )


def recognise_servegen(head: tuple[str, ...]) -> bool:
    """Whether the first line is the header of the joined client rates."""
    return bool(head) and tuple(split_record(head[0])) == SERVEGEN_HEADER


def read_azure(
    path: Path,
    limit: int | None = None,
    progress: ProgressCallback | None = None,
    service: ServiceTime = SERVICE_TIME,
) -> Workload:
    """Read the Azure trace. Time stamps are UTC."""
    tally = SkipTally()
    drafts: list[JobDraft] = []
    for row in iterate_csv(path, AZURE_HEADER, tally, progress):
        try:
            submit_ms = parse_wall_clock_ms(_microseconds(row.values[0]))
            drafts.append(_draft(row.line, submit_ms, parse_whole(row.values[1]), parse_whole(row.values[2]), service))
        except ValueError as error:
            tally.add(str(error), row.line)
    return assemble_workload(path, drafts, tally, TraceFacts(origin_unix_ms=0, notes=(NOTE,)), limit)


def read_mooncake(
    path: Path,
    limit: int | None = None,
    progress: ProgressCallback | None = None,
    service: ServiceTime = SERVICE_TIME,
) -> Workload:
    """Read a Mooncake trace, one JSON object a line. `hash_ids`, the shared prefixes, are not used."""
    tally = SkipTally()
    drafts: list[JobDraft] = []
    for number, line in iterate_lines(path, progress):
        try:
            record = json.loads(line)
            counts = (int(record["input_length"]), int(record["output_length"]))
            drafts.append(_draft(number, round(float(record["timestamp"])), *counts, service))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            tally.add(NEGATIVE_TOKENS if str(error) == NEGATIVE_TOKENS else NOT_AN_OBJECT, number)
    return assemble_workload(path, drafts, tally, TraceFacts(notes=(NOTE,)), limit)


def _microseconds(text: str) -> str:
    """The trace writes 100 ns digits, one more than `datetime` reads."""
    head, point, fraction = text.partition(".")
    return f"{head}{point}{fraction[:6].ljust(6, '0')}" if point else head


def _draft(line: int, submit_ms: int, prompt_tokens: int, output_tokens: int, service: ServiceTime) -> JobDraft:
    if prompt_tokens < 0 or output_tokens < 0:
        raise ValueError(NEGATIVE_TOKENS)
    run_ms = service.run_ms(prompt_tokens, output_tokens)
    return JobDraft(line, None, submit_ms, run_ms, ONE_DEVICE, 1, TASK_OPTIONS)


def read_servegen(
    path: Path,
    limit: int | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    service: ServiceTime = SERVICE_TIME,
) -> Workload:
    """Draw requests from fitted client rates: renewal arrivals (Gamma, Weibull; exponential where only a rate is given)
    within each 10-minute window, token counts from the distributions that lie beside the file.

    Drawn window by window until `limit` (at most ARRIVALS_MAX) requests are there; the same seed gives the same ones.
    While they are drawn, `progress` is called with (requests, requests wanted).
    """
    tally = SkipTally()
    wanted = min(limit or ARRIVALS_MAX, ARRIVALS_MAX)
    windows = sorted(_iterate_windows(path, tally, progress), key=lambda window: (window.start_s, window.client))
    rng = np.random.default_rng(seed)
    tokens = _TokenDraws(_token_distributions(path), rng)
    drawn: list[_Drawn] = []
    count = ended_s = 0
    for window in windows:
        if count >= wanted and window.start_s > ended_s:
            break
        ended_s = window.start_s
        offsets_s = _arrivals(window, rng)
        submits_ms = np.rint((window.start_s + offsets_s) * SECOND_MS).astype(np.int64)
        drawn.append(_Drawn(window, submits_ms, service.runs_ms(*tokens.draw(len(offsets_s)))))
        count += len(offsets_s)
        if progress is not None:
            progress(min(count, wanted), wanted)
    notes = (NOTE, f"Arrivals are drawn from fitted rates with seed {seed}, up to {ended_s + WINDOW_S} s.")
    return assemble_workload(path, _first_drafts(drawn, wanted), tally, TraceFacts(notes=notes), wanted)


def _first_drafts(drawn: Sequence["_Drawn"], wanted: int) -> list[JobDraft]:
    """The first so many of the requests of all windows by (submit, line); only of these are drafts made."""
    if not drawn:
        return []
    windows = [one.window for one in drawn]
    submits_ms = np.concatenate([one.submits_ms for one in drawn])
    runs_ms = np.concatenate([one.runs_ms for one in drawn])
    place = np.repeat(np.arange(len(drawn)), [len(one.submits_ms) for one in drawn])
    lines = np.array([window.line for window in windows])[place]
    first = np.lexsort((lines, submits_ms))[:wanted]
    options = [JobOptions(kind=JobKind.TASK, user=f"client{window.client}") for window in windows]
    columns = (place[first].tolist(), submits_ms[first].tolist(), runs_ms[first].tolist())
    return [
        JobDraft(windows[at].line, None, submit_ms, run_ms, ONE_DEVICE, 1, options[at])
        for at, submit_ms, run_ms in zip(*columns, strict=True)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    line: int
    client: int
    start_s: int
    rate_rps: float
    model: str
    shape: float
    scale: float


class _Drawn(NamedTuple):
    """The requests of one client in one window. submits_ms, runs_ms: int64[requests]."""

    window: _Window
    submits_ms: IntArray
    runs_ms: IntArray


def _iterate_windows(path: Path, tally: SkipTally, progress: ProgressCallback | None) -> Iterator[_Window]:
    for row in iterate_csv(path, SERVEGEN_HEADER, tally, progress):
        try:
            window = _parse_window(row)
        except ValueError as error:
            tally.add(str(error), row.line)
            continue
        if window.rate_rps > 0:
            yield window


def _parse_window(row: CsvRow) -> _Window:
    client, start, rate, _, model, shape, scale = row.values
    window = _Window(
        line=row.line,
        client=parse_whole(client),
        start_s=parse_whole(start),
        rate_rps=parse_number(rate),
        model=model,
        shape=parse_number(shape or "0"),
        scale=parse_number(scale or "0"),
    )
    fitted = model in ("Gamma", "Weibull")
    if (not fitted and model) or (fitted and not (window.shape > 0 and window.scale > 0)):
        raise ValueError(BAD_WINDOW)
    return window


def _arrivals(window: _Window, rng: np.random.Generator) -> FloatArray:
    """Arrival times in seconds from the window's start: sums of gaps, drawn in blocks until the window is full."""
    block = max(8, round(window.rate_rps * WINDOW_S * 1.25))
    times = np.empty(0)
    last = 0.0
    while last < WINDOW_S and len(times) <= ARRIVALS_MAX:
        times = np.concatenate((times, last + np.cumsum(_gaps(window, block, rng))))
        last = float(times[-1])
    return times[times < WINDOW_S]


def _gaps(window: _Window, count: int, rng: np.random.Generator) -> FloatArray:
    if window.model == "Gamma":
        return rng.gamma(window.shape, window.scale, count)
    if window.model == "Weibull":
        return window.scale * rng.weibull(window.shape, count)
    return rng.exponential(1 / window.rate_rps, count)


class _TokenDraws:
    """Draws (prompt, output) token counts; typical counts where no distribution is known."""

    def __init__(self, distributions: tuple[dict[int, float], dict[int, float]], rng: np.random.Generator) -> None:
        self._columns = [_Distribution(distribution) for distribution in distributions]
        self._rng = rng

    def draw(self, count: int) -> tuple[IntArray, IntArray]:
        """Prompt tokens and output tokens of so many requests, drawn independently of each other."""
        prompt, output = self._columns
        return (
            prompt.draw(count, PROMPT_TOKENS_TYPICAL, self._rng),
            output.draw(count, OUTPUT_TOKENS_TYPICAL, self._rng),
        )


class _Distribution:
    """Token counts and how likely each is."""

    def __init__(self, weights: dict[int, float]) -> None:
        self._values = np.array(sorted(weights), dtype=np.int64)
        ordered = np.array([weights[int(value)] for value in self._values], dtype=np.float64)
        self._cumulated = np.cumsum(ordered) / max(float(ordered.sum()), 1e-300)

    def draw(self, count: int, typical: int, rng: np.random.Generator) -> IntArray:
        """int64[count]; all `typical` where nothing is known."""
        if not len(self._values):
            return np.full(count, typical)
        places = np.searchsorted(self._cumulated, rng.random(count), side="right")
        return self._values[np.minimum(places, len(self._values) - 1)]


def _token_distributions(path: Path) -> tuple[dict[int, float], dict[int, float]]:
    """Prompt and output distributions, pooled over the clients and windows in `token_distributions/` beside the rates
    whose names begin as the rates file does."""
    base = path.name.partition("_client_rates")[0]
    prompt: dict[int, float] = {}
    output: dict[int, float] = {}
    for parent in (path.parent, path.parent.parent):
        for file in sorted((parent / "token_distributions").glob(f"{base}_client*.json*")):
            for window in _load_windows(file):
                _pool(prompt, window.get("input_tokens", "{}"))
                _pool(output, window.get("output_tokens", "{}"))
    return prompt, output


def _load_windows(file: Path) -> list[dict[str, str]]:
    with open_text(file) as (text, _):
        try:
            return list(json.load(text).values())
        except (ValueError, AttributeError) as error:
            raise InputError(f"{file}: expected JSON of windows, found: {error}; fetch the file again") from error


def _pool(total: dict[int, float], text: str) -> None:
    for tokens, probability in ast.literal_eval(text).items():
        total[int(tokens)] = total.get(int(tokens), 0.0) + float(probability)
