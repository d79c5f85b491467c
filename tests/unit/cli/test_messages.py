"""Both languages say the same, and nothing on the screen is left untranslated by accident."""

import ast
import re
import string
from pathlib import Path

import pytest

import clearway.cli
from clearway.bootstrap.comparison import COMPARED
from clearway.cli.app import find_language, make_command
from clearway.cli.chinese import CHINESE, POLICIES
from clearway.cli.help_words import ENGINES, JOBS, WORDS
from clearway.cli.messages import Language, choose_language, translate
from clearway.policies.named import POLICY_NAMES

SOURCES = sorted(Path(clearway.cli.__file__).parent.glob("*.py"))
SPEAKING = ("say", "note", "progress", "translate", "_show", "make_table", "show_pairs", "show_table")
UNTRANSLATED = {"{note}", "", "name", "  "}
"""Texts that hold only data."""


def spoken_in(source):
    """Constants among the arguments of calls that translate."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in SPEAKING:
            for argument in node.args:
                yield from (part.value for part in ast.walk(argument) if isinstance(part, ast.Constant))


def labels_in(source):
    """Constants in tuples that begin like a label: they are translated where they are shown."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Tuple):
            yield from (part.value for part in node.elts if isinstance(part, ast.Constant))


def helps_of(command):
    yield command.help
    yield from (getattr(parameter, "help", None) for parameter in command.params)
    for child in getattr(command, "commands", {}).values():
        yield from helps_of(child)


def fields_of(text):
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_every_spoken_text_is_translated():
    spoken = {text for source in SOURCES for text in spoken_in(source) if isinstance(text, str)}
    assert spoken - UNTRANSLATED - set(CHINESE) == set()


def test_every_label_of_a_table_is_translated():
    shown = [source for source in SOURCES if source.name.startswith("show_")]
    labels = {text for source in shown for text in labels_in(source) if isinstance(text, str)}
    labels = {text for text in labels if re.match(r" *[A-Z]", text)} | {metric.label for metric in COMPARED}
    assert labels - set(CHINESE) == set()


def test_every_word_on_what_would_help_is_translated():
    assert {text for _, text in WORDS} | set(JOBS) | set(ENGINES) <= set(CHINESE)


def test_every_policy_has_a_line_in_chinese():
    assert tuple(POLICIES) == POLICY_NAMES


def test_every_help_text_is_translated():
    helps = {text for text in helps_of(make_command(Language.ENGLISH)) if text}
    helps.discard("Show this message and exit.")  # the framework's own, added when help is shown
    assert helps - set(CHINESE) == set()


def test_help_is_written_in_the_chosen_language():
    command = make_command(Language.CHINESE)
    assert CHINESE["Print the version and exit."] in list(helps_of(command))
    assert "Print the version and exit." in list(helps_of(make_command(Language.ENGLISH)))


def test_a_translation_fills_the_same_fields():
    assert {text for text in CHINESE if fields_of(text) != fields_of(CHINESE[text])} == set()


@pytest.mark.parametrize(
    ("asked", "environment", "language"),
    [
        (None, {}, Language.ENGLISH),
        (None, {"LANG": "zh_CN.UTF-8"}, Language.CHINESE),
        (None, {"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, Language.ENGLISH),
        (None, {"LANG": "en_GB.UTF-8", "LC_MESSAGES": "zh_TW"}, Language.CHINESE),
        (None, {"LC_ALL": "", "LANG": "zh_CN"}, Language.CHINESE),
        ("en", {"LANG": "zh_CN.UTF-8"}, Language.ENGLISH),
        ("zh", {"LANG": "en_GB.UTF-8"}, Language.CHINESE),
    ],
)
def test_the_option_goes_before_the_locale_and_the_locale_before_english(asked, environment, language):
    assert choose_language(asked, environment) is language


def test_the_language_is_known_before_options_are_parsed():
    assert find_language(["--language", "zh", "--help"]) == "zh"
    assert find_language(["--language=zh", "--help"]) == "zh"
    assert find_language(["--help"]) is None
    assert find_language(["--language"]) is None


def test_a_text_without_translation_stays_english():
    assert translate("no such text", Language.CHINESE) == "no such text"
