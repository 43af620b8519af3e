"""Leases, which keep a reader's position readable for a while after the reader has left it.

A connected subscriber holds its position, the time of its last delivery. When its connection breaks, it
resumes from the position it knows, which may be earlier, since the last delivery may have been lost. So each
position is leased when it is left, for as long as the view keeps its past. Leases expire by the controller's
clock, not by the times of writes: after a quiet hour, the next write is an hour later and all readers are
behind.

Time without a controller does not count: a new controller renews the leases on everything that was readable.
For that it must know the positions that its read policies alone would give up, so these are recorded before
the write that moves a policy past them begins.
Source: leased readers of Materialize's persist.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from headrace.compute.controller.catalog import Catalog
from headrace.compute.controller.durable_catalog import DurableCatalog
from headrace.compute.controller.holds import KeepPast, ReadHold, ReadHolds
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.dataflow import Id

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
    """Positions of readers by view or collection, with leases on those already left.

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
        """Return the earliest position, of a connected reader or leased; END if there is none."""
        readers = self._readers.get(id)
        return readers.earliest if readers else END

    def add_reader(self, id: Id, position: Frontier) -> None:
        """Add a connected reader at a position, on which it has its own hold."""
        readers = self._readers.setdefault(id, _Readers())
        readers.standing = min(readers.standing, position)

    def move_reader(self, id: Id, position: Frontier) -> None:
        """Move the earliest position of connected readers to `position`, and lease the one left behind.

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
        self, state: DurableCatalog, epoch: int, catalog: Catalog, holds: ReadHolds, leases: Leases
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
        """Record the positions that the read policies would give up after a write at a time.

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
