"""Database tables that store collections, and lookups in them.

    headrace_collections   number, id, description, since, upper, next, merged
    headrace_updates       place, time, weight, hash, row

A place combines the collection's number (high bits) with the update's position in the collection (low bits),
so a collection's updates are contiguous and, since appends begin at the upper, ordered by time. `hash`
combines the collection's number with a hash of the row; its index finds the updates of a row. Among the
positions before `merged`, each row occurs at most once. The frontier END is null. A dropped collection has
a null id until its updates are deleted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias, cast

from headrace.compute.collections.rows import HASH_BITS, check_chunk
from headrace.compute.collections.store import (
    CollectionBounds,
    is_valid_collection_id,
    unknown_collection_error,
)
from headrace.compute.frontier import LAST_TIME, Frontier
from headrace.compute.protocol.commands import Id
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
        """Reclaim disk space, unless others are using the database."""
        return

    def erase_deleted(self) -> None:
        """Remove all bytes of deleted rows from disk. Raises `BadInput` if that is up to the database."""
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


_FIRST_PAGE = 200
_PAGE_BYTES = 8 << 20
PlaceRange: TypeAlias = tuple[int, int]
"""Range of places, excluding the end."""


@dataclass(frozen=True, slots=True)
class CollectionRecord:
    """Record of `headrace_collections`. next, merged: positions."""

    number: int
    since: Frontier
    upper: Frontier
    next: int
    merged: int
    description: bytes

    @property
    def bounds(self) -> CollectionBounds:
        return CollectionBounds(self.since, self.upper)

    @property
    def first_place(self) -> int:
        """First place of the collection, which is also its lowest hash."""
        return self.number << HASH_BITS

    @property
    def end(self) -> int:
        """Place of the next update to be added."""
        return self.first_place + self.next

    @property
    def hashes(self) -> PlaceRange:
        return self.first_place, (self.number + 1) << HASH_BITS


def lookup_collection(tx: Transaction, id: Id) -> CollectionRecord | None:
    if not is_valid_collection_id(id):
        return None
    found = tx.run(
        "SELECT number, since, upper, next, merged, description FROM headrace_collections WHERE id = $1",
        id,
    )
    if not found:
        return None
    number, since, upper, next, merged, description = found[0]
    return CollectionRecord(number, Frontier(since), Frontier(upper), next, merged, bytes(description))


def find_collection(tx: Transaction, id: Id) -> CollectionRecord:
    """Find the record of a collection, or raise `UnknownName`."""
    found = lookup_collection(tx, id)
    if found is None:
        raise unknown_collection_error(id)
    return found


def find_place(tx: Transaction, record: CollectionRecord, frontier: Frontier) -> int:
    """Find the first update whose time the frontier has not passed, and return its place.

    Searches from the end in doubling steps, because recent times are asked for most often.
    """

    def passed(place: int) -> bool:
        """Return whether the frontier has passed all updates before `place`."""
        before = tx.run(
            "SELECT time FROM headrace_updates WHERE place >= $1 AND place < $2 ORDER BY place DESC LIMIT 1",
            record.first_place,
            place,
        )
        return not before or frontier.has_passed(before[0][0])

    low = high = record.end
    step = 1
    while not passed(low):
        high, low, step = low, max(record.first_place, low - step), step * 4
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if passed(middle) else (low, middle)
    return low


def frontier_after(time: int) -> Frontier:
    """Return the frontier that has passed exactly the times up to `time`."""
    return Frontier(None if time == LAST_TIME else time + 1)


def read_updates(tx: Transaction, span: PlaceRange, most: int) -> list[Stored]:
    """Read at most `most` updates of a span of places, in order of place."""
    found = tx.run(
        "SELECT place, time, weight, hash, row FROM headrace_updates WHERE place >= $1 AND place < $2 "
        "ORDER BY place LIMIT $3",
        *span,
        most,
    )
    return cast("list[Stored]", found)


class PageSizer:
    """Page size for reading updates: small at first, then limited by bytes.

    chunk: limit on the page size.
    """

    def __init__(self, chunk: int) -> None:
        self.chunk = check_chunk(chunk)
        self.most = min(chunk, _FIRST_PAGE)

    def read(self, tx: Transaction, span: PlaceRange) -> list[Stored]:
        page = read_updates(tx, span, self.most)
        if page:
            self.adapt_to(page)
        return page

    def adapt_to(self, page: Sequence[tuple[Any, ...]]) -> None:
        """Adapt to the row sizes of a page. Rows are the last element of its entries."""
        size = 1 + sum(map(len, map(itemgetter(-1), page))) // max(1, len(page))
        self.most = min(self.chunk, max(1, _PAGE_BYTES // size), self.most * 8)


def read_rows(
    tx: Transaction, span: PlaceRange, reading: PageSizer
) -> Iterator[list[tuple[int, int, bytes]]]:
    """Read weight, hash and row of all updates in a span of places, page by page, for a snapshot."""
    place, end = span
    while place < end:
        # Places that are merged leave pages smaller, or empty.
        after = min(place + reading.most, end)
        page = tx.run(
            "SELECT weight, hash, row FROM headrace_updates WHERE place >= $1 AND place < $2 ORDER BY place",
            place,
            after,
        )
        reading.adapt_to(page)
        place = after
        if page:
            yield page


def read_pages(tx: Transaction, span: PlaceRange, reading: PageSizer) -> Iterator[list[Stored]]:
    """Read all updates whose place lies in a span, page by page."""
    place, end = span
    while page := reading.read(tx, (place, end)):
        yield page
        place = page[-1][0] + 1
