"""The source keeps the rules of CONTRIBUTING.md that ruff, mypy and import-linter cannot state."""

import dataclasses

import pytest

from support.source_rules import (
    BELOW_DRIVERS,
    PACKAGE,
    PURE_PACKAGES,
    ROOT,
    Source,
    documented_by_protocols,
    find_driver_words,
    find_impure,
    find_loose_dataclasses,
    find_undocumented,
    find_unsafe,
    find_unseeded,
    measure_functions,
    read_sources,
)

FUNCTION_LINES_MAX = 70
"""Fits on one screen. Above it a function does more than one thing."""

FILE_LINES_MAX = 600
"""The aim is about 500; the rest is room to finish a thought before a file is split."""


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return read_sources(PACKAGE)


def sources_of(packages: tuple[str, ...]) -> list[Source]:
    return [source for package in packages for source in read_sources(PACKAGE / package)]


def assert_none(find, sources: list[Source]) -> None:
    found = [finding for source in sources for finding in find(source)]
    assert not found, "\n" + "\n".join(found)


def test_pure_packages_touch_no_clock_file_output_or_chance():
    assert_none(find_impure, sources_of(PURE_PACKAGES))


def test_no_package_draws_unseeded_random_numbers(sources):
    assert_none(find_unseeded, sources)


def test_nowhere_can_input_become_code(sources):
    everything = [
        *sources,
        *read_sources(ROOT / "tests"),
        *read_sources(ROOT / "bench"),
        *read_sources(ROOT / "scripts"),
    ]
    assert_none(find_unsafe, everything)


def test_packages_below_the_drivers_do_not_name_them():
    assert_none(find_driver_words, sources_of(BELOW_DRIVERS))


def test_nouns_are_frozen_and_slotted():
    assert_none(find_loose_dataclasses, sources_of(("model",)))


def test_everything_public_is_documented(sources):
    elsewhere = documented_by_protocols(sources)
    assert_none(lambda source: find_undocumented(source, elsewhere), sources)


def test_functions_fit_on_one_screen(sources):
    long = [length for length in measure_functions(sources) if length.lines > FUNCTION_LINES_MAX]
    assert [dataclasses.astuple(length) for length in long] == []


def test_files_are_short(sources):
    lengths = {source.path: len(source.text.splitlines()) for source in sources}
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES_MAX} == {}
