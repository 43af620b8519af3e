"""Durable collections: timestamped changes with a since and an upper. One interface, several stores.

A collection is right at all times t with since <= t < upper: the rows there at t are the sum of the
updates with times up to t, and this never changes (it is definite). Both frontiers only rise.

Equal rows are one row: 0.0 and -0.0 are equal, decimals 1.0 and 1.00, NaN and NaN; values of different types
are not. A row comes back as one of the ways in which it was written.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.compute.frontier import START, Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted, Update


@dataclass(frozen=True, slots=True)
class Bounds:
    """Readable times of a collection: from `since` to before `upper`. upper END: sealed."""

    since: Frontier
    upper: Frontier


@dataclass(frozen=True, slots=True)
class Append:
    """Updates that advance a collection from `expected`, its current upper, to `upper`.

    updates: with times in [expected, upper), in any order; may be none.
    """

    id: Id
    expected: Frontier
    upper: Frontier
    updates: Sequence[Update] = ()


class Collections(ABC):
    """Store of durable collections.

    Other processes may use the same store at the same time. A handle on it is used by one thread, but for
    `append`, which may run in another one meanwhile.

    Every method raises `StoreUnavailable` where the store cannot be reached, `StoreDamaged` where it holds
    what was not written by this class, `UnknownName` where it has no such collection.
    """

    @abstractmethod
    def create(self, id: Id, description: bytes, upper: Frontier = START) -> None:
        """Create an empty collection with since START. Does nothing if an equal one exists.

        id: up to 200 printable characters, else ValueError. Never becomes part of a path or a statement.
        description: kept as it is: the schema and what else its makers need to know. Raises `AlreadyThere`
            where there is one of that id with another description.
        """

    @abstractmethod
    def drop(self, id: Id) -> None:
        """Drop a collection with all its rows.

        Does nothing where there is none. The rows may leave the disk later, during a `drop` or `compact` of
        any collection.
        """

    @abstractmethod
    def all(self) -> dict[Id, bytes]:
        """Return the ids and descriptions of all collections."""

    @abstractmethod
    def bounds(self, ids: Sequence[Id]) -> list[Bounds]:
        """Read the bounds of several collections in one consistent snapshot."""

    @abstractmethod
    def append(self, appends: Sequence[Append]) -> None:
        """Append to several collections atomically and durably.

        Exclusive per collection. One that is named twice goes on where its first part ended.

        Raises `UpperMismatch` where the upper of one is not the expected one; `NegativeMultiplicity` where
        a row would be there less than zero times at some time; ValueError where a time is outside
        [expected, upper) or upper < expected, or a weight has more than 63 bits. With `StoreUnavailable`,
        too, nothing was written, unless its fact `undecided` is there and true: then the upper shows it.
        """

    @abstractmethod
    def snapshot(self, id: Id, at: int, chunk: int = 10_000) -> Iterator[list[Counted]]:
        """Read the rows at a time, each once with its count, in lists of 1 to `chunk`.

        What is seen is of one moment, however slowly it is read, also while others append; a later
        `compact` beyond `at` may end it with `SinceViolation`, never with wrong rows. Raises
        `SinceViolation` below the since, `TimestampNotReady` from the upper on: at once, not with the first
        list.

        A reading that is not read to its end ends when the iterator is closed or forgotten; until then stores
        may have to keep what it would see.
        """

    @abstractmethod
    def changes(
        self, id: Id, lower: Frontier, upper: Frontier, chunk: int = 10_000
    ) -> Iterator[list[Update]]:
        """Read the updates with times in [lower, upper), ordered by time, in lists of 1 to `chunk`.

        Raises `SinceViolation` where lower <= since, unless the since is START: what is at the since may
        have been merged from earlier times (also when the next list is asked for after a `compact`);
        `TimestampNotReady` where `upper` is above the collection's. Asked again, they come in the same order.
        """

    @abstractmethod
    def compact(self, id: Id, since: Frontier) -> None:
        """Advance the since: updates at earlier times count as being at `since`.

        A frontier that is not above the current one leaves the since as it is; END forgets the rows, and
        nothing can be read any more; it may be appended to still. A since may be above the upper.

        What can be merged now is merged a bounded slice at a time, by each call: call it now and then."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait until some upper in the store may have risen. Returns False on timeout.

        May say True when nothing happened, but never misses what happened after the last call that said True
        (or since the handle was opened); how soon it returns is the store's matter, mostly milliseconds.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and connections."""
