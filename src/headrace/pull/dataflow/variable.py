"""Dataflow variables: placeholders for values that are not known yet.

A variable is bound once and keeps that value forever. Readers wait until it is bound; the binder need not
know who is waiting. So threads that share a variable agree on its value under every schedule, without locks.

Source: the dataflow variables of Oz (Van Roy and Haridi).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import SynchronousCheck, is_unawaited
from headrace.pull.errors import AlreadyBound, NotBound

T = TypeVar("T")

_UNBOUND: Any = object()
_DEEPEST = 60
# Limit on nested bindings that wake each other; further wake-ups wait for the outermost one.


class DataflowVariable(Generic[T]):
    """Value that is bound at most once, by anyone, and read any number of times.

    Binding it again to an equal value (by `==`) has no effect; binding it to another value is an error. A
    variable may fail instead; then its readers get the exception. Waiting readers are woken in the order of
    their arrival.

    >>> price = DataflowVariable()
    >>> price.when_bound(lambda value: print("it is", value))
    >>> price.bind(7)
    it is 7
    >>> price.bind(7)
    >>> price.value
    7
    """

    __slots__ = ("_failure", "_value", "_waiting")

    def __init__(self) -> None:
        self._value: T = _UNBOUND
        self._failure: Exception | None = None
        self._waiting: list[_Waiting] | None = None

    def bind(self, value: T) -> None:
        """Bind the variable. Raises `AlreadyBound` if it is bound to another value, or has failed."""
        if self._value is not _UNBOUND or self._failure is not None:
            if self._failure is None and _equal(self._value, value):
                return
            raise self._taken(f"to {value!r}")
        self._value = value
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            for then, _ in waiting:
                _WAKING.wake(then, value)

    def fail(self, error: Exception) -> None:
        """Fail the variable, so that it has no value.

        Raises `AlreadyBound` if it has a value, or failed with another exception.
        """
        if self._failure is error:
            return
        if self._value is not _UNBOUND or self._failure is not None:
            raise self._taken(f"to the failure {error!r}")
        self._failure = error
        waiting, self._waiting = self._waiting, None
        for _, failed in waiting or ():
            if failed is not None:
                _WAKING.wake(failed, error)

    @property
    def is_bound(self) -> bool:
        """Whether the value is known."""
        return self._value is not _UNBOUND

    @property
    def failure(self) -> Exception | None:
        """Exception that the variable failed with, or None."""
        return self._failure

    @property
    def value(self) -> T:
        """Value of the variable. Raises its failure, or `NotBound` if it is pending."""
        if self._failure is not None:
            raise self._failure
        if self._value is _UNBOUND:
            raise NotBound(
                "the value of a dataflow variable was read before it was bound",
                where=[SourceLocation.of_caller()],
                fix="await it in a dataflow thread, or use when_bound(f)",
            )
        return self._value

    def when_bound(
        self, then: Callable[[T], object], failed: Callable[[Exception], object] | None = None
    ) -> None:
        """Call `then(value)` once the variable is bound, or `failed(error)` once it fails; now if it has."""
        if self._value is not _UNBOUND:
            _drop(then(self._value))
        elif self._failure is not None:
            if failed is not None:
                _drop(failed(self._failure))
        elif self._waiting is None:
            self._waiting = [(then, failed)]
        else:
            self._waiting.append((then, failed))

    def __await__(self) -> Generator[DataflowVariable[T], None, T]:
        """Wait for the value in a dataflow thread. Raises the failure, if any."""
        if self._value is _UNBOUND and self._failure is None:
            yield self
        return self.value

    def __repr__(self) -> str:
        if self._failure is not None:
            return f"DataflowVariable(failed: {self._failure!r})"
        return "DataflowVariable(_)" if self._value is _UNBOUND else f"DataflowVariable({self._value!r})"

    def _taken(self, wanted: str) -> AlreadyBound:
        held = "has failed" if self._failure is not None else "is bound"
        return AlreadyBound(
            f"a dataflow variable that {held} was bound {wanted}",
            where=[SourceLocation.of_caller()],
            why=f"It is {self!r}, and a dataflow variable keeps its value.",
            fix="bind it once; a stream of values is a list of variables: "
            "ListCell(value, DataflowVariable())",
        )


_Waiting = tuple[Callable[[Any], object], Callable[[Exception], object] | None]


class _Waking(threading.local):
    """Waker of readers: on the stack while it is shallow, else in order after the outermost binding."""

    def __init__(self) -> None:
        self._depth = 0
        self._late: deque[tuple[Callable[[Any], object], Any]] = deque()

    def wake(self, call: Callable[[Any], object], value: Any) -> None:
        if self._depth >= _DEEPEST or self._late:
            self._late.append((call, value))
            return
        self._depth += 1
        try:
            _drop(call(value))
            while self._depth == 1 and self._late:
                late, value = self._late[0]
                try:
                    _drop(late(value))
                finally:
                    self._late.popleft()
        finally:
            self._depth -= 1


_WAKING = _Waking()


def _drop(returned: object) -> None:
    """Discard a waiting function's return value. Raises `NotAwaited` for a coroutine."""
    if returned is not None and is_unawaited(returned):
        fix = "await the variable in a dataflow thread: module.thread(coroutine)"
        SynchronousCheck("a function given to when_bound()", fix, SourceLocation.of_caller())(returned)


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return bool(one == other)
    except Exception:  # values that cannot be compared (arrays) count as different
        return False
