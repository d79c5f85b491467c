"""What the command line says of its own, in English and in Chinese.

The English text in the source is the key; `CHINESE` holds its translation, with the same `{fields}`. A text that has
none is shown in English, and a test finds it. Names of options, commands, keys and formats are never translated.
"""

from collections.abc import Mapping
from enum import StrEnum

from clearway.cli.chinese import CHINESE


class Language(StrEnum):
    """Languages of the command line."""

    ENGLISH = "en"
    CHINESE = "zh"


LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Where POSIX looks for the language of messages: the first that is set and not empty counts."""


def choose_language(asked: str | None, environment: Mapping[str, str]) -> Language:
    """The language asked for by `--language`, else that of the environment, else English."""
    spoken = asked if asked else next((environment[name] for name in LOCALE_VARIABLES if environment.get(name)), "")
    return Language.CHINESE if spoken.lower().startswith("zh") else Language.ENGLISH


def translate(text: str, language: Language) -> str:
    """`text` in `language`; English where there is no translation."""
    return CHINESE.get(text, text) if language is Language.CHINESE else text
