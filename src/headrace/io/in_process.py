"""In-process sources and sinks: Python rows in; callbacks, memory and standard output out.

The wall clock is a source, too: time is an ordinary input, so runs that depend on it can be replayed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from io import IOBase
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import BadInput, BadRow, SourceLocation, WrongType
from headrace.expr.functions.intervals import writer_of
from headrace.expr.time_texts import duration, format_duration
from headrace.expr.types import DataType, IntervalType, Schema
from headrace.expr.value_keys import with_representatives
from headrace.io.outbox import SpooledWriter
from headrace.io.sink import SinkRequest, SinkTarget, Writer, open_sink
from headrace.io.source import (
    AT_LEAST_ONCE,
    WEIGHT,
    Batch,
    Feed,
    Guarantee,
    NextDue,
    Reader,
    Source,
    open_source,
)
from headrace.shown import Shown

if TYPE_CHECKING:
    import pyarrow as pa

_BATCHES = "batches"
_ROWS = "rows"


@dataclass(frozen=True)
class Rows(Source):
    """Source of Python rows, one inner iterable per tick (an empty one is a tick without rows).

    For a table source, items may also be `hr.insert(row)`, `hr.delete(row)`, `hr.Change(row, weight)`.
    With a checkpoint, a restart must provide the same batches again; those already taken are skipped.
    """

    guarantee: ClassVar[Guarantee] = Guarantee(
        "exactly once", "if a restart gives the same batches again: those already taken are skipped"
    )
    batches: Iterable[Iterable[Any]]


class BatchesReader(Reader):
    """Reader of prepared batches, one per tick."""

    def __init__(self, batches: Iterator[Iterable[Any]], feed: Feed) -> None:
        self._batches = batches
        self._feed = feed
        self._taken: int = feed.taken.get(_BATCHES) or 0
        for _ in islice(batches, self._taken):
            pass

    def read(self, limit: int | None) -> Batch | None:
        rows: list[Any] = []
        before = self._taken
        for batch in islice(self._batches, None if limit is None else 1):
            rows.extend(batch)
            self._taken += 1
        if self._taken == before:
            self.done = True
            return None
        batch = convert_rows(rows, self._feed, f"{before} batches")
        self._feed.taken[_BATCHES] = self._taken
        return batch


class RowsReader(Reader):
    """Reader of any iterable of rows, `limit` rows per tick."""

    def __init__(self, rows: Iterator[Any], feed: Feed) -> None:
        self._rows = rows
        self._feed = feed
        self._taken: int = feed.taken.get(_ROWS) or 0
        for _ in islice(rows, self._taken):
            pass

    def read(self, limit: int | None) -> Batch | None:
        rows = list(islice(self._rows, limit))
        self.done = limit is None or len(rows) < limit
        if not rows:
            return None
        batch = convert_rows(rows, self._feed, f"{self._taken} rows")
        self._taken += len(rows)
        self._feed.taken[_ROWS] = self._taken
        return batch


def convert_rows(rows: list[Any], feed: Feed, before: str) -> Batch:
    """Convert user rows to a batch. `BadRow` counts rows in it; `before` describes the rows taken earlier."""
    assert feed.from_user is not None, "the engine sets from_user"
    try:
        return Batch(feed.from_user(rows))
    except BadRow as error:
        why = f"{error.why}\n{before} of the source were taken before.".strip()
        raise BadRow(
            error.what, where=error.where, why=why, fix=error.fix, **{**error.facts, "before": before}
        ) from error


@open_source.register
def _(source: Rows, feed: Feed) -> Reader:
    return BatchesReader(iter(source.batches), feed)


@open_source.register(Iterable)
def _(source: Iterable[Any], feed: Feed) -> Reader:
    if hasattr(source, "__arrow_c_stream__"):  # a DataFrame, whose items are names or columns
        raise BadInput(
            f"source {feed.name!r} is a {type(source).__name__}, which is not an iterable of rows",
            where=[SourceLocation.of_caller()],
            fix='pandas: df.to_dict("records"); Polars: df.to_dicts(); pyarrow: table.to_pylist(); '
            f"or Engine(flow).tick({feed.name}=df), which takes the DataFrame itself",
            source=feed.name,
        )
    if isinstance(source, IOBase) and not feed.schema.scalar:
        raise BadInput(
            f"source {feed.name!r} is an open file, whose items are lines of text",
            where=[SourceLocation.of_caller()],
            fix="give JsonFiles(path) or CsvFiles(path), which read rows from files",
            source=feed.name,
        )
    return RowsReader(iter(source), feed)


@dataclass(frozen=True, eq=False)
class ArrowTable(Source):
    """Rows of a run that needs no Spark (`way="here"`), read in its first tick. Later ones are another run's.

    Columns are found by name, and have the Arrow types of what the flow declares; further ones are left out.
    For a table source the column `weight` is each row's weight; without it each row comes once.
    """

    table: pa.Table


class ArrowTableReader(Reader):
    """Reader of an Arrow table, converted to rows `limit` at a time."""

    def __init__(self, table: pa.Table, feed: Feed) -> None:
        self._table = table
        self._feed = feed
        self._taken: int = feed.taken.get(_ROWS) or 0

    def read(self, limit: int | None) -> Batch | None:
        from headrace.io.arrow import arrow_schema, table_to_rows, with_weight

        part = self._table.slice(self._taken, limit)
        self.done = limit is None or len(part) < limit
        if not len(part):
            return None
        schema, weighted = self._feed.schema, not self._feed.append
        if weighted and WEIGHT not in part.column_names:
            part = with_weight(part, schema)
        columns = arrow_schema(schema, weighted=weighted)
        rows = table_to_rows(part.select(columns.names).cast(columns), schema, weighted=weighted)
        self._taken += len(part)
        self._feed.taken[_ROWS] = self._taken
        return Batch(rows)


@open_source.register
def _(source: ArrowTable, feed: Feed) -> Reader:
    return ArrowTableReader(source.table, feed)


@dataclass(frozen=True)
class Call(SinkTarget):
    """Sink that calls `function(tick, changes)` for each tick that has changes.

    `changes` is a sequence of `Change(row, weight)`.

    At least once: after a crash the last committed tick may be delivered again, with the same number and
    changes. An exception of the function ends the run.
    """

    guarantee: ClassVar[Guarantee] = AT_LEAST_ONCE
    function: Callable[[int, Sequence[Any]], object]


@open_sink.register
def _(sink: Call, request: SinkRequest) -> Writer:
    return SpooledWriter(request, lambda tick, rows: sink.function(tick, request.present(rows)))


Present = Callable[[list[tuple[Any, ...]]], Sequence[Any]]


@dataclass(eq=False)
class _Sum:
    weights: dict[tuple[Any, ...], int] = field(default_factory=dict[tuple[Any, ...], int])
    present: Present = lambda rows: rows
    begins_at: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Memory(Shown, SinkTarget):
    """Sink that accumulates all changes in memory. No checkpoint stores them, so a restart empties it.

    `changes` is the sum; `rows` is the table, which holds back rows with negative multiplicity.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("this run only", "it lives in this process")
    _sum: _Sum = field(default_factory=_Sum, init=False, repr=False)

    def __repr__(self) -> str:
        return f"Memory({len(self.rows()):,} rows)"

    def changes(self) -> Sequence[Any]:
        """List one `Change` per row with its weight, in order of first arrival."""
        return self._sum.present([(*row, weight) for row, weight in self._sum.weights.items()])

    def rows(self) -> list[Any]:
        """List user rows, each repeated by its weight."""
        return [row for row, weight in self.changes() for _ in range(weight)]

    def begins(self, tick: int) -> None:
        """Record the committed tick from which a run resumes. Called by engines."""
        if self._sum.begins_at is None:
            self._sum.begins_at = tick

    def held_rows(self) -> list[tuple[Any, ...]]:
        """Return held-back rows as internal rows, weight last. Called by engines.

        Empty if ticks ran before this sink existed, since they may have inserted the rows retracted now.
        """
        if self._sum.begins_at:
            return []
        return [(*row, weight) for row, weight in self._sum.weights.items() if weight < 0]

    def add(self, rows: Sequence[tuple[Any, ...]], present: Present) -> None:
        """Add internal changes. Called by engines."""
        self._sum.present = present
        weights = self._sum.weights
        for *values, weight in rows:
            row = tuple(values)
            total = weights.pop(row, 0) + weight
            if total:
                weights[row] = total


