"""The one place that names the compiler of hot loops.

`@compiled` turns a plain loop over tables into machine code (Numba, nopython mode) and keeps it in a cache on disk.
Compiled functions are leaf functions: arrays and integers in, integers out, no allocation of Python objects, integer
arithmetic only where results decide ties. With NUMBA_DISABLE_JIT=1 they run as plain Python, for debugging.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """`function` compiled at first call, cached on disk, without the interpreter lock."""
    return cast(F, numba.njit(cache=True, nogil=True)(function))
