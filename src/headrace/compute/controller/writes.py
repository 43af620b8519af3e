"""Writes of clients: grouped and made durable by the caller, assigned a time here, then acknowledged.

All collections that clients write are advanced together: after a write, each of them is settled up to its
time, so a read at that time never waits for a collection without changes.

A client that repeats a write because its answer was lost uses the same id. Ids are stored in a collection of
their own, in the same append as the rows, so an id is known if and only if its rows are durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice, takewhile
from typing import Any

from headrace.compute.collections.store import Append, Collections
from headrace.compute.controller.catalog import Catalog, CollectionEntry
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.requests import Write
from headrace.compute.controller.timestamps import TimestampOracle
from headrace.compute.errors import NotWritable
from headrace.compute.frontier import Frontier, meet
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import Counted, Row, Update
from headrace.expr.row_conversion import from_user
from headrace.expr.types import BYTES, Field, Schema

WRITTEN = "headrace.written"
"""Name of the collection of write ids."""
WRITTEN_SCHEMA = Schema((Field("id", BYTES),))
_FORGOTTEN_AT_ONCE = 1_000
_GREATEST_WEIGHT = 2**63 - 1


class Writes:
    """Writes of one controller, one group at a time.

    remembered: milliseconds for which ids are kept.
    """

    def __init__(
        self,
        catalog: Catalog,
        instance: Instance,
        collections: Collections,
        oracle: TimestampOracle,
        *,
        ids: Id,
        remembered: int,
    ) -> None:
        self.under_way: Write | None = None
        self._catalog = catalog
        self._instance = instance
        self._collections = collections
        self._oracle = oracle
        self._ids = ids
        self._remembered = remembered
        self._written: dict[bytes, int] = {}
        self._oldest: deque[bytes] = deque()
        self._converters: dict[Id, Callable[[Iterable[object]], list[Row]]] = {}
        self._in_doubt: Write | None = None

    def load(self) -> None:
        """Load the known ids from their collection."""
        upper = self._instance.uppers[self._ids].time
        if upper:
            for rows in self._collections.snapshot(self._ids, upper - 1):
                for (id,), _ in rows:
                    self._remember(id, upper - 1)

    def time_of_write(self, id: bytes) -> int | None:
        """Return the time of the write with an id; None if it is unknown or forgotten.

        Raises `StoreUnavailable` if that is unknown for now.
        """
        self._settle_doubt()
        return self._written.get(id)

    def begin(self, writes: Mapping[str, Sequence[Counted]], ids: Sequence[bytes]) -> Write:
        """Assign a time to a group of writes. Raises as `Controller.begin_write` does."""
        if self.under_way is not None:
            raise RuntimeError("a write is under way: end it first, and group later ones")
        self._settle_doubt()
        rows = {(entry := self._writable(name)).id: self._checked(entry, writes[name]) for name in writes}
        time = self._oracle.assign_write_time()
        after = Frontier(time + 1)
        appends = [
            Append(id, upper, after, tuple((row, time, w) for row, w in rows.get(id, ()) if w))
            for id, upper in self._uppers().items()
        ]
        if updates := self._id_updates(ids, time):
            appends.append(Append(self._ids, self._instance.uppers[self._ids], after, updates))
        self.under_way = Write(time, tuple(appends), tuple(ids))
        return self.under_way

    def end(self, write: Write) -> None:
        """Acknowledge a durable write, which strict reads see from now on."""
        self._take_back(write)
        self._complete(write)

    def fail(self, write: Write) -> bool:
        """Settle a write whose append raised. Returns whether it is durable nevertheless, by the uppers.

        Raises `StoreUnavailable` if the uppers cannot be read; the write stays in doubt until they can.
        """
        self.mark_in_doubt(write)
        return self._settle_doubt()

    def mark_in_doubt(self, write: Write) -> None:
        """Mark a write as in doubt, to be settled before the next one."""
        self._take_back(write)
        self._in_doubt = write

    def forget_collection(self, id: Id) -> None:
        self._converters.pop(id, None)

    def _take_back(self, write: Write) -> None:
        if self.under_way is not write:
            raise RuntimeError("this write is not under way")
        self.under_way = None

    def _complete(self, write: Write) -> None:
        for append in write.appends:
            if append.id in self._instance.uppers:
                self._instance.advance_upper(append.id, append.upper)
        for id in self._expired(write.ids, write.time):
            self._oldest.popleft()
            del self._written[id]
        for id in write.ids:
            self._remember(id, write.time)
        self._oracle.acknowledge(write.time)
        self._instance.schedule_exports()

    def _settle_doubt(self) -> bool:
        """Resolve the write in doubt, if any. Returns whether it is durable."""
        write = self._in_doubt
        if write is None:
            return False
        ids = [*self._uppers(), self._ids]
        found = dict(zip(ids, (b.upper for b in self._collections.bounds(ids)), strict=True))
        there = [append for append in write.appends if append.id in found]
        # No time is assigned twice, so only this write produces that upper; appends are atomic.
        durable = bool(there) and all(found[append.id] == append.upper for append in there)
        if not durable:
            self._learn(found[self._ids])
        self._in_doubt = None
        for id, upper in found.items():
            self._instance.advance_upper(id, upper)
            self._oracle.skip_to(upper)
        if durable:
            self._complete(write)
        elif settled := meet(found[id] for id in self._uppers()).time:
            self._oracle.acknowledge(settled - 1)
        return durable

    def _learn(self, upper: Frontier) -> None:
        """Load the ids of writes that became durable only after their outcome was read, when the store was
        still committing them."""
        known = self._instance.uppers[self._ids]
        if upper <= known:
            return
        gone: set[bytes] = set()
        for updates in self._collections.changes(self._ids, known, upper):
            for (id,), time, weight in updates:
                if weight > 0:
                    self._remember(id, time)
                else:
                    gone.add(id)
                    del self._written[id]
        self._oldest = deque(id for id in self._oldest if id not in gone)

    def _writable(self, name: str) -> CollectionEntry:
        entry = self._catalog.find_or_raise(name)
        if isinstance(entry, CollectionEntry) and entry.written_by is None:
            return entry
        raise NotWritable(
            f"{name!r} cannot be written by clients",
            why="It is a view, or the collection that a view is written into.",
            fix="write to the collections that the view reads",
            name=name,
        )

    def _checked(self, entry: CollectionEntry, rows: Sequence[Counted]) -> list[Counted]:
        if entry.append_only and any(weight < 0 for _, weight in rows):
            raise NotWritable(
                f"rows of {entry.name!r} cannot be retracted",
                why="The collection is append-only, and views over it rely on that.",
                fix="read it as flow.table(...) if rows are retracted, and create the collection anew",
                name=entry.name,
            )
        if sum(abs(weight) for _, weight in rows) > _GREATEST_WEIGHT:
            raise NotWritable(
                f"too large weights for {entry.name!r} in one write",
                why=f"The weights of one write add up to at most {_GREATEST_WEIGHT}.",
                name=entry.name,
            )
        given: list[Any] = [row for row, _ in rows]
        if entry.schema.scalar:
            given = [row[0] if len(row) == 1 else row for row in given]
        return list(zip(self._converter(entry)(given), (weight for _, weight in rows), strict=True))

    def _converter(self, entry: CollectionEntry) -> Callable[[Iterable[object]], list[Row]]:
        convert = self._converters.get(entry.id)
        if convert is None:
            convert = from_user(entry.schema, what=f"collection {entry.name!r}")
            self._converters[entry.id] = convert
        return convert

    def _id_updates(self, ids: Sequence[bytes], time: int) -> tuple[Update, ...]:
        """Build the updates of the collection of ids: additions of new and removals of expired ones."""
        if len(set(ids)) != len(ids) or any(id in self._written for id in ids):
            raise ValueError("a write is repeated: look it up with `written` first")
        expired = self._expired(ids, time)
        return (*(((id,), time, 1) for id in ids), *(((id,), time, -1) for id in expired))

    def _expired(self, ids: Sequence[bytes], time: int) -> list[bytes]:
        """List the oldest expired ids, limited to somewhat more than the number of new ones."""
        oldest = islice(self._oldest, _FORGOTTEN_AT_ONCE + len(ids))
        return list(takewhile(lambda id: self._written[id] <= time - self._remembered, oldest))

    def _uppers(self) -> dict[Id, Frontier]:
        """Map the collections that clients write to their uppers."""
        return {entry.id: self._instance.uppers[entry.id] for entry in self._catalog.written_by_clients()}

    def _remember(self, id: bytes, time: int) -> None:
        self._written[id] = time
        self._oldest.append(id)
