"""In-memory index: rows by key, readable at all times from `since` to before `upper`.

An arrangement is a spine with times. Rows whose times nobody distinguishes any more are columns in a `Spine`.
Later changes are kept per time: large ones as columns of their own, small ones as rows in the head. The head
has, per key, what the latest state adds to the columns, and the changes by which to go back from there: most
reads are near the upper, so there is little to undo.

When the since passes a time, its way back is forgotten. Keys of the head without a way back are written to
the spine as one batch once they have enough rows, those longest untouched first, and from keys with very many
rows those that have none; the columns of a large change are moved. Rows that columns cannot hold stay in the
head.

Invariant: after the changes of a time are applied, and for every time t with least <= t < upper,
    rows at t  =  _spine  +  the large changes with times up to t  +  _head  -  the changes in _undo after t
where `least` is the earliest readable time: the since, or an earlier time that is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.responses import Counted
from headrace.compute.protocol.row_batch import NotColumnar, RowBatch, is_columnar
from headrace.compute.replica.exports import FailedExport, add_up
from headrace.compute.replica.feeds import Version
from headrace.engine.spilling import estimated_bytes
from headrace.expr.types import Field, Row, Schema, StructType
from headrace.expr.value_keys import dict_key_source, key_function

if TYPE_CHECKING:
    from headrace.arrangement.batch import SortedBatch
    from headrace.arrangement.spine import Spine
    from headrace.compute.replica.in_process.keyed_columns import KeyColumns, KeyedColumns


_KeyOf: TypeAlias = Callable[[tuple[Any, ...]], Any]
_Key: TypeAlias = Hashable

LARGE = 2_048
"""Number of changes of one time from which they are kept in columns."""
MOVED = 512
"""Number of rows that are written to the spine together. As many stay in the head."""
SCANNED = 4_096
"""Approximate number of rows that a scan returns at a time."""
_VERSION_BYTES = 200
"""Approximate memory of a time's changes beside the rows."""


