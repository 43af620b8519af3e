"""Frames of window functions, and aggregates of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from math import isfinite, ulp
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.check import check
from headrace.expr.code_runtime import EXACT, float32
from headrace.expr.functions.calendar import add_months
from headrace.expr.types import DataType, DateType, Float32Type, Row, Rows
from headrace.expr.value_keys import order_key
from headrace.lowering.reference import functions_of
from headrace.lowering.row_code import RowCode
from headrace.operators.aggregate.aggregation import ROWS, Aggregation, Group, answer_of
from headrace.operators.over.partitions import (
    ChangedRange,
    FunctionWriter,
    Key,
    PartitionFunction,
    Peers,
    SortedPartition,
    answer_of_row,
    function_source,
    sign_of,
)
from headrace.operators.over.window_function import FrameUnit, Months, Over, WindowFrame, measured_by


class _Beyond(Enum):
    """Positions of values outside the range of their type, such as the day after the last."""

    THE_FIRST = "before all values"
    THE_LAST = "behind all values"


class Bounds(ABC):
    """Bounds of the frames of rows."""

    is_local = False

    @abstractmethod
    def affected(self, after: ChangedRange) -> tuple[int, int]:
        """Return the range of rows whose frame has changed."""

    @abstractmethod
    def of(self, rows: Rows, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the frames of rows, each as its first position and the position after its last."""


@dataclass(slots=True)
class RowBounds(Bounds):
    """Bounds by the number of rows; None if unbounded."""

    start: int | None
    end: int | None

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        return self.start is not None and self.end is not None

    def affected(self, after: ChangedRange) -> tuple[int, int]:
        first = 0 if self.end is None else after.low - self.end
        last = after.size if self.start is None else after.high - self.start
        return max(0, min(first, after.size)), max(0, min(last, after.size))

    def of(self, rows: Rows, start: int, stop: int) -> Iterator[tuple[int, int]]:
        size = len(rows)
        for at in range(start, stop):
            first = 0 if self.start is None else min(size, max(0, at + self.start))
            last = size if self.end is None else min(size, max(0, at + self.end + 1))
            yield first, max(first, last)


@dataclass(slots=True)
class PeerBounds(Bounds):
    """Bounds at the row's peers, or unbounded."""

    peers: Peers
    from_peers: bool
    to_peers: bool

    def affected(self, after: ChangedRange) -> tuple[int, int]:
        start, stop = self.peers.around(after)
        return start if self.to_peers else 0, stop if self.from_peers else after.size

    def of(self, rows: Rows, start: int, stop: int) -> Iterator[tuple[int, int]]:
        at = start
        while at < stop:
            end = self.peers.end(rows, at)
            first = self.peers.first(rows, at) if self.from_peers else 0
            yield from [(first, end if self.to_peers else len(rows))] * (min(end, stop) - at)
            at = end