@open_sink.register
def _(sink: Memory, request: SinkRequest) -> Writer:
    return SpooledWriter(
        request,
        lambda _tick, rows: sink.add(with_representatives(rows, request.schema), request.present),
        sink.held_rows,
        sink.begins,
    )


@dataclass(frozen=True)
class Print(SinkTarget):
    """Sink that prints changes as lines: tick, sink, `+` or `-` (with a count unless 1), columns."""

    guarantee: ClassVar[Guarantee] = AT_LEAST_ONCE


@open_sink.register
def _(sink: Print, request: SinkRequest) -> Writer:
    return SpooledWriter(request, lambda tick, rows: sys.stdout.write(format_changes(request, tick, rows)))


def format_changes(request: SinkRequest, tick: int, rows: list[tuple[Any, ...]]) -> str:
    """Format a tick's changes as lines, retractions first."""
    return "".join(
        f"{tick} {request.name} {change_text(request.schema, values, weight)}\n"
        for *values, weight in sorted(rows, key=lambda row: row[-1] > 0)
    )


def change_text(schema: Schema, values: Sequence[object], weight: int) -> str:
    """Format a change: `+` or `-`, with a count unless 1, and the columns."""
    sign = ("+" if weight > 0 else "-") + ("" if abs(weight) == 1 else str(abs(weight)))
    pairs = zip(schema.fields, values, strict=True)
    return " ".join((sign, *(f"{field.name}={shown(value, field.type)}" for field, value in pairs)))


