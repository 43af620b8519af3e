"""Read holds: guarantees that collections and exports stay readable from certain times on.

The since of a collection or export is the least of the holds on it, and only changes through a `ReadHold`.
When a since rises, the holds on its inputs rise first; then `advanced` is called, so that the past may be
compacted. When the last hold is released, the since becomes END: the collection or export is dropped.
Source: the compute protocol of Materialize, read capabilities of its controller (reference).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from headrace.compute.controller.catalog import ControllerCatalog
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.commands import Id


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


# A connected subscriber holds its position, the time of its last delivery. When its connection breaks, it
# resumes from the position it knows, which may be earlier, since the last delivery may have been lost. So
# each position is leased when it is left, for as long as the view keeps its past. Leases expire by the
# controller's clock, not by the times of writes: after a quiet hour, the next write is an hour later and
# all readers are behind.
#
# Time without a controller does not count: a new controller renews the leases on everything that was
# readable. For that it must know the positions that its read policies alone would give up, so these are
# recorded before the write that moves a policy past them begins. Source: leased readers of Materialize's
# persist.


_MARGIN = 1_000
"""Milliseconds by which positions are recorded early, since each start of a controller also uses up times."""
_LEASES = 64
"""Approximate limit on the leases of one view: positions closer together share one."""


@dataclass(slots=True)
class _Lease:
    hold: ReadHold
    until: int


@dataclass(slots=True)
class _Readers:
    """Readers of one view or collection.

    standing: earliest position of the connected readers; END if there are none.
    leases:   leases on positions already left, in order of both position and expiry.
    """

    standing: Frontier = END
    leases: deque[_Lease] = field(default_factory=deque[_Lease])

    @property
    def earliest(self) -> Frontier:
        return min(self.standing, self.leases[0].hold.frontier) if self.leases else self.standing


class Leases:
    """Positions of readers by view or collection, with leases on positions they have moved past.

    keep_of: returns the milliseconds for which to lease positions of a view or collection.
    """

    def __init__(self, holds: ReadHolds, clock: Callable[[], int], keep_of: Callable[[Id], int]) -> None:
        self._holds = holds
        self._clock = clock
        self._keep_of = keep_of
        self._readers: dict[Id, _Readers] = {}

    def __iter__(self) -> Iterator[Id]:
        return iter(self._readers)

    def earliest_position(self, id: Id) -> Frontier:
        """Return the earliest position of connected readers and leases; END if there is none."""
        readers = self._readers.get(id)
        return readers.earliest if readers else END

    def add_reader(self, id: Id, position: Frontier) -> None:
        """Add a connected reader at a position. The reader has its own hold there."""
        readers = self._readers.setdefault(id, _Readers())
        readers.standing = min(readers.standing, position)

    def move_reader(self, id: Id, position: Frontier) -> None:
        """Move the earliest position of connected readers to `position`, and lease the previous one.

        END means that there are no connected readers any more.
        """
        readers = self._readers.get(id)
        if readers is None or readers.standing == position:
            return
        if readers.standing < position:
            self.grant(id, readers.standing)
        readers.standing = position

    def grant(self, id: Id, position: Frontier) -> None:
        """Lease a readable position. A lease also covers all later positions."""
        keep = self._keep_of(id)
        if position == END or not keep or id not in self._holds:
            return
        leases, until = self._readers.setdefault(id, _Readers()).leases, self._clock() + keep
        hold = self._holds.acquire(id)
        hold.advance(position)
        while leases and leases[-1].hold.frontier >= hold.frontier:
            leases.pop().hold.release()
        if leases and _distance(leases[-1].hold.frontier, hold.frontier) < keep // _LEASES:
            leases[-1].until = until
            hold.release()
        else:
            leases.append(_Lease(hold, until))

    def expire(self) -> None:
        """End the expired leases."""
        now = self._clock()
        for id, readers in list(self._readers.items()):
            while readers.leases and readers.leases[0].until <= now:
                readers.leases.popleft().hold.release()
            if readers.earliest == END:
                del self._readers[id]

    def forget(self, id: Id) -> None:
        """End the leases of a dropped view or collection."""
        readers = self._readers.pop(id, None)
        for lease in readers.leases if readers else ():
            lease.hold.release()


class Positions:
    """Recorded positions of views' readers, for the next controller.

    Invariant: if a view's `Leases.earliest_position` is before the since that `KeepPast` allows given the
    writes begun, that position or an earlier one is recorded; no recorded position has been compacted.
    """

    def __init__(
        self, state: DurableCatalog, epoch: int, catalog: ControllerCatalog, holds: ReadHolds, leases: Leases
    ) -> None:
        self._state = state
        self._epoch = epoch
        self._catalog = catalog
        self._holds = holds
        self._leases = leases
        self._recorded: dict[Id, ReadHold] = {}

    def hold_recorded(self) -> None:
        """Hold the positions that an earlier controller has recorded."""
        for id, time in self._catalog.positions.items():
            if id in self._holds:
                self._hold(id, Frontier(time))

    def record_before_write(self, time: int) -> None:
        """Record the positions that the read policies would no longer keep after a write at `time`.

        Raises `StaleEpoch`, `StoreUnavailable`.
        """
        behind = {
            id: position
            for id in self._leases
            if (position := self._leases.earliest_position(id)) < self._allowed(id, time)
            and (id not in self._recorded or position < self._recorded[id].frontier)
        }
        if behind:
            self._write(behind)
            for id, position in behind.items():
                self.forget(id)
                self._hold(id, position)

    def advance_records(self, time: int) -> None:
        """Advance the records to the readers' positions. time: of the last write.

        Raises as `record_before_write` does.
        """
        moved: dict[Id, Frontier] = {}
        for id, hold in self._recorded.items():
            position = self._leases.earliest_position(id)
            if position >= self._allowed(id, time):
                moved[id] = END
            elif position > hold.frontier:
                moved[id] = position
        if moved:
            self._write(moved)
            for id, position in moved.items():
                self._recorded[id].advance(position)
                if position == END:
                    del self._recorded[id]

    def forget(self, id: Id) -> None:
        """Drop the record of a dropped view."""
        hold = self._recorded.pop(id, None)
        if hold is not None:
            hold.release()

    def _allowed(self, id: Id, time: int) -> Frontier:
        """Return the since that the next controller would choose without a record."""
        view = self._catalog.views.get(id)
        if view is None or not view.keep:
            return START  # the store knows the sinces of collections
        return KeepPast(view.keep, view.valid_from).since(Frontier(time + _MARGIN))

    def _hold(self, id: Id, position: Frontier) -> None:
        hold = self._recorded[id] = self._holds.acquire(id)
        hold.advance(position)

    def _write(self, positions: dict[Id, Frontier]) -> None:
        with self._state.begin_change(self._epoch) as change:
            for id, position in positions.items():
                change.record_position(id, position.time)


def _distance(earlier: Frontier, later: Frontier) -> int:
    assert earlier.time is not None
    assert later.time is not None
    return later.time - earlier.time
