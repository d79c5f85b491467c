"""The one place that names the compiler of hot loops.

`@compiled` turns a plain loop over tables into machine code (Numba, nopython mode) and keeps it in a cache on disk;
`@compiled_inside` does so for a function that only compiled functions call. Compiled functions are leaf functions:
arrays and integers in, integers out, no allocation of Python objects, integer arithmetic only where results decide
ties. With NUMBA_DISABLE_JIT=1 they run as plain Python, for debugging.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba.core import config, types
from numba.extending import intrinsic

from clearway.model.errors import InternalError

F = TypeVar("F", bound=Callable[..., object])

# Numba's own annotations do not cover what is used here.
_numba: Any = numba
_types: Any = types
_ir: Any = ir
_INSIDE: Any = {
    "nogil": True,
    "error_model": "numpy",
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}
IS_PLAIN_PYTHON: bool = bool(getattr(config, "DISABLE_JIT"))  # noqa: B009 - set by Numba when it is imported


def compiled(function: F) -> F:
    """`function` compiled at first call, cached on disk, without the interpreter lock.

    error_model: without it each division would test for zero and be able to raise; no divisor in a table is zero.
    """
    return cast(F, _once_for_all_constants(_numba.njit(cache=True, nogil=True, error_model="numpy")(function)))


def compiled_inside(function: F) -> F:
    """`function` compiled into its compiled callers; Python cannot call it.

    It counts no references to arrays (`_nrt=False`): its caller holds them, and counting them at each use of a table
    would cost more than the use. So it must not make arrays: no `.copy()`, no assignment from slice to slice.
    Half of the time of compiling goes into the code that lets Python call a function with so many tables, and into
    keeping on disk what the callers contain already.
    """
    return cast(F, _only_inside(_numba.njit(**_INSIDE)(function)))


def compiled_inline(function: F) -> F:
    """`function` pasted into its compiled callers: for the small ones that loops call once per pool, device or replica.

    A call that is not pasted hands over every array of the box, field by field, and counts a reference to each: about
    a microsecond, a hundred times what such a function does.
    """
    return cast(F, _only_inside(_numba.njit(**_INSIDE, forceinline=True)(function)))


def compiled_opening(function: F) -> F:
    """`compiled_inline` for a function that returns arrays which it makes of addresses; they own nothing."""
    return cast(F, _only_inside(_numba.njit(**{**_INSIDE, "_nrt": True}, forceinline=True)(function)))


class _Inside:
    """Stands for a function that has no code for calls from Python: without this, such a call ends the process."""

    def __init__(self, dispatcher: Any) -> None:
        self._numba_type_ = _types.Dispatcher(dispatcher)
        self.py_func = dispatcher.py_func
        self._dispatcher = dispatcher  # Numba's type only refers to it weakly

    def __call__(self, *_: object) -> None:
        raise InternalError(f"{self.py_func.__name__} is for compiled callers only; to call it here, use @compiled")


def _only_inside(dispatcher: Any) -> Any:
    return dispatcher if IS_PLAIN_PYTHON else _Inside(_once_for_all_constants(dispatcher))


def _once_for_all_constants(dispatcher: Any) -> Any:
    """Numba would compile a function anew for each constant that a compiled caller gives it; here, once for all."""
    if IS_PLAIN_PYTHON:
        return dispatcher
    template = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, named: template(
        tuple(_types.unliteral(one) for one in args), {name: _types.unliteral(one) for name, one in named.items()}
    )
    return dispatcher


def _pointer_to(number: Any) -> Any:
    """A function for compiled callers: the address of such a number as a pointer."""

    def pointer_of(_: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return _types.CPointer(number)(address), generate

    return intrinsic(pointer_of)


_as_pointer: Any = _pointer_to(_types.int64)
_as_float_pointer: Any = _pointer_to(_types.float64)


@compiled_opening
def table_at(address: int, rows: int, columns: int) -> Any:
    """The int64[rows, columns] that lies at an address, for compiled callers. Somebody must keep it alive."""
    return _numba.carray(_as_pointer(address), (rows, columns))


@compiled_opening
def line_at(address: int, length: int) -> Any:
    """The int64[length] that lies at an address, for compiled callers. Somebody must keep it alive."""
    return _numba.carray(_as_pointer(address), (length,))


@compiled_opening
def floats_at(address: int, length: int) -> Any:
    """The float64[length] that lies at an address, for compiled callers. Somebody must keep it alive."""
    return _numba.carray(_as_float_pointer(address), (length,))


@compiled_opening
def float_table_at(address: int, rows: int, columns: int) -> Any:
    """The float64[rows, columns] that lies at an address, for compiled callers. Somebody must keep it alive."""
    return _numba.carray(_as_float_pointer(address), (rows, columns))


def address_of(function: Any, *examples: object) -> Any:
    """Where the machine code of a `@compiled` function lies, for `call_scan`; in plain Python the function itself.
    examples: of what it is called with."""
    if IS_PLAIN_PYTHON:
        return function
    kinds = tuple(_numba.typeof(example) for example in examples)
    function.compile(kinds)
    code = function.overloads[kinds]
    return code.library.get_pointer_to_function(code.fndesc.llvm_cfunc_wrapper_name)


def _call_of(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kind = _ir.FunctionType(
        context.get_value_type(_types.none), [context.get_value_type(one) for one in signature.args[1:]]
    )
    builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
    return context.get_dummy_value()


def _calls_scan(_: Any, address: Any, order: Any, count: Any, begin: Any, now_ms: Any, desk: Any, door: Any) -> Any:
    return _types.none(address, order, count, begin, now_ms, desk, door), _call_of


def _call_plainly(function: Any, *arguments: Any) -> None:
    function(*arguments)


call_scan: Any = _call_plainly if IS_PLAIN_PYTHON else intrinsic(_calls_scan)
"""`call_scan(address, order, count, begin, now_ms, desk_door, door)`: for compiled callers, a call of what lies at an
address. The optimiser does not look through it: the largest function is optimised once, not again with this caller."""
