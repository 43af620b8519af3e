"""What handles of the user's reach: the modules at work, in all runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from penstock.pull.module import Module
from penstock.pull.protocol import End

T = TypeVar("T")


class Registry(Generic[T]):
    """One item for each module at work, forgotten when that has ended or its run was given up."""

    def __init__(self) -> None:
        self._items: dict[_Entry[T], T] = {}

    def add(self, module: Module, item: T) -> _Entry[T]:
        """Register an item until the module ends, or `cancel` is called."""
        entry = _Entry(self._items)
        self._items[entry] = item
        module.hold(entry)
        return entry

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)


class _Entry(Generic[T]):
    def __init__(self, items: dict[_Entry[T], T]) -> None:
        self._items = items

    def cancel(self) -> None:
        self._items.pop(self, None)


class AbortHandle:
    """Stops modules from outside of their pipelines, for good: those that begin later are stopped at once."""

    def __init__(self) -> None:
        self.cause: End | None = None
        self.at_work: Registry[Callable[[End], object]] = Registry()

    def abort(self, error: Exception | None) -> None:
        """Stop all modules, without an error as an abort does. Only the first call counts."""
        if self.cause is None:
            self.cause = error or True
            for stop in self.at_work:
                stop(self.cause)
