"""Read holds: who still needs what, and therefore from when on things must stay readable.

The since of a thing is the least of the holds on it, and only a `ReadHold` can change it. When it rises, the
holds that the thing itself has on what it reads rise first, then the word goes out that its past may go.
When the last hold on it goes, its since is END: it is dropped.
Source: the compute protocol of Materialize, read capabilities of its controller (reference).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from penstock.compute.frontier import END, START, Frontier
from penstock.compute.protocol.dataflow import Id


class ReadHold:
    """A promise that a thing stays readable from `frontier` on. Given by `ReadHolds.acquire`.

    It can be moved to later times and be given up, never back.
    """

    __slots__ = ("_of", "frontier")

    def __init__(self, of: _Held, frontier: Frontier) -> None:
        self._of = of
        self.frontier = frontier

    @property
    def id(self) -> Id:
        """What it keeps readable."""
        return self._of.id

    def downgrade(self, frontier: Frontier) -> None:
        """From now on only times from `frontier` on are needed. Raises ValueError where that is earlier."""
        if frontier < self.frontier:
            raise ValueError(f"a hold on {self.id} at {self.frontier} cannot go back to {frontier}")
        if frontier != self.frontier:
            before, self.frontier = self.frontier, frontier
            self._of.move(before, frontier)

    def advance(self, frontier: Frontier) -> None:
        """`downgrade`, where that is later; else nothing."""
        if frontier > self.frontier:
            self.downgrade(frontier)

    def release(self) -> None:
        """Nothing is needed any more. A second time does nothing."""
        self.downgrade(END)


class ReadHolds:
    """The sinces of all that can be read, and the holds on them.

    advanced: told each time that a since has risen, after the holds of the thing on its inputs have.
    """

    def __init__(self, advanced: Callable[[Id, Frontier], None]) -> None:
        self._advanced = advanced
        self._held: dict[Id, _Held] = {}

    def __contains__(self, id: Id) -> bool:
        return id in self._held

    def add(self, id: Id, since: Frontier, inputs: Sequence[ReadHold] = ()) -> ReadHold:
        """A new thing, readable from `since` on, and the first hold on it.

        inputs: holds on what it reads; from now on they follow its since.
        """
        assert id not in self._held, f"{id} is there already"
        for hold in inputs:
            hold.advance(since)
        held = self._held[id] = _Held(id, since, tuple(inputs), self)
        return held.acquire(since)

    def acquire(self, id: Id) -> ReadHold:
        """A hold at the present since. KeyError for what is not there or dropped."""
        held = self._held[id]
        return held.acquire(held.since)

    def since(self, id: Id) -> Frontier:
        """From when on it can be read; END for what is not there or dropped."""
        held = self._held.get(id)
        return held.since if held else END

    def check(self) -> None:
        """Assert the invariants: a since is the least of its holds, and what it reads is readable at it."""
        for held in self._held.values():
            held.check()

    def rises(self, held: _Held) -> None:
        """For `_Held`: its since has risen."""
        for hold in held.inputs:
            hold.advance(held.since)
        if held.since == END:
            del self._held[held.id]
        self._advanced(held.id, held.since)


class _Held:
    """One thing, and how many holds there are at which time.

    counts: by time; 0 where there were some: a time stays until the since has passed it.
    earliest: its keys, as a heap.
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
        self._registry.rises(self)

    def check(self) -> None:
        held = [time for time, count in self._counts.items() if count]
        assert held, f"{self.id} has no holds, and is there"
        assert all(count >= 0 for count in self._counts.values())
        assert self.since == Frontier(min(held)), f"{self.id}: {self.since}, {self._counts}"
        assert sorted(self._earliest) == sorted(self._counts)
        for hold in self.inputs:
            assert START <= hold.frontier <= self.since, f"{self.id} reads {hold.id} from {hold.frontier}"


@dataclass(frozen=True, slots=True)
class KeepPast:
    """The last settled time, and `milliseconds` before it; nothing before `valid_from`, which never was.

    reader: also all from that time on, for one who reads on from there.

    >>> KeepPast(5, valid_from=3).since(Frontier(20)), KeepPast(5, valid_from=3).since(Frontier(6))
    (Frontier(time=14), Frontier(time=3))
    >>> KeepPast(5, reader=9).since(Frontier(20))
    Frontier(time=9)
    """

    milliseconds: int
    valid_from: int = 0
    reader: int | None = None

    def since(self, upper: Frontier) -> Frontier:
        """What may be given up where all before `upper` is settled. Of what is sealed, nothing more."""
        if upper.time is None:
            return Frontier(self.valid_from)
        last = upper.time - 1 - self.milliseconds
        wanted = last if self.reader is None else min(last, self.reader)
        return Frontier(max(wanted, self.valid_from))