class Keying:
    """Key columns for indexing rows of a schema, or the whole row if the key is empty.

    Rows that the engine groups together have the same key.
    of_row: function from a row to its key: the value of a single column, or a tuple of several.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        positions = [schema.names.index(name) for name in columns] or list(range(len(schema.fields)))
        self.positions = tuple(positions)
        self.single = len(positions) == 1
        self.width = len(positions)
        self.of_row: _KeyOf = itemgetter(*positions) if positions else _itself
        fields = tuple(schema.fields[at] for at in positions)
        self._key = key_function(fields[0].type if self.single else StructType(fields))
        if any(map(_has_spellings, fields)):
            plain, key = self.of_row, self._key
            self.of_row = lambda row: key(plain(row))
        elif not columns and not self.single:
            self.of_row = _itself

    def of_values(self, values: tuple[Any, ...]) -> Any:
        """Build the key with these values of the key columns."""
        return self._key(values[0] if self.single else tuple(values))


class ArrangementHold:
    """Read hold that keeps an arrangement readable from `time` on, until moved forward or released."""

    __slots__ = ("_arrangement", "time")

    def __init__(self, arrangement: TimedArrangement, time: int) -> None:
        self._arrangement: TimedArrangement | None = arrangement
        self.time = time

    def move(self, time: int) -> None:
        self.time = max(self.time, time)
        if self._arrangement is not None:
            self._arrangement.holds_moved()

    def release(self) -> None:
        if self._arrangement is not None:
            self._arrangement.release_hold(self)
            self._arrangement = None


@dataclass(slots=True)
class _Settled:
    """Changes at a settled time, each row once: as rows, and in columns if they are many."""

    time: int
    rows: Sequence[Counted]
    columns: KeyedColumns | None


class TimedArrangement:
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
        self.failed: FailedExport | None = None
        self._columnar = bool(schema.fields) and is_columnar(schema)
        self._keys: KeyColumns | None = None
        self._last = as_of
        self._holds: set[ArrangementHold] = set()
        self._least: Frontier | None = self.since
        self._scans = 0
        self.clear()

    @property
    def key_width(self) -> int:
        """Number of key columns."""
        return self.keying.width

    def add(self, changes: Sequence[Counted], time: int) -> None:
        """Apply some of a time's changes, not before the upper. Readers do not see them yet."""
        if not changes:
            return
        self._last = time
        if isinstance(changes, RowBatch):
            self.weight += changes.weight
        else:
            self.weight += sum(weight for _, weight in changes)
        large = len(changes) + len(self._open) >= LARGE or self._open_columns is not None
        if not large or not self._columnar:
            self._open += changes
            return
        if self._open_columns is None:
            self._open_columns = self._new_columns()
        rows = self._open if isinstance(changes, RowBatch) else [*self._open, *changes]
        self._open = self._in_columns(rows, self._open_columns)
        if isinstance(changes, RowBatch):
            self._open += self._in_columns(changes, self._open_columns)

    def advance(self, upper: Frontier) -> None:
        """Settle all times before `upper`: their changes have been added."""
        if self._open or self._open_columns is not None:
            self._close(self._last)
        self.upper = upper

    def fail(self, failed: FailedExport) -> None:
        """Replace the contents from the failure's time on with its error."""
        self._open, self._open_columns = [], None
        self.failed = failed
        self.upper = Frontier(failed.time + 1)

    def clear(self) -> None:
        """Start over, before any time is settled."""
        self.weight = 0
        self._spine: KeyedColumns | None = None
        self._head: dict[_Key, dict[Row, int]] = {}
        self._undo: dict[_Key, list[Any]] = {}
        self._movable: dict[_Key, None] = {}
        self._movable_rows = 0
        self._fat: dict[_Key, None] = {}
        self._log: deque[_Settled] = deque()
        self._large: list[_Settled] = []
        self._open: list[Counted] = []
        self._open_columns: KeyedColumns | None = None

    def _new_columns(self) -> KeyedColumns:
        from headrace.compute.replica.in_process.keyed_columns import KeyColumns, KeyedColumns

        if self._keys is None:
            self._keys = KeyColumns(self.schema, self.keying.positions, self.keying.of_row)
        return KeyedColumns(self._keys)

    def _in_columns(self, rows: Sequence[Counted], columns: KeyedColumns) -> list[Counted]:
        """Add rows to `columns`. Returns the rows that columns cannot hold."""
        if not rows:
            return []
        try:
            batch = rows if isinstance(rows, RowBatch) else RowBatch.of_rows(self.schema, rows)
            columns.add(batch.frame)
            return []
        except NotColumnar:
            if len(rows) == 1:
                return list(rows)
        half = len(rows) // 2
        return self._in_columns(rows[:half], columns) + self._in_columns(rows[half:], columns)

    def _close(self, time: int) -> None:
        rows, columns = self._open, self._open_columns
        self._open, self._open_columns = [], None
        if columns is not None:
            rows = self._in_columns(rows, columns)
            if self._spine is None and not self._log and self.earliest_hold >= Frontier(time):
                self._spine, columns = columns, None  # as all rows of a hydration are
        if len(rows) > 1:
            total: dict[Row, int] = {}
            add_up(total, rows)
            rows = list(total.items())
        key_of, undo = self.keying.of_row, self._undo
        for row, weight in rows:
            key = key_of(row)
            self._keep(key, row, weight)
            entries = undo.get(key)
            if entries is None:
                undo[key] = [time, row, weight]
            else:
                entries += (time, row, weight)
        if rows or columns is not None:
            settled = _Settled(time, rows, columns)
            self._log.append(settled)
            if columns is not None:
                self._large.append(settled)

    def _keep(self, key: _Key, row: Row, weight: int) -> None:
        """Add a row to the head."""
        counts = self._head.get(key)
        if counts is None:
            self._head[key] = {row: weight}
            return
        if key in self._movable:
            del self._movable[key]
            self._movable_rows -= len(counts)
        count = counts.get(row, 0) + weight
        if count:
            counts[row] = count
        else:
            del counts[row]

    def rows_at(self, key: _Key, time: int) -> Sequence[Counted]:
        """Return a key's rows at a settled, held time, unordered. Counts may be negative."""
        found = [] if self._spine is None else [*self._spine.rows_of(key)]
        for settled in self._large:
            if settled.time <= time and settled.columns is not None:
                found += settled.columns.rows_of(key)
        head = self._head_at(key, time)
        if not found:
            return head
        return _added_up([*found, *head]) if head or len(found) > 1 else found

    def _head_at(self, key: _Key, time: int) -> Sequence[Counted]:
        """Return the head's rows of a key at a time, to be added to those in columns."""
        counts = self._head.get(key)
        if counts is None:
            return ()
        entries = self._undo.get(key)
        if entries is None or entries[-3] <= time:
            return list(counts.items())
        counts = dict(counts)
        at = len(entries) - 3
        while at >= 0 and entries[at] > time:
            row = entries[at + 1]
            counts[row] = counts.get(row, 0) - entries[at + 2]
            at -= 3
        return [counted for counted in counts.items() if counted[1]]

    def scan(self, time: int) -> Iterator[Sequence[Counted]]:
        """Scan each row at a settled, held time once, in arbitrary order, in parts of about `SCANNED`.

        Changes may be applied between parts, but are not visible in the scan.
        """
        batches = self._batches_at(time)
        keys = list(self._head)
        self._scans += 1
        try:
            if not batches:
                for at in range(0, len(keys), SCANNED):
                    yield [each for key in keys[at : at + SCANNED] for each in self._head_at(key, time)]
                return
            young, left = self._new_columns(), list[Counted]()
            for at in range(0, len(keys), SCANNED):
                part = [each for key in keys[at : at + SCANNED] for each in self._head_at(key, time)]
                left += self._in_columns(part, young)
                yield []
        finally:
            self._scans -= 1
        from headrace.arrangement.reading import all_rows

        yield left
        # Larger ranges cost less to bring together.
        for frame in all_rows(young.keys.layout, [*batches, *young.batches], 4 * SCANNED):
            for at in range(0, frame.height, SCANNED):
                yield RowBatch(self.schema, frame.slice(at, SCANNED))

    def in_columns(self, time: int | None, most: int) -> Spine | None:
        """Return the rows at a settled, held time as an arrangement, to which others may be added.

        time: None for no rows. Returns None if more than `most` keys have rows beside the columns,
        or if columns cannot hold some.
        """
        if not self._columnar or len(self._head) > most:
            return None
        from headrace.arrangement.spine import Spine

        young = self._new_columns()
        if time is None:
            return Spine(young.keys.layout, merges=False)
        if self._in_columns([each for key in self._head for each in self._head_at(key, time)], young):
            return None
        batches = sorted([*self._batches_at(time), *young.batches], key=len, reverse=True)
        return Spine(young.keys.layout, batches, merges=False)

    def _batches_at(self, time: int) -> list[SortedBatch]:
        """Return the batches in columns at a time, without the head."""
        large = (each.columns for each in self._large if each.time <= time)
        return [batch for each in (self._spine, *large) if each is not None for batch in each.batches]

    def estimated_bytes(self) -> int:
        """Estimate the memory of rows and version history, with the head's from a sample."""
        columns = [self._spine, self._open_columns, *(each.columns for each in self._large)]
        held = sum(each.estimated_bytes() for each in columns if each is not None)
        held += estimated_bytes(self._head) + estimated_bytes(self._undo)
        return held + self.distinguished_times * _VERSION_BYTES

    def changes_after(self, after: int) -> list[Version]:
        """Return the changes at settled times after `after`, a held time, ordered by time."""
        found: list[Version] = []
        for settled in reversed(self._log):
            if settled.time <= after:
                break
            found.append(Version(settled.time, self._changes(settled)))
        found.reverse()
        return found

    def _changes(self, settled: _Settled) -> Sequence[Counted]:
        if settled.columns is None:
            return settled.rows
        batches = RowBatch.together(self.schema, [batch.frame for batch in settled.columns.batches])
        return [*batches, *settled.rows] if settled.rows else batches

    @property
    def distinguished_times(self) -> int:
        """Number of times still distinguished."""
        return len(self._log)

    @property
    def earliest_hold(self) -> Frontier:
        """Earliest held time."""
        if self._least is None:
            self._least = min((Frontier(hold.time) for hold in self._holds), default=END)
            self._least = min(self._least, self.since)
        return self._least

    def hold(self, time: int) -> ArrangementHold:
        """Keep the arrangement readable from `time` on, not before `earliest_hold`."""
        hold = ArrangementHold(self, time)
        self._holds.add(hold)
        self._least = None
        return hold

    def release_hold(self, hold: ArrangementHold) -> None:
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

    def compact(self, most: int = MOVED) -> bool:
        """Compact about `most` changes below the holds. Returns whether there are more."""
        least, log = self.earliest_hold, self._log
        while most > 0 and log and least >= Frontier(log[0].time):
            oldest = log[0]
            if oldest.columns is not None:
                most -= self._move_columns(oldest)
                continue
            for row, _ in oldest.rows:
                self._forget(self.keying.of_row(row), oldest.time)
            most -= len(oldest.rows)
            log.popleft()
        moves = self._columnar and not self._scans and bool(self._fat or self._movable_rows >= 2 * MOVED)
        if moves and most > 0:
            if self._fat:
                self._move_some_of(next(iter(self._fat)))
            else:
                self._move_head()
        return moves or bool(log and least >= Frontier(log[0].time))

    def _forget(self, key: _Key, time: int) -> None:
        """Drop a key's undo entries up to a time, as these times are no longer distinguished."""
        entries = self._undo.get(key)
        if entries is None:
            return
        end = 0
        while end < len(entries) and entries[end] <= time:
            end += 3
        if end < len(entries):
            del entries[:end]
            if self._columnar and len(self._head[key]) >= 2 * MOVED + len(entries):
                self._fat[key] = None
            return
        del self._undo[key]
        counts = self._head[key]
        if counts:
            self._movable[key] = None
            self._movable_rows += len(counts)
        else:
            del self._head[key]

    def _move_head(self) -> None:
        """Move the rows of the least recently changed keys to the spine."""
        rows: list[Counted] = []
        while len(rows) < MOVED:
            key = next(iter(self._movable))
            del self._movable[key]
            rows += self._head.pop(key).items()
        self._movable_rows -= len(rows)
        self._write(rows)

    def _move_some_of(self, key: _Key) -> None:
        """Move the rows of a key without undo entries to the spine."""
        del self._fat[key]
        if key not in self._undo:
            return  # all of them are moved with others
        counts, changed = self._head[key], set(self._undo[key][1::3])
        rows = [counted for counted in counts.items() if counted[0] not in changed]
        for row, _ in rows:
            del counts[row]
        self._write(rows)

    def _write(self, rows: Sequence[Counted]) -> None:
        """Write rows to the spine. Those that columns cannot hold stay in the head."""
        if self._spine is None:
            self._spine = self._new_columns()
        for row, weight in self._in_columns(rows, self._spine):
            self._keep(self.keying.of_row(row), row, weight)

    def _move_columns(self, settled: _Settled) -> int:
        """Move some rows of a large change to the spine. Returns their number."""
        assert settled.columns is not None
        frame = settled.columns.take(LARGE)
        self._write(RowBatch(self.schema, frame))
        if not len(settled.columns):
            settled.columns = None
            self._large.remove(settled)
        return len(frame)

    def free_memory(self) -> bool:
        """Free part of the memory of an unused arrangement. Returns whether there is more."""
        self._log.clear()
        self._large.clear()
        self._movable.clear()
        self._fat.clear()
        self._spine = self._open_columns = None
        for rows in (self._head, self._undo):
            for _ in range(min(len(rows), SCANNED)):
                rows.popitem()
        return bool(self._head or self._undo)


def _added_up(changes: Iterable[Counted]) -> list[Counted]:
    counts: dict[Row, int] = {}
    for row, weight in changes:
        counts[row] = counts.get(row, 0) + weight
    return [counted for counted in counts.items() if counted[1]]


def _itself(row: tuple[Any, ...]) -> Any:
    return row


def _has_spellings(field: Field) -> bool:
    """Return whether equal values may have different representations, as NaNs and signed zeros do."""
    return dict_key_source(field.type, field.nullable, "value", lambda source: (source, source)) != "value"
