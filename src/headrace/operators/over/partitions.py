"""Partitions of window functions: rows in order with their answers, maintained as rows change.

Changes replace a stretch of a partition's rows. Each function returns which rows it may answer differently
afterwards; their answers are computed again, and the output changes where an answer does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from calendar import monthrange
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import localcontext
from functools import singledispatch
from operator import add, itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace.expr.check import check
from headrace.expr.code_runtime import float32
from headrace.expr.types import FLOAT32, Row, Rows
from headrace.lowering.reference import function_of, rank
from headrace.operators.over.window_function import Months, Over, WindowFrame, WindowFunction

if TYPE_CHECKING:
    from headrace.expr.tree import Expr, Ordering
    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


Key = Callable[[Any], Any]


ROWS, ANSWERS, NEGATIVE = range(3)


PartitionState: TypeAlias = list[Any]
"""State of a partition: ROWS in order, each copy an entry; their ANSWERS; NEGATIVE multiplicity by row."""


# Up to so many changes, functions of near rows take them one by one; more are taken as one stretch.
_ONE_BY_ONE = 16


def thaw_partition(partition: Any) -> PartitionState:
    """Thaw function for a partition."""
    return [list(partition[ROWS]), list(partition[ANSWERS]), dict(partition[NEGATIVE])]


@dataclass(frozen=True, slots=True)
class ChangedRange:
    """Rows of a partition after a change: those from `low` to `high` have replaced others.

    moved:   the partition has more or fewer rows than before.
    changed: the rows that were inserted or retracted.
    """

    rows: Rows
    low: int
    high: int
    moved: bool
    changed: Rows

    @property
    def size(self) -> int:
        return len(self.rows)


class PartitionFunction(ABC):
    """Window function over ordered rows. is_local: its answers depend only on nearby rows."""

    is_local = False

    @abstractmethod
    def affected(self, after: ChangedRange) -> tuple[int, int]:
        """Return the range of rows, beyond a stretch, whose answers may change."""

    @abstractmethod
    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        """Return the answers to rows from `start` to `stop`. before: the answer to the preceding row."""


@dataclass(slots=True)
class Peers:
    """Rows that are equal in the order. by: sort key, without tie-breaking columns."""

    by: Key

    def first(self, rows: Rows, at: int) -> int:
        """Return the position of a row's first peer."""
        return bisect_left(rows, self.by(rows[at]), hi=at, key=self.by)

    def end(self, rows: Rows, at: int) -> int:
        """Return the position after a row's last peer."""
        return bisect_right(rows, self.by(rows[at]), lo=at, key=self.by)

    def around(self, after: ChangedRange) -> tuple[int, int]:
        """Extend a row range to whole peer groups."""
        start = self.first(after.rows, after.low - 1) if after.low else 0
        return start, self.end(after.rows, after.high) if after.high < after.size else after.size


@dataclass(slots=True)
class PartitionRule:
    """Window functions of an operator, with the order of rows that they share.

    order: sort key of a row, different for different rows.
    """

    functions: tuple[PartitionFunction, ...]
    order: Key

    def update(self, partition: PartitionState, changes: Mapping[Row, int]) -> list[tuple[Row, int]]:
        """Apply changes, row by weight; return those of the output, retractions first."""
        inserted, retracted = _copies(changes, partition[NEGATIVE])
        update = _Update(self, *partition)
        if len(inserted) + len(retracted) <= _ONE_BY_ONE and all(f.is_local for f in self.functions):
            for row in retracted:
                update.replace([], [row])
            for row in inserted:
                update.replace([row], [])
        elif inserted or retracted:
            update.replace(inserted, retracted)
        output = [change for change in update.output.items() if change[1]]
        output.sort(key=itemgetter(1))
        return output


