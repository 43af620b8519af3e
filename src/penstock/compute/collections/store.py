"""Durable collections: timestamped changes with a since and an upper. One interface, several stores.

A collection is right at all times t with since <= t < upper: the rows there at t are the sum of the
updates with times up to t, and this never changes (it is definite). Both frontiers only rise.
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
    """What of a collection can be read: times from `since` to before `upper`. upper END: sealed."""

    since: Frontier
    upper: Frontier


@dataclass(frozen=True, slots=True)
class Append:
    """What happened to a collection from `expected`, its upper until then, to before `upper`.

    updates: with times in [expected, upper), in any order; may be none.
    """

    id: Id
    expected: Frontier
    upper: Frontier
    updates: Sequence[Update] = ()


class Collections(ABC):
    """A store of collections. Used by one thread; other processes may use the same store at the same time.

    Every method raises `StoreUnavailable` where the store cannot be reached, `StoreDamaged` where it holds
    what was not written by this class, `UnknownName` where it has no such collection.
    """

    @abstractmethod
    def create(self, id: Id, description: bytes, upper: Frontier = START) -> None:
        """A new, empty collection, with since START. Does nothing where an equal one is there.

        description: kept as it is: the schema and what else its makers need to know. Raises `AlreadyThere`
        where there is one of that id with another description.
        """

    @abstractmethod
    def drop(self, id: Id) -> None:
        """Forget a collection with all its rows. Does nothing where there is none."""

    @abstractmethod
    def all(self) -> dict[Id, bytes]:
        """The ids of all collections, with their descriptions."""

    @abstractmethod
    def bounds(self, ids: Sequence[Id]) -> list[Bounds]:
        """Of each of the collections, as they are together at one moment."""

    @abstractmethod
    def append(self, appends: Sequence[Append]) -> None:
        """Add to several collections at once: all of it, durably, or nothing. Exclusive per collection.

        Raises `UpperMismatch` where the upper of one is not the expected one; `NotThere` where a row would be
        there less than zero times at some time; ValueError where a time is outside [expected, upper) or
        upper < expected.
        """

    @abstractmethod
    def snapshot(self, id: Id, at: int, chunk: int = 10_000) -> Iterator[list[Counted]]:
        """The rows that are there at a time, each once with its count, in lists of at most `chunk`.

        What is seen is of one moment, however slowly it is read, also while others append; a later
        `compact` beyond `at` may end it with `SinceViolation`, never with wrong rows. Raises
        `SinceViolation` below the since, `NotYet` from the upper on.
        """

    @abstractmethod
    def changes(
        self, id: Id, lower: Frontier, upper: Frontier, chunk: int = 10_000
    ) -> Iterator[list[Update]]:
        """The updates with times in [lower, upper), by time, in lists of at most `chunk`.

        Raises `SinceViolation` where `lower` is not above the since by which they have been merged, that
        is, where lower <= since and something was merged; `NotYet` where `upper` is above the collection's.
        """

    @abstractmethod
    def compact(self, id: Id, since: Frontier) -> None:
        """Let times below `since` be forgotten: their updates count as being at `since`. A frontier that
        is not above the current one does nothing; END forgets the rows, and nothing can be read any more."""

    @abstractmethod
    def wait(self, seconds: float) -> bool:
        """Wait until some upper of the store may have risen, by whomever; False where the time has passed.

        May say True when nothing happened, but never misses what happened after the last call that said True.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back files and connections."""