@dataclass(slots=True)
class RangeBounds(Bounds):
    """Bounds by the distance between ordering values; None if unbounded.

    value: what is ordered by, of a row. key: makes values comparable. descending: the order is. short: floats
    have 32 bits, and so have their sums with distances.
    """

    peers: Peers
    start: Any
    end: Any
    value: Key
    key: Key
    descending: bool
    short: bool

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        return self.start is not None and self.end is not None

    def affected(self, after: ChangedRange) -> tuple[int, int]:
        start, stop = self.peers.around(after)
        values = [self.value(row) for row in after.changed]
        if any(value is None for value in values):
            return 0, after.size
        low, high = self._known(after.rows)
        least, most = (min, max) if not self.descending else (max, min)
        first, last = least(values, key=self.key), most(values, key=self.key)
        if self.end is None:
            start = 0
        else:
            to = self._reached(first, self.end, ahead=False)
            start = min(start, self._place(after.rows, low, high, to))
        if self.start is None:
            stop = after.size
        else:
            to = self._reached(last, self.start, ahead=True)
            stop = max(stop, self._place(after.rows, low, high, to, after=True))
        return start, stop

    def of(self, rows: Rows, start: int, stop: int) -> Iterator[tuple[int, int]]:
        at, (low, high) = start, self._known(rows)
        while at < stop:
            end, value = self.peers.end(rows, at), self.value(rows[at])
            if value is None:
                first, last = self.peers.first(rows, at), end
            else:
                first = self._place(rows, low, high, self._shifted(value, self.start))
                last = self._place(rows, low, high, self._shifted(value, self.end), after=True)
            first = 0 if self.start is None else first
            last = len(rows) if self.end is None else last
            yield from [(first, max(first, last))] * (min(end, stop) - at)
            at = end

    def _known(self, rows: Rows) -> tuple[int, int]:
        """Return the range of the rows with a value; nulls are at one end."""
        if not rows or self.value(rows[0]) is not None:
            return 0, bisect_left(rows, True, key=lambda row: self.value(row) is None)
        return bisect_left(rows, True, key=lambda row: self.value(row) is not None), len(rows)

    def _shifted(self, value: Any, offset: Any, *, back: bool = False) -> Any:
        """Return a value at an offset along the order, or a `_Beyond`; None for no offset."""
        if offset is None:
            return None
        if not offset:  # the row itself: 0 also where distances are of time
            return value
        falls = self.descending != back
        try:
            if isinstance(offset, Months):
                return _months_later(value, -offset.count if falls else offset.count)
            if isinstance(value, Decimal):
                return EXACT.subtract(value, offset) if falls else EXACT.add(value, offset)
            shifted = value - offset if falls else value + offset
            return float32(shifted) if self.short else shifted
        except (OverflowError, EvaluationError):
            return _Beyond.THE_LAST if (offset > type(offset)()) != back else _Beyond.THE_FIRST

    def _reached(self, value: Any, offset: Any, *, ahead: bool) -> Any:
        """Return the farthest value whose frame has a value at this offset, or a bit more.

        The sum that is a float's bound is rounded, and so is the difference from it. Of a month's last days,
        several are as many months before one day.
        """
        reached = self._shifted(value, offset, back=True)
        more: Any
        if isinstance(reached, _Beyond):
            return reached
        if isinstance(offset, Months):
            more = 4 * _DAY
        elif isinstance(value, float) and isfinite(reached):
            more = (2 << 29 if self.short else 2) * (ulp(value) + ulp(offset) + ulp(reached))
        else:
            return reached
        try:
            return reached + more if ahead != self.descending else reached - more
        except OverflowError:
            return _Beyond.THE_LAST if ahead else _Beyond.THE_FIRST

    def _place(self, rows: Rows, low: int, high: int, value: Any, *, after: bool = False) -> int:
        """Return the position of the first row at or after a value in the order, or only after it."""
        if value is None or value is _Beyond.THE_FIRST:
            return low
        if value is _Beyond.THE_LAST:
            return high
        key = self.key(value)
        if self.descending:
            return bisect_left(rows, True, lo=low, hi=high, key=partial(self._is_beyond, key, after))
        search = bisect_right if after else bisect_left
        return search(rows, key, lo=low, hi=high, key=lambda row: self.key(self.value(row)))

    def _is_beyond(self, key: Any, after: bool, row: Row) -> bool:
        own = self.key(self.value(row))
        return own < key if after else own <= key


def bounds_of(
    frame: WindowFrame, peers: Peers, value: Key, key: Key | None, *, of: DataType | None, descending: bool
) -> Bounds:
    """Build the bounds of a frame. value, of, key: the value measured by a range, its type, its sort key."""
    start: Any = frame.start
    end: Any = frame.end
    if frame.unit is FrameUnit.ROWS:
        return RowBounds(start, end)
    if not frame.measures_values:
        return PeerBounds(peers, start is not None, end is not None)
    if isinstance(of, DateType):
        start, end = (_days(start, up=True), _days(end, up=False))
    short = isinstance(of, Float32Type)
    if short:
        start, end = (None if bound is None else float32(bound) for bound in (start, end))
    return RangeBounds(peers, start, end, value, key or _same, descending, short)


