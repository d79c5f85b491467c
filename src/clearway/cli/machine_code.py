"""Where machine code made by Numba is kept: outside of the package, one folder for each state of what is compiled.

Numba itself looks only at the file of the outermost function to see whether code on disk is stale: after an update of
another file it would run old code. `scripts/numba-cache` gives the same folder to whoever works on the sources.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "NUMBA_CACHE_DIR"
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
        os.environ[VARIABLE] = str(find_folder(os.environ))  # noqa: TID251


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
