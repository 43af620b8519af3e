"""In-memory index: rows by key, readable at all times from `since` to before `upper`.

An arrangement stores the latest state and an undo log. `_rows` maps each key to its rows after the last
change; `_undo` has the changes per key with their times, so that a reader at an earlier time can undo later
ones. Most reads are near the upper, so there is little to undo. Advancing the since needs no merging: the
oldest undo entries are discarded, a slice at a time. `_log` has the same changes by time, for dataflows that
read the index.

Invariant: after the changes of a time are applied, and for every time t with least <= t < upper,
    rows at t  =  _rows  -  the changes in _undo with times after t
where `least` is the earliest readable time: the since, or an earlier time that is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from penstock.compute.frontier import END, Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Counted, Row
from penstock.compute.replica.exports import Failed, IndexWriter, PendingChanges
from penstock.compute.replica.in_process.incremental_dict import IncrementalDict
from penstock.engine.spilling import estimated_bytes
from penstock.expr.dict_keys import dict_key_source, key_function
from penstock.expr.types import Field, Schema, StructType

_KeyOf: TypeAlias = Callable[[tuple[Any, ...]], Any]
_Key: TypeAlias = Hashable
_There: TypeAlias = Row | dict[Row, int]
"""Rows of a key: a single row with count one, as most keys have, or rows with their counts."""
_GONE: dict[Row, int] = {}
"""Rows of a key that has none now, but had some at a time that may still be read. Never modified."""

_UNDO_BYTES = 200
"""Approximate memory of a time's change beside the row, in both logs."""
SCANNED = 1024
"""Approximate number of rows that a scan returns at a time."""


