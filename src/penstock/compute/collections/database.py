"""What collections need of a database with SQL: transactions of three kinds, and a few statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

Stored: TypeAlias = tuple[int, int, int, int, bytes]
"""A line of the table `updates`: place, time, weight, hash, row."""


class Transaction(ABC):
    @abstractmethod
    def run(self, sql: str, *values: Any) -> list[Any]:
        """The rows of a statement with parameters $1, $2, ... Raises `StoreUnavailable`, `StoreDamaged`."""

    @abstractmethod
    def insert(self, updates: Iterable[Stored]) -> None:
        """Add lines to `updates`."""


class Database(ABC):
    """The tables `collections` and `updates` (see `sql`), there from the beginning.

    place: where it is, for errors; without secrets.
    """

    place: str

    @abstractmethod
    def writing(self) -> AbstractContextManager[Transaction]:
        """One writer at a time, committed durably at the end, rolled back by an exception."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Transaction]:
        """Sees one moment; to be left soon."""

    @abstractmethod
    def moment(self) -> AbstractContextManager[Transaction]:
        """Sees one moment, however long it takes, beside all the others."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """See `Collections.wait`."""

    @abstractmethod
    def close(self) -> None:
        """Give back connections."""
