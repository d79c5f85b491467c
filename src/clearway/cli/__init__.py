"""The command `clearway`. Declares commands and shows results; every decision about what to run lies in `bootstrap`.

Modules here import nothing heavy at the top: NumPy, Numba and pydantic take half a second, and `clearway --help` must
not. So command functions import what they run from `clearway.bootstrap` when they are called.
"""

from clearway.cli.app import main

__all__ = ["main"]
