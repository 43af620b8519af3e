"""Digests of Python functions: the same from process to process as long as the code is.

Pickled bytes are not: they hold the numbers of lines, and sets in an order that each process draws anew.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def digest_of_function(expression: Any, spark: SparkSession) -> str:
    """Return the digest of the function in an expression of a plan, with what it uses of its own module."""
    byte = spark.sparkContext._jvm.scala.reflect.ClassTag.Byte()  # pyright: ignore
    command = pickle.loads(bytes(expression.func().command().toArray(byte)))
    function = command[0] if isinstance(command, tuple) else command
    text = "\0".join(_parts(function, set()))
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=16).hexdigest()


def _parts(value: Any, seen: set[int]) -> Iterator[str]:
    if id(value) in seen:
        return
    seen.add(id(value))
    if not isinstance(value, FunctionType):
        yield _constant(value)
        return
    yield from _code(value.__code__)
    yield repr(value.__defaults__)
    for cell in value.__closure__ or ():
        yield from _parts(cell.cell_contents, seen)
    for name in sorted(set(_names(value.__code__)) & value.__globals__.keys()):
        yield name
        yield from _parts(value.__globals__[name], seen)


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield _constant(constant)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _constant(value: Any) -> str:
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, cast("set[Any]", value))))
    if isinstance(value, type) or hasattr(value, "__file__"):
        return getattr(value, "__qualname__", getattr(value, "__name__", ""))
    shown = repr(value)
    # An object that shows its address is known by its kind only.
    return type(value).__qualname__ if " at 0x" in shown else shown
