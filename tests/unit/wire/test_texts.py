"""What jobs say of themselves reaches other people's screens, file names and programs as text, and as nothing else."""

import json

import pytest

from clearway.model.errors import InputError
from clearway.wire.jobfile import parse_job_file
from clearway.wire.sbatch import parse_sbatch


def parse(**job):
    return parse_job_file(json.dumps(job), source="job.json", now_ms=0, first_id=1, user="ann")


def refuse(**job):
    with pytest.raises(InputError) as caught:
        parse(**job)
    return str(caught.value)


@pytest.mark.parametrize("key", ["name", "output", "error", "input", "workdir", "image", "qos", "queue", "tenant"])
@pytest.mark.parametrize("character", "\x00\n\x1b\x7f\x9b\u061c\u2028\u202e\u2066")
def test_what_others_see_has_no_control_characters(key, character):
    said = refuse(run="x", **{key: f"ab{character}c"})
    assert said.startswith(f"job.json:1: {key}: expected text without control characters, found ")
    assert said.endswith(f"; character 3 is U+{ord(character):04X}; remove it")
    assert said.isprintable()


@pytest.mark.parametrize("image", ["--help", "-v /:/host train:1", "-"])
def test_image_is_no_option_of_the_program_that_runs_it(image):
    said = refuse(run="x", image=image)
    assert said.startswith("job.json:1: image: expected a name that does not begin with a dash, found ")


@pytest.mark.parametrize("asked", [{"gpu_model": "H\x1b"}, {"labels": {"zone": "\x1b"}}, {"labels": {"\x1b": "a"}}])
def test_what_is_asked_for_has_none_either(asked):
    said = refuse(run="x", resources={"gpus": 1, **asked})
    assert "text without control characters" in said
    assert said.isprintable()


def test_letters_of_every_language_and_words_of_several_lines_are_text():
    name, words = "训练 naïve عربي 🚀", ["python", "-c", "a\n\tb\x1b"]
    parsed = parse(name=name, command=words)
    assert parsed.jobs[0].name == name
    assert words[-1] in parsed.runs[0].script


@pytest.mark.parametrize(
    ("job", "key"),
    [
        ({"run": "a\0"}, "run"),
        ({"command": ["a\0"]}, "command[0]"),
        ({"run": "x", "setup": "a\0"}, "setup"),
        ({"run": "x", "env": {"A": "\0"}}, "env.A"),
    ],
)
def test_no_program_is_given_a_nul_byte(job, key):
    assert f"{key}: expected text without NUL bytes" in refuse(**job)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("#!/bin/" + 5_000 * "a", "an interpreter in at most 255 bytes"),
        ("#!/bin/" + 150 * "\u0436", "an interpreter in at most 255 bytes"),
        ("#!/bin/\x1b[31msh", "text without control characters"),
    ],
)
def test_an_interpreter_is_one_that_a_system_can_start(first, expected):
    script = f"{first}\nx\n"
    assert refuse(run=script).startswith(f"job.json:1: run: expected {expected}")
    with pytest.raises(InputError, match=rf"^job\.sh:1: expected {expected}"):
        parse_sbatch(script, source="job.sh", now_ms=0, first_id=1, user="ann")


def test_an_interpreter_may_have_an_argument_behind_a_tab():
    assert parse(run="#!/usr/bin/env\tpython3 \nx").runs[0].script.startswith("#!/usr/bin/env\t")