def cells(schema: Schema, values: Sequence[object]) -> tuple[str, ...]:
    """Format the values of a row for a table; a null is empty."""
    pairs = zip(schema.fields, values, strict=True)
    return tuple("" if value is None else shown(value, field.type) for field, value in pairs)


def shown(value: object, data_type: DataType) -> str:
    """Format a value as short text: times in ISO 8601, intervals as in SQL, strings quoted if ambiguous."""
    if isinstance(value, timedelta) and isinstance(data_type, IntervalType):
        return writer_of(data_type)(value)
    if isinstance(value, str):
        return value if value and value.isprintable() and not set(value) & set(" ='\"") else repr(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()  # type: ignore[union-attr]
    return str(value)


_LAST = "last"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_POLL = timedelta(seconds=1)
_LONGEST = 60.0
"""Limit on the seconds between polls, because clocks may be set forward and machines may sleep."""


def _system_time() -> datetime:
    return datetime.now(UTC)


def _check_span(every: timedelta | str) -> None:
    """Raise `WrongType` unless a span is positive, as a clock requires."""
    if duration(every) <= timedelta():
        raise WrongType(
            f"a clock needs a span above 0, got {format_duration(duration(every))}",
            where=[SourceLocation.of_caller()],
        )


@dataclass(frozen=True)
class WallClock(Source):
    """Source of the current time (UTC): each multiple of `every` since 1970, once it has passed.

    After a pause, only the latest of several passed multiples is emitted. Emitted times never decrease, even
    if the clock is set back. The source never ends, so the run continues until it is stopped; with a
    checkpoint, the next run continues with later times.

    Raises `WrongType` unless `every` is a positive time span.
    """

    every: timedelta | str
    now: Callable[[], datetime] = field(default=_system_time, repr=False)

    def __post_init__(self) -> None:
        _check_span(self.every)


@dataclass(frozen=True)
class TickTime(Source):
    """Source of this machine's time (UTC), for time-dependent flows: once at the start, then while following.

    every:   interval between times. A run that does not follow its sources has one time.
    soonest: in this process, a time comes also when the next row falls due by it, this long after the one
             before at the soonest.

    Times never decrease, even if the clock is set back. Runs feed it to a source `tick_time` for which
    nothing is given. Raises `WrongType` unless `every` is a positive time span.
    """

    every: timedelta | str = "10s"
    now: Callable[[], datetime] = field(default=_system_time, repr=False)
    soonest: timedelta | str = "100ms"

    def __post_init__(self) -> None:
        _check_span(self.every)
        _check_span(self.soonest)

    def take(
        self, taken: MutableMapping[Any, Any], *, begins: bool, next_due: NextDue | None = None
    ) -> datetime | None:
        """Return the time if one is due, and record it in `taken`.

        begins: none was taken in this run.
        """
        last: datetime | None = taken.get(_LAST)
        now = self.now()
        if last is not None and now < (last if begins else self._next(last, next_due)):
            return None
        taken[_LAST] = now
        return now

    def _next(self, last: datetime, next_due: NextDue | None) -> datetime:
        following = last + duration(self.every)
        due = None if next_due is None else next_due(last)
        return following if due is None else min(following, max(due, last + duration(self.soonest)))


class TickTimeReader(Reader):
    def __init__(self, clock: TickTime, feed: Feed) -> None:
        self._clock, self._feed, self._begins = clock, feed, True
        poll = min(duration(clock.every) / 10, duration(clock.soonest), _LONGEST_POLL)
        self.look_again = poll.total_seconds()

    def read(self, limit: int | None) -> Batch | None:
        time = self._clock.take(self._feed.taken, begins=self._begins, next_due=self._feed.next_due)
        self._begins, self.done = False, not self._feed.follow
        return None if time is None else convert_rows([time], self._feed, "the time")


@open_source.register
def _(source: TickTime, feed: Feed) -> Reader:
    return TickTimeReader(source, feed)


class WallClockReader(Reader):
    def __init__(self, clock: WallClock, feed: Feed) -> None:
        self._every = duration(clock.every)
        self._now = clock.now
        self._feed = feed

    def read(self, limit: int | None) -> Batch | None:
        last: Any = self._feed.taken.get(_LAST)
        now = self._now()
        time = _EPOCH + (now - _EPOCH) // self._every * self._every
        if last is not None and time <= last:
            self.look_again = min((last + self._every - now).total_seconds(), _LONGEST)
            return None
        batch = convert_rows([time], self._feed, f"times up to {last}")
        self._feed.taken[_LAST] = time
        return batch


@open_source.register
def _(source: WallClock, feed: Feed) -> Reader:
    return WallClockReader(source, feed)
