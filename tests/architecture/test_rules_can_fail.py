"""Each rule finds the breach that it is there for, and passes what looks like one but is none."""

import pytest

from support.source_rules import (
    describe_functions,
    documented_by_protocols,
    find_driver_words,
    find_impure,
    find_loose_dataclasses,
    find_set_iteration,
    find_undocumented,
    find_unsafe,
    find_unseeded,
    measure_functions,
    parse_source,
)


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import os.path",
        "from datetime import datetime",
        "import random as chance",
        "from logging import getLogger",
        "print('here')",
        "open('file')",
        "input()",
        "import numpy as np\nnp.load('file')",
        "import numpy as np\nnp.random.seed(1)",
        "from numpy.random import default_rng\ndefault_rng()",
        "key = hash('text')",
        "key = id(object())",
        "for job in {1, 2}: pass",
        "[job for job in set(jobs)]",
    ],
)
def test_impure_code_is_found(text):
    assert find_impure(parse_source(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "def plan(now_ms: int) -> int: return now_ms",
        "import numpy as np\ndef draw(stream: np.random.Generator) -> float: return stream.random()",
        "for job in sorted({1, 2}): pass",
        "class A:\n    def __hash__(self): return hash(self.key)",
        "box.open()",
        "from clearway.model.units import HOUR_MS",
    ],
)
def test_pure_code_passes(text):
    assert find_impure(parse_source(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "eval('1')",
        "exec('a = 1')",
        "__import__('os')",
        "import os\nos.system('true')",
        "import subprocess\nsubprocess.run('true', shell=True)",
        "import subprocess\nsubprocess.run('true', shell=wanted)",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "from yaml import unsafe_load\nunsafe_load(text)",
    ],
)
def test_unsafe_code_is_found(text):
    assert find_unsafe(parse_source(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "import yaml\nyaml.safe_load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "import subprocess\nsubprocess.run(['true'], shell=False)",
        "model.eval()",
    ],
)
def test_safe_code_passes(text):
    assert find_unsafe(parse_source(text)) == []


def test_a_seed_makes_a_generator_allowed():
    assert find_unseeded(parse_source("import numpy\nnumpy.random.default_rng(7)")) == []


def test_a_sorted_set_may_be_looped_over():
    assert find_set_iteration(parse_source("for x in sorted(set(y)): pass")) == []


@pytest.mark.parametrize("text", ["# in sim only", "sim_clock = 1", "class SimBackend: ...", "'live'", "IS_LIVE = 1"])
def test_words_for_the_drivers_are_found(text):
    assert find_driver_words(parse_source(text)) != []


@pytest.mark.parametrize(
    "text", ["similar = 1", "# lives and delivers", "class Simple: ...", "SIMPLE = 1", "alive = 2"]
)
def test_words_that_merely_contain_them_pass(text):
    assert find_driver_words(parse_source(text)) == []


@pytest.mark.parametrize(
    "decorator",
    ["@dataclass", "@dataclass(frozen=True)", "@dataclass(slots=True)", "@dataclass(frozen=True, slots=False)"],
)
def test_a_loose_dataclass_is_found(decorator):
    text = f"from dataclasses import dataclass\n{decorator}\nclass Noun:\n    a: int"
    assert find_loose_dataclasses(parse_source(text)) == ["example.py:3: Noun is not frozen and slotted"]


def test_a_frozen_slotted_dataclass_passes():
    text = "import dataclasses\n@dataclasses.dataclass(frozen=True, slots=True)\nclass Noun:\n    a: int"
    assert find_loose_dataclasses(parse_source(text)) == []


def test_missing_docstrings_are_found():
    text = "def run(): ...\nclass Box:\n    def put(self): ...\n    def _hidden(self): ...\ndef _hidden(): ..."
    names = [finding.split(": ", 1)[1] for finding in find_undocumented(parse_source(text))]
    assert names == ["no module docstring", "run has no docstring", "Box has no docstring", "put has no docstring"]


def test_what_a_protocol_explains_needs_no_second_text():
    text = '"""M."""\nclass Order(Protocol):\n    """refresh: how often."""\n    def refresh(self): ...\n'
    text += 'class Fifo:\n    """F."""\n    def refresh(self): ...\n'
    source = parse_source(text)
    assert find_undocumented(source) != []
    assert find_undocumented(source, documented_by_protocols([source])) == []


def test_lengths_count_the_lines_of_a_function_with_its_docstring():
    source = parse_source('def short(): ...\n\n@cached\ndef long():\n    """Text."""\n    a = 1\n    return a\n')
    assert [(length.name, length.lines) for length in measure_functions([source])] == [("long", 4), ("short", 1)]
    assert describe_functions(measure_functions([source])).startswith("2 functions: median 2.5 lines")
