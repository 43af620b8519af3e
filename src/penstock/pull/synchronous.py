"""Synchronous functions: called and not awaited. The body of a coroutine function would never run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import AsyncGeneratorType, CoroutineType, FunctionType
from typing import Any, TypeVar, cast

from penstock.errors import NotAwaited, SourceLocation

T = TypeVar("T")

AWAIT_BEFORE = "await it in async_map() before, which gives the value together with the answer"
IN_A_TASK = "give a plain function; it may start a task, such as asyncio.ensure_future(coroutine)"
SPAWN = "module.spawn(coroutine, answer) runs one, and calls answer(error, result) when it is done"

_WHY = "It is called and not awaited: the body of a coroutine function would never run."


@dataclass(frozen=True, slots=True)
class Synchronous:
    """A check of what a function of the user's returns. Called with a result, it gives the result back.

    called: what returned it. fix: the way out. location: where the function was given.

    Raises `NotAwaited` for a coroutine and for an asynchronous generator.
    """

    called: str
    fix: str
    location: SourceLocation

    def __call__(self, result: T) -> T:
        if is_unawaited(result):
            generator = isinstance(result, AsyncGeneratorType)
            if isinstance(result, CoroutineType):
                result.close()  # else Python warns of it besides
            what = "an asynchronous generator" if generator else "a coroutine"
            raise NotAwaited(f"{self.called} returned {what}", where=[self.location], why=_WHY, fix=self.fix)
        return result

    def calling(self, function: Callable[..., T]) -> Callable[..., T]:
        """The function with all its results checked."""
        return lambda *of: self(function(*of))


def synchronous(piece: str, function: object, *, fix: str) -> Synchronous:
    """The check of what a function given to a piece returns. Raises `NotAwaited` for a coroutine function."""
    refuse_async(piece, function, fix=fix)
    return Synchronous(f"a function given to {piece}()", fix, SourceLocation.of_caller())


def refuse_async(piece: str, function: object, *, fix: str, passes_on: bool = False) -> None:
    """Raises `NotAwaited` for a coroutine function, or one that makes asynchronous generators.

    passes_on: results are values of the stream: an asynchronous generator is one.
    """
    kind = _kind(function)
    if kind is None or (passes_on and kind == _GENERATOR):
        return
    name = getattr(function, "__qualname__", type(function).__qualname__)
    raise NotAwaited(
        f"{piece}() was given {name!r}, which is {kind}",
        where=[SourceLocation.of_caller()],
        why=_WHY,
        fix=fix,
        piece=piece,
    )


def is_unawaited(result: object) -> bool:
    """Whether nothing has happened yet of what a function was called for."""
    return isinstance(result, CoroutineType | AsyncGeneratorType)


_GENERATOR = "an asynchronous generator function"
_ASYNCHRONOUS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _kind(function: object) -> str | None:
    """What kind of function it is, where calling it does nothing yet."""
    if type(function) is FunctionType and not function.__code__.co_flags & _ASYNCHRONOUS:
        return None  # by far the most common, and `inspect` is slow
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    is_object = not (inspect.isroutine(function) or isinstance(function, type))
    for each in (function, getattr(type(function), "__call__", None) if is_object else None):  # noqa: B004
        if inspect.iscoroutinefunction(each):
            return "a coroutine function"
        if inspect.isasyncgenfunction(each):
            return _GENERATOR
    return None