class Keying:
    """Key columns by which rows of a schema are filed, or the whole row if the key is empty.

    Rows that the engine groups together have the same key.
    of_row: function from a row to its key: the value of a single column, or a tuple of several.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        positions = [schema.names.index(name) for name in columns] or list(range(len(schema.fields)))
        self._single = len(positions) == 1
        self.width = len(positions)
        self.of_row: _KeyOf = itemgetter(*positions) if positions else _itself
        fields = tuple(schema.fields[at] for at in positions)
        self._key = key_function(fields[0].type if self._single else StructType(fields))
        if any(map(_has_spellings, fields)):
            plain, key = self.of_row, self._key
            self.of_row = lambda row: key(plain(row))
        elif not columns and not self._single:
            self.of_row = _itself

    def of_values(self, values: tuple[Any, ...]) -> Any:
        """Build the key with these values of the key columns."""
        return self._key(values[0] if self._single else tuple(values))


class Version(NamedTuple):
    """All changes at one time, with each row once."""

    time: int
    changes: Sequence[Counted]


class Hold:
    """Read hold that keeps an arrangement readable from `time` on, until moved forward or released."""

    __slots__ = ("_arrangement", "time")

    def __init__(self, arrangement: Arrangement, time: int) -> None:
        self._arrangement: Arrangement | None = arrangement
        self.time = time

    def move(self, time: int) -> None:
        self.time = max(self.time, time)
        if self._arrangement is not None:
            self._arrangement.holds_moved()

    def release(self) -> None:
        if self._arrangement is not None:
            self._arrangement.release_hold(self)
            self._arrangement = None


class Arrangement:
    """Rows by key columns, with their changes since some time.

    upper:  frontier before which times are settled; just after the failure if it `failed`.
    since:  frontier from which it may be read, whatever is still stored. END: dropped.
    failed: failure that replaces the contents from some time on.
    weight: number of rows after the last change, with their counts.
    """

    def __init__(self, schema: Schema, key: Sequence[str], as_of: int) -> None:
        self.schema = schema
        self.key = tuple(key)
        self.keying = Keying(schema, key)
        self.upper = Frontier(as_of)
        self.since = Frontier(as_of)
        self.failed: Failed | None = None
        self.weight = 0
        self._rows: IncrementalDict[_Key, _There] = IncrementalDict()
        self._undo: IncrementalDict[_Key, list[Any]] = IncrementalDict()
        self._log: deque[Version] = deque()
        self._forgotten = 0
        self._open = PendingChanges()
        self._last = as_of
        self._holds: set[Hold] = set()
        self._least: Frontier | None = self.since

    @property
    def key_width(self) -> int:
        """Number of key columns."""
        return self.keying.width

    # -- written by one dataflow ----------------------------------------------------------------

    def add(self, changes: Sequence[Counted], time: int) -> None:
        """Apply some of a time's changes, not before the upper. Readers do not see them yet."""
        if not changes:
            return
        self._last = time
        way_back = self.earliest_hold < Frontier(time)
        if way_back:
            self._open.add(changes)
        key_of, rows = self.keying.of_row, self._rows
        for row, weight in changes:
            key = key_of(row)
            bucket = rows.bucket(key)
            there = bucket.get(key)
            if there is None or there is _GONE:
                bucket[key] = row if weight == 1 else {row: weight}
            elif there.__class__ is dict:
                _change(bucket, key, there, row, weight, way_back)  # type: ignore[arg-type]
            elif there != row:
                bucket[key] = {there: 1, row: weight}  # type: ignore[dict-item]
            elif weight != -1:
                bucket[key] = {row: 1 + weight}
            elif way_back:
                bucket[key] = _GONE
            else:
                del bucket[key]
            self.weight += weight
            if way_back:
                self._remember(key, time, row, weight)
        rows.divide()
        self._undo.divide()

    def advance(self, upper: Frontier) -> None:
        """Settle all times before `upper`: their changes have been added."""
        if self._open:
            self._close(self._last)
        self.upper = upper

    def fail(self, failed: Failed) -> None:
        """Replace the contents from the failure's time on with its error."""
        self._open.clear()
        self.failed = failed
        self.upper = Frontier(failed.time + 1)

    def clear(self) -> None:
        """Start over, before any time is settled."""
        self._rows, self._undo, self.weight = IncrementalDict(), IncrementalDict(), 0
        self._open.clear()

    def _remember(self, key: _Key, time: int, row: Row, weight: int) -> None:
        bucket = self._undo.bucket(key)
        entries = bucket.get(key)
        if entries is None:
            bucket[key] = [time, row, weight]
        else:
            entries += (time, row, weight)

    def _close(self, time: int) -> None:
        changes, cancelled = self._open.take()
        self._log.append(Version(time, changes))
        for row in cancelled:
            self._take_back(self.keying.of_row(row), time, row)

    def _take_back(self, key: _Key, time: int, row: Row) -> None:
        """Remove the undo entries of changes that cancelled out within a time, as the log omits them, too."""
        bucket = self._undo.bucket(key)
        entries = bucket.get(key, [])  # none, where the since has passed the time meanwhile
        kept = [
            part
            for at in range(0, len(entries), 3)
            if entries[at] != time or entries[at + 1] != row
            for part in entries[at : at + 3]
        ]
        if kept:
            bucket[key] = kept
        else:
            self._without_way_back(key)

    # -- read by many ---------------------------------------------------------------------------

    def rows_at(self, key: _Key, time: int) -> Iterable[Counted]:
        """Return a key's rows at a settled, held time, unordered. Counts may be negative."""
        there = self._rows.get(key)
        if there is None:
            return ()
        if self._last > time and (entries := self._undo.get(key)) is not None and entries[-3] > time:
            return _undone(there, entries, time)
        return there.items() if there.__class__ is dict else ((there, 1),)  # type: ignore[union-attr, return-value]

    def scan(self, time: int) -> Iterator[list[Counted]]:
        """Scan all rows at a settled, held time, in no order, in lists of about `SCANNED`.

        Changes may be applied between lists, but are not visible in the scan.
        """
        out: list[Counted] = []
        for keys in self._rows.keys_by_bucket():
            for start in range(0, len(keys), SCANNED):
                part = keys[start : start + SCANNED]
                if self._last > time:
                    for key in part:
                        out += self.rows_at(key, time)
                else:
                    self._latest(part, out)
                if len(out) >= SCANNED:
                    yield out
                    out = []
        yield out

    def _latest(self, keys: list[_Key], out: list[Counted]) -> None:
        """Append the latest rows of some keys in one bucket."""
        get = self._rows.bucket(keys[0]).get
        for key in keys:
            there = get(key)
            if there.__class__ is dict:
                out += there.items()  # type: ignore[union-attr]
            elif there is not None:
                out.append((there, 1))  # type: ignore[arg-type]

    def estimated_bytes(self) -> int:
        """Estimate the memory of the rows and the way back, from a sample."""
        buckets = self._rows.buckets
        entries = estimated_bytes(buckets[0]) * len(buckets)
        return entries + self.distinguished_times * _UNDO_BYTES

    def changes_after(self, after: int) -> list[Version]:
        """Return the changes at settled times after `after`, a held time, ordered by time."""
        found: list[Version] = []
        for version in reversed(self._log):
            if version.time <= after:
                break
            found.append(version)
        found.reverse()
        return found

    @property
    def distinguished_times(self) -> int:
        """Number of times still distinguished."""
        return len(self._log)

    # -- compaction -----------------------------------------------------------------------------

    @property
    def earliest_hold(self) -> Frontier:
        """Earliest held time."""
        if self._least is None:
            self._least = min((Frontier(hold.time) for hold in self._holds), default=END)
            self._least = min(self._least, self.since)
        return self._least

    def hold(self, time: int) -> Hold:
        """Keep the arrangement readable from `time` on, not before `earliest_hold`."""
        hold = Hold(self, time)
        self._holds.add(hold)
        self._least = None
        return hold

    def release_hold(self, hold: Hold) -> None:
        self._holds.discard(hold)
        self._least = None

    def holds_moved(self) -> None:
        self._least = None

    @property
    def held(self) -> bool:
        """Return whether a reader holds the arrangement."""
        return bool(self._holds)

    def allow_compaction(self, since: Frontier) -> None:
        """Merge times before `since`, unless a reader holds them."""
        self.since = max(self.since, since)
        self._least = None

    def compact(self, most: int = 2000) -> bool:
        """Compact about `most` changes below the holds. Returns whether there are more."""
        least, log = self.earliest_hold, self._log
        while log and least >= Frontier(log[0].time):
            changes = log[0].changes
            part = changes[self._forgotten : self._forgotten + most]
            for row, _ in part:
                self._forget(self.keying.of_row(row), least)
            most -= len(part)
            self._forgotten += len(part)
            if self._forgotten == len(changes):
                log.popleft()
                self._forgotten = 0
            if most <= 0:
                return bool(log) and least >= Frontier(log[0].time)
        return False

    def free_memory(self) -> bool:
        """Free part of the memory of an unused arrangement. Returns whether there is more."""
        self._log.clear()
        for buckets in (self._rows.buckets, self._undo.buckets):
            if buckets:
                buckets.pop()
                return True
        return False

    def _forget(self, key: _Key, least: Frontier) -> None:
        """Discard the undo entries of a key that no reader needs."""
        bucket = self._undo.bucket(key)
        entries = bucket.get(key)
        if entries is None:
            return
        at = 0
        while at < len(entries) and least >= Frontier(entries[at]):
            at += 3
        if at < len(entries):
            del entries[:at]
        else:
            self._without_way_back(key)

    def _without_way_back(self, key: _Key) -> None:
        self._undo.bucket(key).pop(key, None)
        bucket = self._rows.bucket(key)
        if bucket.get(key) is _GONE:
            del bucket[key]


