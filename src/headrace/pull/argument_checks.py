"""Checks of arguments that users pass to modules: numbers in range, and synchronous functions."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FunctionType
from typing import Any, NoReturn, TypeVar, cast

from headrace.errors import BadOption, SourceLocation
from headrace.pull.errors import NotAwaited


def check_integer(constructor: str, option: str, value: object, *, least: int | None = None) -> None:
    """Raise `BadOption` unless the value is an integer, of at least `least` if given."""
    if not isinstance(value, int) or isinstance(value, bool) or (least is not None and value < least):
        wanted = "a whole number"
        _refuse(constructor, option, value, wanted if least is None else f"{wanted}, {least} or more")


def port(constructor: str, value: object) -> None:
    """Raise `BadOption` unless the value is a TCP port number or 0."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 65535:
        _refuse(constructor, "port", value, "a whole number from 0 to 65535")


def check_positive(constructor: str, option: str, value: object) -> None:
    """Raise `BadOption` unless the value is a finite number above 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
        return
    _refuse(constructor, option, value, "a finite number above 0")


def check_confirm_within(constructor: str, seconds: object) -> None:
    """Raise `BadOption` unless the value is None or a finite number above 0."""
    if seconds is not None:
        check_positive(constructor, "confirm_within", seconds)


def _refuse(constructor: str, option: str, value: object, wanted: str) -> NoReturn:
    raise BadOption(
        f"{constructor}() cannot work with {option}={value!r}",
        where=[SourceLocation.of_caller()],
        fix=f"give {wanted}",
        constructor=constructor,
        option=option,
    )


T = TypeVar("T")

AWAIT_BEFORE = "await it in async_map() before, which gives the value together with the answer"
IN_A_TASK = "give a plain function; it may start a task, such as asyncio.ensure_future(coroutine)"
SPAWN = "module.spawn(coroutine, answer) runs one, and calls answer(error, result) when it is done"

_WHY = "The function is called without await, so the body of a coroutine function would never run."


@dataclass(frozen=True, slots=True)
class SynchronousCheck:
    """Check on a user function's results, which must not need an await. Called with a result, returns it.

    called: the function, for the error. fix: the suggested alternative. location: where the function was
    given.

    Raises `NotAwaited` for a coroutine and for an asynchronous generator.
    """

    called: str
    fix: str
    location: SourceLocation

    def __call__(self, result: T) -> T:
        if is_unawaited(result):
            generator = isinstance(result, AsyncGeneratorType)
            if isinstance(result, CoroutineType):
                result.close()  # avoids Python's own warning
            what = "an asynchronous generator" if generator else "a coroutine"
            raise NotAwaited(f"{self.called} returned {what}", where=[self.location], why=_WHY, fix=self.fix)
        return result

    def calling(self, function: Callable[..., T]) -> Callable[..., T]:
        """Wrap a function so that every result is checked."""
        return lambda *of: self(function(*of))


def synchronous_check(constructor: str, function: object, *, fix: str) -> SynchronousCheck:
    """Build the check for results of a function given to `constructor`.

    Raises `NotAwaited` for a coroutine function.
    """
    refuse_async(constructor, function, fix=fix)
    return SynchronousCheck(f"a function given to {constructor}()", fix, SourceLocation.of_caller())


def refuse_async(constructor: str, function: object, *, fix: str, passes_on: bool = False) -> None:
    """Raise `NotAwaited` for a coroutine function, or one that returns asynchronous generators.

    passes_on: results become values of the stream, so asynchronous generators are allowed.
    """
    kind = _kind(function)
    if kind is None or (passes_on and kind == _GENERATOR):
        return
    name = getattr(function, "__qualname__", type(function).__qualname__)
    raise NotAwaited(
        f"{constructor}() was given {name!r}, which is {kind}",
        where=[SourceLocation.of_caller()],
        why=_WHY,
        fix=fix,
        constructor=constructor,
    )


def is_unawaited(result: object) -> bool:
    """Check whether a returned object is a coroutine or generator that has not started."""
    return isinstance(result, CoroutineType | AsyncGeneratorType)


_GENERATOR = "an asynchronous generator function"
_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _kind(function: object) -> str | None:
    """Name the kind of an asynchronous function; None for a plain one."""
    if type(function) is FunctionType and not function.__code__.co_flags & _ASYNCHRONOUS:
        return None  # by far the most common; `inspect` is slow
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    is_object = not (inspect.isroutine(function) or isinstance(function, type))
    for each in (function, getattr(type(function), "__call__", None) if is_object else None):  # noqa: B004
        if inspect.iscoroutinefunction(each):
            return "a coroutine function"
        if inspect.isasyncgenfunction(each):
            return _GENERATOR
    return None
