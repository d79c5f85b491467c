"""Where results go besides the screen: files, or standard output as JSON."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

from clearway.cli.session import Session
from clearway.model.errors import InputError

STANDARD_OUTPUT: Final = "-"
SECRET_MODE: Final = 0o600


def is_json_only(target: str | None) -> bool:
    """Whether standard output must hold nothing but JSON."""
    return target == STANDARD_OUTPUT


def write_json(session: Session, value: object, target: str) -> None:
    """Write `value` as JSON to a file, or to standard output for `-`. NaN and infinity become null."""
    write_json_text(session, json.dumps(_finite(value), indent=2, ensure_ascii=False), target)


def write_secret_json(session: Session, value: object, target: str) -> None:
    """`write_json` to a file that nobody else can read, for what holds a token."""
    if not is_json_only(target):
        path = Path(target)
        ready_path(path)
        try:
            path.touch(SECRET_MODE)
            if path.is_file():
                path.chmod(SECRET_MODE)
        except OSError as error:
            raise _not_writable(path, error) from error
    write_json(session, value, target)


def write_json_text(session: Session, text: str, target: str) -> None:
    """Write JSON that is rendered already."""
    if is_json_only(target):
        file = session.screen.file
        file.write(_encodable(text, getattr(file, "encoding", None) or "utf-8").rstrip("\n") + "\n")
        file.flush()
    else:
        write_text(session, text.rstrip("\n") + "\n", Path(target))


def _encodable(text: str, encoding: str) -> str:
    """The same JSON, with escapes where the encoding lacks something."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=2)
    return text


def write_text(session: Session, text: str, path: Path) -> None:
    """Write `text` to `path`, making its folder; says so on standard error. InputError if that cannot be done."""
    ready_path(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _not_writable(path, error) from error
    note_written(session, path)


def ready_path(path: Path) -> None:
    """Make the folder of `path`, and try whether a file can be written there; nothing is left of the trial. InputError
    if not, or if `path` is itself a folder."""
    if path.is_dir():
        raise InputError(f"{path}: expected a file to write, found a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        was_there = path.exists()
        with path.open("ab"):
            pass
        if not was_there:
            path.unlink()
    except FileExistsError as error:
        raise InputError(
            f"{path}: expected a folder above the file, found a file there; choose another place"
        ) from error
    except OSError as error:
        raise _not_writable(path, error) from error


def ready_outputs(json_target: str | None, *paths: Path | None) -> None:
    """To be called before a long run: `ready_path` for each file that it will write."""
    for path in (None if json_target is None or is_json_only(json_target) else Path(json_target), *paths):
        if path is not None:
            ready_path(path)


def finish_with(session: Session, value: Callable[[], object], target: str | None, show: Callable[[], None]) -> None:
    """The end of every command with a result: JSON to its file before anything is shown, so that a screen that is gone
    loses nothing; for `-` nothing but JSON on standard output."""
    if target is not None and not is_json_only(target):
        write_json(session, value(), target)
    if is_json_only(target):
        write_json(session, value(), STANDARD_OUTPUT)
    else:
        show()


def note_compiling(session: Session) -> None:
    """Say to who watches a terminal why the first run on a machine takes long. Nothing where machine code is kept."""
    from clearway.cli.machine_code import is_machine_code_kept

    if session.notes.is_terminal and not is_machine_code_kept():
        session.note("The first run compiles the engine, which takes a minute or two")


def note_written(session: Session, path: Path) -> None:
    """Say that `path` was written."""
    session.note("Wrote {path}", path=path)


def _not_writable(path: Path, error: OSError) -> InputError:
    return InputError(f"{path}: expected a file that can be written, found: {error.strerror}; choose another place")


def _finite(value: object) -> object:
    """`value` with every float that JSON does not have replaced by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