class ArrangementWriter(IndexWriter):
    """Export to an arrangement."""

    index: Arrangement

    def __init__(self, id: Id, sink: str, index: Arrangement) -> None:
        super().__init__(id, sink, index)
        self.add = index.add  # called for all that happens

    def advance(self, upper: Frontier) -> None:
        self.index.advance(upper)

    def fail(self, failed: Failed) -> None:
        self.index.fail(failed)

    def clear(self) -> None:
        self.index.clear()


def _change(
    bucket: dict[_Key, _There], key: _Key, there: dict[Row, int], row: Row, weight: int, way_back: bool
) -> None:
    """Adjust a row's count under its key."""
    count = there.get(row, 0) + weight
    if count:
        there[row] = count
        return
    del there[row]
    if len(there) == 1:
        ((other, count),) = there.items()
        if count == 1:
            bucket[key] = other
    elif not there and way_back:
        bucket[key] = _GONE
    elif not there:
        del bucket[key]


def _undone(there: _There, entries: list[Any], time: int) -> list[Counted]:
    """Return a key's rows with all changes after `time` undone."""
    counts = dict(there) if isinstance(there, dict) else {there: 1}
    at = len(entries) - 3
    while at >= 0 and entries[at] > time:
        row = entries[at + 1]
        counts[row] = counts.get(row, 0) - entries[at + 2]
        at -= 3
    return [counted for counted in counts.items() if counted[1]]


def _itself(row: tuple[Any, ...]) -> Any:
    return row


def _has_spellings(field: Field) -> bool:
    """Return whether equal values may have different representations, as NaNs and signed zeros do."""
    return dict_key_source(field.type, field.nullable, "value", lambda source: (source, source)) != "value"