def _days(bound: Any, *, up: bool) -> Any:
    """Round a distance between dates to whole days, clamped to the range of `timedelta`."""
    if bound is None or isinstance(bound, Months):
        return bound
    days = bound if isinstance(bound, int) else -(-bound // _DAY) if up else bound // _DAY
    return timedelta(days=max(timedelta.min.days, min(days, timedelta.max.days)))


_DAY = timedelta(days=1)


def _months_later(value: Any, count: int) -> Any:
    """Return the date or time some months later. Raises `EvaluationError` beyond the last and the first."""
    day = add_months(value, count)
    return value.replace(year=day.year, month=day.month, day=day.day)


def _same(value: Any) -> Any:
    return value


@dataclass(slots=True)
class FramedFunction(PartitionFunction):
    """Window function over the rows of a frame."""

    bounds: Bounds

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        return self.bounds.is_local

    def affected(self, after: ChangedRange) -> tuple[int, int]:
        return self.bounds.affected(after)


@dataclass(slots=True)
class FrameAggregate(FramedFunction):
    """Aggregate over a frame that moves with the row. Rows that leave the frame are subtracted.

    empty: makes the state of no rows. add: adds a row with a weight. result: of a state.
    nothing: the answer to no rows.
    """

    empty: Callable[[], list[Any]]
    add: Callable[[list[Any], Row, int], None]
    result: Callable[[list[Any]], Any]
    nothing: Any

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        add, group = self.add, self.empty()
        first = last = 0
        answer, known = None, False
        for low, high in self.bounds.of(rows, start, stop):
            if low >= last:
                if first != last:
                    group = self.empty()
                first = last = low
                known = False
            known = known and low == first and high == last
            for at in range(last, high):
                add(group, rows[at], 1)
            for at in range(first, low):
                add(group, rows[at], -1)
            first, last = low, max(high, low)
            if not known:
                answer = self.result(group) if high > low else self.nothing
                known = True
            yield answer


# --- code --------------------------------------------------------------------------------------------


def bounds_source(frame: WindowFrame, step: FunctionWriter) -> str:
    """Return the source of the bounds of a frame."""
    of = key = None
    value, descending = "None", False
    if frame.measures_values:
        ordering = measured_by(step.by)
        assert ordering is not None
        typed = check(ordering.expr, step.schema)
        of, descending = typed.type, ordering.descending
        key = order_key(typed.type, False)
        value = step.value_function("range", ordering.expr)
    given = (("frame", frame), ("key", key), ("type", of))
    names = [step.writer.constant(name, each) for name, each in given]
    return (
        f"{step.constant(bounds_of)}({names[0]}, {step.peers()}, {value}, {names[1]},"
        f" of={names[2]}, descending={descending})"
    )


@function_source.register(Aggregation)
def _source(function: Aggregation, frame: WindowFrame | None, step: FunctionWriter, suffix: str) -> str:
    assert frame is not None
    writer, node = step.writer, step.node.id
    # Frames that start at the partition's start lose no row as they move.
    group = Group(writer, step.schema, [function], appends=frame.start is None)
    empty, add, result = (
        writer.node_variable(f"{name}_{suffix}", node) for name in ("empty", "add", "result")
    )
    with writer.function_body(node, f"def {empty}():"):
        writer.code.line(f"return {group.empty}")
    with writer.function_body(node, f"def {add}(group, row, weight):"):
        group.add("group", RowCode(step.columns, "row", None if group.appends else "weight"))
    with writer.function_body(node, f"def {result}(group):"):
        group.settle("group")
        (source,) = group.aggregate_sources("group")
        writer.code.line(f"return {source} if group[{ROWS}] > 0 else {function.of_no_rows!r}")
    made, nothing = step.constant(FrameAggregate), function.of_no_rows
    return f"{made}({bounds_source(frame, step)}, {empty}, {add}, {result}, {nothing})"


# --- reference answers -------------------------------------------------------------------------------


def rows_of_frame(over: Over, partition: SortedPartition, at: int) -> list[Row]:
    """Return the rows of a row's frame, in order."""
    frame = over.frame
    assert frame is not None
    return [
        row
        for other, row in enumerate(partition.rows)
        if (frame.start is None or _beyond(frame.start, over, partition, at, other) >= 0)
        and (frame.end is None or _beyond(frame.end, over, partition, at, other) <= 0)
    ]


def _beyond(bound: Any, over: Over, partition: SortedPartition, at: int, other: int) -> int:
    """Compare a row's position with a bound of another row's frame: -1, 0 or 1."""
    assert over.frame is not None
    if over.frame.unit is FrameUnit.ROWS:
        return sign_of(other - at - bound)
    distance = partition.distance(at, other) if bound or over.frame.measures_values else None
    if distance is None:
        return 0 if other in partition.peers(at) else sign_of(other - at)
    if isinstance(bound, Months):
        return partition.beyond(at, other, bound)
    if isinstance(distance, timedelta):
        bound = bound if isinstance(bound, timedelta) else timedelta(days=bound)
    if distance != distance:  # NaN is greatest, and at no distance from itself
        return 0 if other in partition.peers(at) else sign_of(other - at)
    return partition.beyond(at, other, bound) if isinstance(distance, float) else sign_of(distance - bound)


@answer_of_row.register(Aggregation)
def _answer_aggregate(function: Aggregation, over: Over, partition: SortedPartition, at: int) -> Any:
    rows = rows_of_frame(over, partition, at)
    if not rows:
        return function.of_no_rows
    arguments = functions_of(function.arguments(), partition.schema)
    result = function.field("", partition.schema).type
    return answer_of(function, result, [arguments(row) for row in rows])
