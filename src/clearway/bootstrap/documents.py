"""Small text files that people write: read whole, or an InputError that says why not."""

from pathlib import Path

from clearway.model.errors import InputError


def read_document(path: Path) -> str:
    """The text of a file in UTF-8, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: expected a readable file, found: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: expected text in UTF-8, found: {error}; save it as UTF-8") from error
