"""Where machine code made by Numba is kept: outside of the package, one folder for each state of what is compiled.

Numba itself looks only at the file of the outermost function to see whether code on disk is stale: after an update of
another file it would run old code. `scripts/numba-cache` gives the same folder to whoever works on the sources.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "NUMBA_CACHE_DIR"
SHIPPED_VARIABLE: Final = "CLEARWAY_SHIPPED_CACHE"
"""Names a folder for caches (XDG), which may be read-only, where an image ships machine code."""
MARK: Final = b"\n@compiled"
FOLDERS: Final = ("engine", "sim")
"""Where functions are compiled."""
CONSTANTS: Final = (
    "engine/compiled.py",
    "engine/tables.py",
    "engine/box.py",
    "engine/reasons.py",
    "model/units.py",
)
"""Files without compiled functions, whose constants are compiled into them."""
KEY_CHARACTERS: Final = 16


def keep_machine_code() -> None:
    """Tell Numba where, unless the environment does. To be called before it is imported."""
    if VARIABLE not in os.environ:  # noqa: TID251 - the command line is the border
        folder = find_folder(os.environ)  # noqa: TID251
        if not _may_write(folder):  # compiled anew each time, rather than not at all
            own = tempfile.mkdtemp(prefix="clearway-")
            atexit.register(shutil.rmtree, own, ignore_errors=True)
            folder = Path(own) / folder.name
        if shipped := os.environ.get(SHIPPED_VARIABLE):  # noqa: TID251
            _take_shipped(find_folder({"XDG_CACHE_HOME": shipped}), folder)
        os.environ[VARIABLE] = str(folder)  # noqa: TID251


def _may_write(folder: Path) -> bool:
    """Whether there can be files in the folder."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder if folder.exists() else folder.parent, os.W_OK)


def _take_shipped(shipped: Path, folder: Path) -> None:
    """Numba takes code only from where it may write, so what is shipped is copied there once, whole or not at all."""
    if folder.exists() or not shipped.is_dir():
        return
    copied = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        shutil.copytree(shipped, copied)
        copied.rename(folder)
    except OSError:  # it may not be written, or another process was first
        shutil.rmtree(copied, ignore_errors=True)


def is_machine_code_kept() -> bool:
    """Whether there is any for the package as it is now: whether a start need not compile."""
    folder = Path(os.environ.get(VARIABLE) or find_folder(os.environ))  # noqa: TID251 - the command line is the border
    return any(folder.rglob("*.nbc"))


def find_folder(environment: Mapping[str, str]) -> Path:
    """The folder for the package as it is now, below the user's folder for caches (XDG)."""
    package = Path(__file__).parents[1]
    sources = [path for folder in FOLDERS for path in sorted((package / folder).glob("*.py"))]
    compiled = [text for text in (path.read_bytes() for path in sources) if MARK in text]
    constants = [(package / name).read_bytes() for name in CONSTANTS]
    key = hashlib.sha256(b"".join([*compiled, *constants])).hexdigest()[:KEY_CHARACTERS]
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "clearway" / "numba" / key
