"""Registry of the running modules behind a user's handle, across runs, and the handle that aborts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from headrace.pull.module_context import Module
from headrace.pull.protocol import End

T = TypeVar("T")


class Registry(Generic[T]):
    """Registry with an item per running module, removed when the module ends or its run is abandoned."""

    def __init__(self) -> None:
        self._items: dict[_Entry[T], T] = {}

    def add(self, module: Module, item: T) -> _Entry[T]:
        """Register an item until the module ends, or `cancel` is called."""
        entry = _Entry(self._items)
        self._items[entry] = item
        module.cancel_at_end(entry)
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
    """Handle that permanently stops modules from outside their pipelines, including later ones."""

    def __init__(self) -> None:
        self.cause: End | None = None
        self.at_work: Registry[Callable[[End], object]] = Registry()

    def abort(self, error: Exception | None) -> None:
        """Stop all modules, with `error` or, without one, as an abort. Only the first call counts."""
        if self.cause is None:
            self.cause = error or True
            for stop in self.at_work:
                stop(self.cause)
