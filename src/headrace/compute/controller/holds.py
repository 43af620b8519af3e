"""Read holds: guarantees that collections and exports stay readable from certain times on.

The since of a collection or export is the least of the holds on it, and only changes through a `ReadHold`.
When a since rises, the holds on its inputs rise first; then `advanced` is called, so that the past may be
compacted. When the last hold is released, the since becomes END: the collection or export is dropped.
Source: the compute protocol of Materialize, read capabilities of its controller (reference).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.dataflow import Id


class ReadHold:
    """Guarantee that a collection or export stays readable from `frontier` on; see `ReadHolds.acquire`.

    A hold only moves to later times, and can be released.
    """

    __slots__ = ("_of", "frontier")

    def __init__(self, of: _Held, frontier: Frontier) -> None:
        self._of = of
        self.frontier = frontier

    @property
    def id(self) -> Id:
        """Id of the collection or export kept readable."""
        return self._of.id

    def downgrade(self, frontier: Frontier) -> None:
        """Move the hold to `frontier`. Raises ValueError if that is earlier."""
        if frontier < self.frontier:
            raise ValueError(f"a hold on {self.id} at {self.frontier} cannot go back to {frontier}")
        if frontier != self.frontier:
            before, self.frontier = self.frontier, frontier
            self._of.move(before, frontier)

    def advance(self, frontier: Frontier) -> None:
        """Move the hold to `frontier` if that is later."""
        if frontier > self.frontier:
            self.downgrade(frontier)

    def release(self) -> None:
        """Release the hold. A second call does nothing."""
        self.downgrade(END)


class ReadHolds:
    """Sinces of collections and exports, determined by the holds on them.

    advanced: called each time a since has risen, after the holds on its inputs have.
    """

    def __init__(self, advanced: Callable[[Id, Frontier], None]) -> None:
        self._advanced = advanced
        self._held: dict[Id, _Held] = {}

    def __contains__(self, id: Id) -> bool:
        return id in self._held

    def add_collection(self, id: Id, since: Frontier, inputs: Sequence[ReadHold] = ()) -> ReadHold:
        """Add a collection or export that is readable from `since` on. Returns the first hold on it.

        inputs: holds on its inputs, which follow its since from now on.
        """
        assert id not in self._held, f"{id} exists already"
        for hold in inputs:
            hold.advance(since)
        held = self._held[id] = _Held(id, since, tuple(inputs), self)
        return held.acquire(since)

    def acquire(self, id: Id) -> ReadHold:
        """Acquire a hold at the current since. Raises KeyError for an unknown or dropped id."""
        held = self._held[id]
        return held.acquire(held.since)

    def since(self, id: Id) -> Frontier:
        """Return the since of `id`; END if unknown or dropped."""
        held = self._held.get(id)
        return held.since if held else END

    def check(self) -> None:
        """Assert the invariants: a since is the least of its holds, and its inputs are readable at it."""
        for held in self._held.values():
            held.check()

    def propagate_since(self, held: _Held) -> None:
        """Propagate a risen since; called by `_Held`."""
        for hold in held.inputs:
            hold.advance(held.since)
        if held.since == END:
            del self._held[held.id]
        self._advanced(held.id, held.since)


class _Held:
    """Collection or export with the number of holds on it by time.

    counts: number of holds by time; 0 once they are gone, until the since passes that time.
    earliest: keys of `counts`, as a heap.
    """

    __slots__ = ("_counts", "_earliest", "_registry", "id", "inputs", "since")

    def __init__(self, id: Id, since: Frontier, inputs: tuple[ReadHold, ...], registry: ReadHolds) -> None:
        self.id = id
        self.since = since
        self.inputs = inputs
        self._registry = registry
        self._counts: dict[int, int] = {}
        self._earliest: list[int] = []

    def acquire(self, frontier: Frontier) -> ReadHold:
        self._count(frontier)
        return ReadHold(self, frontier)

    def move(self, before: Frontier, after: Frontier) -> None:
        self._count(after)
        assert before.time is not None
        self._counts[before.time] -= 1
        if before == self.since and not self._counts[before.time]:
            self._rise()

    def _count(self, frontier: Frontier) -> None:
        time = frontier.time
        if time is None:
            return
        if time in self._counts:
            self._counts[time] += 1
        else:
            self._counts[time] = 1
            heappush(self._earliest, time)

    def _rise(self) -> None:
        while self._earliest and not self._counts[self._earliest[0]]:
            del self._counts[heappop(self._earliest)]
        self.since = Frontier(self._earliest[0]) if self._earliest else END
        self._registry.propagate_since(self)

    def check(self) -> None:
        held = [time for time, count in self._counts.items() if count]
        assert held, f"{self.id} has no holds, but exists"
        assert all(count >= 0 for count in self._counts.values())
        assert self.since == Frontier(min(held)), f"{self.id}: {self.since}, {self._counts}"
        assert sorted(self._earliest) == sorted(self._counts)
        for hold in self.inputs:
            assert START <= hold.frontier <= self.since, f"{self.id} reads {hold.id} from {hold.frontier}"


@dataclass(frozen=True, slots=True)
class KeepPast:
    """Read policy that keeps the last settled time and the `milliseconds` before it readable.

    valid_from: earliest time to keep.
    reader: also keep everything from this time on, for a reader that resumes there.

    >>> KeepPast(5, valid_from=3).since(Frontier(20)), KeepPast(5, valid_from=3).since(Frontier(6))
    (Frontier(time=14), Frontier(time=3))
    >>> KeepPast(5, reader=9).since(Frontier(20))
    Frontier(time=9)
    """

    milliseconds: int
    valid_from: int = 0
    reader: int | None = None

    def since(self, upper: Frontier) -> Frontier:
        """Return the since that the policy allows at an upper. A sealed collection is never compacted."""
        if upper.time is None:
            return Frontier(self.valid_from)
        last = upper.time - 1 - self.milliseconds
        wanted = last if self.reader is None else min(last, self.reader)
        return Frontier(max(wanted, self.valid_from))