class _Update:
    """Update of a partition in a tick. output: weights of the output rows that it retracts or inserts."""

    __slots__ = ("answers", "negative", "output", "rows", "rule")

    def __init__(self, rule: PartitionRule, rows: Rows, answers: Rows, negative: dict[Row, int]) -> None:
        self.rule = rule
        self.rows = rows
        self.answers = answers
        self.negative = negative
        self.output: dict[Row, int] = {}

    def replace(self, inserted: Rows, retracted: Rows) -> None:
        """Replace the stretch of rows with changes, and recompute the answers that it affects."""
        rows, order, changed = self.rows, self.rule.order, [*inserted, *retracted]
        keys = list(map(order, changed))
        low = bisect_left(rows, min(keys), key=order)
        end = bisect_right(rows, max(keys), lo=low, key=order)
        size, old = len(rows), rows[low:end]
        new, absent = _without(old, retracted, order)
        for row in absent:
            self.negative[row] = self.negative.get(row, 0) - 1
        _insert(new, inserted, order)
        rows[low:end] = new
        self._answer(ChangedRange(rows, low, low + len(new), len(rows) != size, changed), old)

    def _answer(self, after: ChangedRange, old: Rows) -> None:
        """Compute the answers that a stretch affects. old: the rows that it has replaced."""
        rows, answers, low, high, end = self.rows, self.answers, after.low, after.high, after.low + len(old)
        spans = [function.affected(after) for function in self.rule.functions]
        start, stop = min(low, *(s for s, _ in spans)), max(high, *(e for _, e in spans))
        unknown = (None,) * len(spans)
        was = [*answers[start:low], *[unknown] * (high - low), *answers[end : end + stop - high]]
        columns: list[list[Any]] = []
        for at, (function, (first, last)) in enumerate(zip(self.rule.functions, spans, strict=True)):
            column = [answer[at] for answer in was]
            first, last = min(first, low), max(last, high)
            previous = answers[first - 1][at] if first else None
            column[first - start : last - start] = function.answers(rows, first, last, previous)
            columns.append(column)
        made = list(zip(*columns, strict=True))
        self._add(map(add, old, answers[low:end]), -1)
        self._add(map(add, rows[low:high], made[low - start : high - start]), 1)
        others = (*range(start, low), *range(high, stop))
        changed = [at for at in others if made[at - start] != was[at - start]]
        self._add([rows[at] + was[at - start] for at in changed], -1)
        self._add([rows[at] + made[at - start] for at in changed], 1)
        answers[start : end + stop - high] = made

    def _add(self, rows: Iterable[Row], weight: int) -> None:
        """Add rows to the output."""
        output = self.output
        for row in rows:
            output[row] = output.get(row, 0) + weight


def _copies(changes: Mapping[Row, int], negative: dict[Row, int]) -> tuple[Rows, Rows]:
    """Return the inserted and the retracted copies of changes, offset by copies moved out of `negative`."""
    inserted: Rows = []
    retracted: Rows = []
    for row, weight in changes.items():
        if row in negative:
            weight += negative.pop(row)
        (inserted if weight > 0 else retracted).extend([row] * abs(weight))
    return inserted, retracted


def _without(rows: Rows, retracted: Rows, order: Key) -> tuple[Rows, Rows]:
    """Return rows in order without the retracted copies, and the retracted copies that were not found."""
    left = list(rows)
    absent: Rows = []
    if len(retracted) * 8 > len(rows):
        copies: dict[Row, int] = {}
        for row in retracted:
            copies[row] = copies.get(row, 0) + 1
        left.clear()
        for row in rows:
            if copies.get(row):
                copies[row] -= 1
            else:
                left.append(row)
        absent.extend(row for row, count in copies.items() for _ in range(count))
        return left, absent
    for row in retracted:
        at = bisect_left(left, order(row), key=order)
        if at < len(left) and left[at] == row:
            del left[at]
        else:
            absent.append(row)
    return left, absent


def _insert(rows: Rows, inserted: Rows, order: Key) -> None:
    """Insert rows into ordered rows."""
    if len(inserted) * 8 > len(rows):
        rows += inserted
        rows.sort(key=order)
        return
    for row in inserted:
        insort(rows, row, key=order)


