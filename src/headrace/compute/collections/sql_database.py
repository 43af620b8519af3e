"""Interface of SQL databases for collections: three kinds of transactions, and a few statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

from headrace.errors import BadInput

Stored: TypeAlias = tuple[int, int, int, int, bytes]
"""Record of the table `headrace_updates`: place, time, weight, hash, row."""


class Transaction(ABC):
    @abstractmethod
    def run(self, sql: str, *values: Any) -> list[Any]:
        """Execute a statement with parameters $1, $2, ... and return its rows.

        Raises `StoreUnavailable`, `StoreDamaged`.
        """

    @abstractmethod
    def insert(self, updates: Iterable[Stored]) -> None:
        """Insert rows into `headrace_updates`."""

    @abstractmethod
    def updates_with_hashes(self, hashes: Collection[int]) -> Iterable[tuple[int, bytes]]:
        """Return the weights and rows of updates with any of these hashes."""

    @abstractmethod
    def remove(self, places: Sequence[int]) -> None:
        """Delete the updates at these places."""

    @abstractmethod
    def set_weights(self, weights: Sequence[tuple[int, int]]) -> None:
        """Set the weight of each update, identified by its place."""


class Database(ABC):
    """Database with the tables `headrace_collections` and `headrace_updates` (see `sql_tables`).

    location: location to show in errors, without secrets.
    """

    location: str

    @abstractmethod
    def write_transaction(self) -> AbstractContextManager[Transaction]:
        """Begin the only write transaction: committed durably at the end, rolled back by an exception."""

    @abstractmethod
    def read_transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a short read transaction on a consistent snapshot."""

    @abstractmethod
    def snapshot_transaction(self) -> AbstractContextManager[Transaction]:
        """Begin a read transaction of any length on a consistent snapshot, concurrent with all others."""

    def check(self, *, thorough: bool) -> None:
        """Raise `StoreDamaged` if the storage is damaged. thorough: compare indexes with tables, too."""
        return

    def tidy(self) -> None:
        """Do what keeps the storage small, unless others are at work."""
        return

    def erase_deleted(self) -> None:
        """Remove all bytes of deleted rows from disk. Raises `BadInput` where the database has to do it."""
        raise BadInput(
            f"Headrace cannot erase what was deleted in {self.location}",
            why="The database keeps deleted rows in its files and logs.",
            fix="let its administrator do it: in PostgreSQL, VACUUM FULL headrace_updates, and "
            "archived logs and backups",
        )

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait for changes; see `Collections.wait`."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""
