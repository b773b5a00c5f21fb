"""Compilation of the loops, and helpers that the numba kernel and the numba writer share."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any, Final
from zlib import crc32

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from wanderbus.matching import layout

TABLES: Final = (
    "int32[:,::1], int32[::1], float64[:,::1], int64[::1], int32[::1], float64[::1], uint64[:,:,::1], uint64[:,::1]"
)
"""The types of the arrays of a segment."""


def _fingerprint() -> int:
    """Return a hash of everything that affects compilation but is not in a loop's own file: part of the cache key.

    numba's own key covers only the name and the file of a function.
    """
    constants = sorted((name, value) for name, value in vars(layout).items() if name.isupper())
    shared = [_instructions(each.__code__) for each in (line_of.py_func, _lowest_bit, _hint, _prefetch, _touch)]
    return crc32(repr((constants, shared)).encode())


def _instructions(code: CodeType) -> tuple[object, ...]:
    """Return the code of a function without the parts that differ between two runs, such as addresses."""
    constants = [_instructions(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, constants


def compiled(signature: str) -> Callable[[Any], Any]:
    """Return the decorator that compiles a function now, or loads it from the cache."""

    def decorate(function: Any) -> Any:
        function.__qualname__ += f"_{_fingerprint():08x}"
        try:
            return njit(signature, cache=True)(function)
        except RuntimeError:  # no directory for a cache
            return njit(signature)(function)

    return decorate


def _lowest_bit(context: Any, word: Any) -> Any:
    """Return the place of the lowest bit that is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


lowest_bit: Any = intrinsic(_lowest_bit)


def _hint(builder: Any, address: Any) -> None:
    """Prefetch an address; a wrong address does no harm."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    hint: Any = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
    builder.call(hint, [builder.bitcast(address, byte), number(0), number(3), number(1)])


def _prefetch(context: Any, objects: Any, slot: Any) -> Any:
    """Prefetch the object to which the pointer number ``slot`` of an array points."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer().as_pointer())
        _hint(builder, builder.load(builder.gep(array, [arguments[1]])))
        return context.get_dummy_value()

    return types.void(types.int64, types.int32), generate


def _touch(context: Any, array: Any, index: Any) -> Any:
    """Prefetch an item of a flat array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        its = context.make_array(signature.args[0])(context, builder, arguments[0])
        _hint(builder, builder.gep(its.data, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(array, types.uint64), generate


prefetch: Any = intrinsic(_prefetch)
touch: Any = intrinsic(_touch)


@njit(inline="always")  # type: ignore[misc, unused-ignore]
def line_of(line_starts, cuts, place, value):  # type: ignore[no-untyped-def]
    """Return the line of the bucket that contains ``value``, without a branch that a processor could mispredict."""
    first = line_starts[place]
    if value != value:
        return np.int64(first)
    low, left = np.uint64(first + 1), line_starts[place + 1] - first - 1
    while left > 1:
        half = left >> 1
        low += np.uint64(half) if cuts[low + np.uint64(half)] <= value else np.uint64(0)
        left -= half
    return np.int64(low)
