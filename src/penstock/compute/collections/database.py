"""What collections need of a database with SQL: transactions of three kinds, and a few statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

Stored: TypeAlias = tuple[int, int, int, int, bytes]
"""A line of the table `penstock_updates`: place, time, weight, hash, row."""


class Transaction(ABC):
    @abstractmethod
    def run(self, sql: str, *values: Any) -> list[Any]:
        """The rows of a statement with parameters $1, $2, ... Raises `StoreUnavailable`, `StoreDamaged`."""

    @abstractmethod
    def insert(self, updates: Iterable[Stored]) -> None:
        """Add lines to `penstock_updates`."""

    @abstractmethod
    def with_hashes(self, hashes: Collection[int]) -> Iterable[tuple[int, bytes]]:
        """Weights and rows of the updates that have one of these hashes."""

    @abstractmethod
    def remove(self, places: Sequence[int]) -> None:
        """Remove updates."""

    @abstractmethod
    def weigh(self, weights: Sequence[tuple[int, int]]) -> None:
        """Change weights: each with the place of its update."""


class Database(ABC):
    """The tables `penstock_collections` and `penstock_updates` (see `sql_tables`), there from the beginning.

    location: for errors; without secrets.
    """

    location: str

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
