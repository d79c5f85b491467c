"""Reading YAML and JSON with lines: what stays text, what is refused, and how errors are told."""

import functools
import json

import pytest

from clearway.model.errors import InputError
from clearway.wire.documents import DEPTH_MAX, VALUES_MAX, load_document, make_document, parse_document


def read(text):
    return parse_document(text, source="file.yaml").data


def test_values_keep_the_type_that_yaml_1_2_gives_them():
    text = "{a: 30:00, b: 2026-01-01, c: no, d: 007, e: 7, f: 1.5, g: true, h: null, i: '7', j: 1_000, k: 0x1f, l: 1e3}"
    assert read(text) == {
        "a": "30:00",
        "b": "2026-01-01",
        "c": "no",
        "d": "007",
        "e": 7,
        "f": 1.5,
        "g": True,
        "h": None,
        "i": "7",
        "j": "1_000",
        "k": "0x1f",
        "l": 1000.0,
    }


def test_lines_and_texts_are_kept_by_place():
    document = parse_document("a: 1\nb:\n- x\n- c: 1.10\n", source="file.yaml")
    assert document.line_of(("b", 1, "c")) == 4
    assert document.line_of(("b", 0)) == 3
    assert document.line_of(("b", 7, "nothing")) == 2
    assert document.text_of(("b", 1, "c")) == "1.10"
    assert document.text_of(("b",)) == ""


def test_a_key_given_twice_is_an_error_with_both_lines():
    with pytest.raises(InputError, match=r"file.yaml:3: a: expected each key once, found 'a'; .* in line 1"):
        read("a: 1\nb: 2\na: 3\n")


def test_json_is_read_with_tabs_and_surrogate_pairs():
    data = {"a": [1, 2.5, None, True, "\U0001f600 \\ud83d"], "b": {"c": "x"}}
    assert read(json.dumps(data, indent="\t")) == data


@pytest.mark.parametrize(
    "text",
    [
        "a: b: c",
        "a: [1",
        "\ta: 1",
        "a: !!python/object:os.system x",
        "a: !!binary aGk=",
        "? [a]\n: 1",
        "a: *b",
        "a\n---\nb",
    ],
)
def test_what_is_not_plain_yaml_is_an_error_with_its_place(text):
    with pytest.raises(InputError, match=r"file.yaml:\d+:"):
        read(text)


def test_depth_is_bounded():
    with pytest.raises(InputError, match=f"at most {DEPTH_MAX} levels"):
        read("[" * 40 + "]" * 40)
    with pytest.raises(InputError, match=f"at most {DEPTH_MAX} levels"):
        read("a: &a [*a]")


def test_aliases_are_counted_each_time_they_are_used():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 8)]
    with pytest.raises(InputError, match="aliases"):
        read("\n".join(lines))


def test_a_file_that_is_missing_or_not_text_is_an_error(tmp_path):
    with pytest.raises(InputError, match="check the path"):
        load_document(tmp_path / "nowhere.yaml")
    with pytest.raises(InputError, match="expected a readable"):
        load_document(tmp_path)
    path = tmp_path / "bytes.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        load_document(path)


def test_a_file_is_read_without_its_byte_order_mark(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text("\ufeffa: 1", encoding="utf-8")
    assert load_document(path).data == {"a": 1}


@pytest.mark.parametrize(
    "text",
    ['{"a": [1, -2.5, true, null, "x"], "b": {"c": "07", "d": ""}}', "{}", '{"a": 1e3}', '{"ü": "\\ud83d\\ude00"}'],
)
def test_data_that_came_as_json_is_the_document_of_its_text(text):
    made = make_document(json.loads(text), source="x")
    assert made.data == parse_document(text, source="x").data
    assert made.line_of(("a",)) == 0, "it has no lines"


def test_scalars_of_data_have_their_texts():
    made = make_document({"a": [True, None, 7, "1.10", 0.5]}, source="x")
    assert [made.text_of(("a", place)) for place in range(5)] == ["true", "null", "7", "1.10", "0.5"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": {"b": float("inf")}}, r"x: a\.b: expected a finite number, found inf"),
        ({"a": "\ud800"}, "x: expected Unicode text"),
        ({"\ud800": "a"}, "x: expected Unicode text"),
        ({"a": [0] * (VALUES_MAX + 2)}, "expected at most"),
        (functools.reduce(lambda inner, _: [inner], range(40), 1), "expected at most 32 levels"),
    ],
    ids=["infinite", "surrogate", "surrogate-key", "many", "deep"],
)
def test_data_that_no_file_could_hold_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        make_document(data, source="x")
