"""Drawn: reads of a source whose values come from a Python iterator."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar, cast

from penstock.errors import AlreadyUsed, SourceLocation
from penstock.pull.module import Module
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, BatchRead, End

I = TypeVar("I")


def drawn(
    name: str,
    begin: Callable[[], Iterator[Any]],
    *,
    on_stop: Callable[[Exception | None], object] | None = None,
) -> Source:
    """A source of the iterator that `begin` makes at the first ask of a run; nothing is drawn unasked.

    on_stop: called once the stop is confirmed, with the error or None.

    What the iterator raises is the answer after the values before it. A generator is closed
    before a stop is confirmed.
    """

    def open(_module: Module) -> BatchRead:
        return _Drawn(begin, on_stop).read

    return Source.of(name, open, batches=True)


class _Drawn:
    def __init__(
        self, begin: Callable[[], Iterator[Any]], on_stop: Callable[[Exception | None], object] | None
    ) -> None:
        self._begin = begin
        self._on_stop = on_stop
        self._items: Iterator[Any] | None = None
        self._failure: Exception | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._stop(abort, answer)
        elif batch := self._draw(most):
            answer(None, batch)
        else:
            answer(True)

    def _draw(self, most: int) -> list[Any]:
        if self._failure is not None:
            raise self._failure
        if self._items is None:
            self._items = self._begin()
        batch: list[Any] = []
        try:
            batch.extend(islice(self._items, most))  # keeps what came before an exception
        except Exception as error:
            if not batch:
                raise
            self._failure = error
        return batch

    def _stop(self, cause: End, answer: AnswerTo) -> None:
        # A failure that is held back belongs to an ask that was not made: it is as if it had not happened.
        close_generator(self._items)
        answer(cause)
        if self._on_stop is not None:
            self._on_stop(cause if isinstance(cause, Exception) else None)


def close_generator(items: Iterator[Any] | None) -> None:
    """Have the `finally` of a generator run. Other iterators belong to whoever made them."""
    if isinstance(items, Generator):
        cast("Generator[Any]", items).close()


def begin_of(items: Iterable[Any], name: str) -> Callable[[], Iterator[Any]]:
    """What begins to iterate: anew in every run, or once only where `items` is an iterator itself.

    name: of the function that the user called, for the error.
    """
    if isinstance(items, Iterator):
        return once_only(items, name)
    return lambda: iter(items)


def once_only(items: I, name: str) -> Callable[[], I]:
    """A function that gives `items` the first time, and then raises `AlreadyUsed`."""
    location = SourceLocation.of_caller()
    left = [items]

    def begin() -> I:
        if not left:
            kind = type(items).__name__
            raise AlreadyUsed(
                f"{name}() of {kind!r} is read a second time",
                where=[location],
                why="An iterator gives its values once, and another run has begun to draw them.",
                fix="give what begins anew each time: a list, or an object whose __iter__ is a generator",
            )
        return left.pop()

    return begin