# --- reference ---------------------------------------------------------------------------------------


class SortedPartition:
    """Rows of a partition in order, with their sort keys."""

    def __init__(self, rows: list[Row], over: Over, schema: Schema) -> None:
        self.schema = schema
        self.rows = sorted(rows, key=rank)
        self._values = [function_of(ordering.expr, schema) for ordering in over.by]
        self._short = bool(over.by) and check(over.by[-1].expr, schema).type == FLOAT32
        # Sorts are stable, so sort by the least significant column first.
        for value, ordering in reversed(list(zip(self._values, over.by, strict=True))):
            self.rows.sort(key=lambda row, value=value: rank(value(row)), reverse=ordering.descending)
        # A range is of the last value; another one before it says whether that is null.
        self.descending = bool(over.by) and over.by[-1].descending

    def by(self, at: int) -> list[Any]:
        """Return the sort key of a row, for equality comparison."""
        return [rank(value(self.rows[at])) for value in self._values]

    def distance(self, at: int, other: int) -> Any:
        """Return the distance from a row's value to another's along the order; None if either is null."""
        one, two = (self._values[-1](self.rows[place]) for place in (at, other))
        if one is None or two is None:
            return None
        with localcontext(prec=100):
            return one - two if self.descending else two - one

    def beyond(self, at: int, other: int, bound: Any) -> int:
        """Compare a row's value with another's plus a bound, for types without exact distances.

        A sum of floats is rounded, and months differ in length.
        """
        one, two = (self._values[-1](self.rows[place]) for place in (at, other))
        if isinstance(bound, Months):
            of_month = [(day.year * 12 + day.month, day.day) for day in (one, two)]
            month = of_month[0][0] + (-bound.count if self.descending else bound.count)
            last = monthrange((month - 1) // 12, (month - 1) % 12 + 1)[1]
            clocks = [day.time() if isinstance(day, datetime) else None for day in (one, two)]
            reached, found = (month, min(of_month[0][1], last), clocks[0]), (*of_month[1], clocks[1])
            sign = (found > reached) - (found < reached)
            return -sign if self.descending else sign
        reached = one - bound if self.descending else one + bound
        if self._short:
            reached = float32(one - float32(bound) if self.descending else one + float32(bound))
        return sign_of(reached - two) if self.descending else sign_of(two - reached)

    def peers(self, at: int) -> list[int]:
        return [other for other in range(len(self.rows)) if self.by(other) == self.by(at)]


def sign_of(number: Any) -> int:
    """Return the sign of a number or a time span: -1, 0 or 1."""
    zero = type(number)()
    return (number > zero) - (number < zero)


# --- what each function registers --------------------------------------------------------------------


class FunctionWriter(Protocol):
    """Interface of the operator's step to the functions that write code with it (`operator.OverStep`)."""

    node: Node
    writer: StepWriter
    schema: Schema

    @property
    def by(self) -> tuple[Ordering, ...]:
        """Order of the partitions."""
        ...

    @property
    def columns(self) -> tuple[str, ...]: ...
    def constant(self, made: Any) -> str: ...
    def row_function(self, name: str, sources: list[str]) -> str: ...
    def value_function(self, name: str, expr: Expr) -> str: ...
    def peers(self) -> str: ...


@singledispatch
def function_source(
    function: WindowFunction, frame: WindowFrame | None, step: FunctionWriter, suffix: str
) -> str:
    """Return the source of a window function over partitions: a `PartitionFunction`.

    suffix: makes names of its own of those that are written for it.
    """
    raise NotImplementedError(f"the in-process engine cannot compute {type(function).__name__}")


@singledispatch
def answer_of_row(function: WindowFunction, over: Over, partition: SortedPartition, at: int) -> Any:
    """Compute the reference answer of the row at a position in its partition."""
    raise NotImplementedError(f"no reference answer for {function}")
