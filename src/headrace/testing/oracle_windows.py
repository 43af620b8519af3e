"""Oracle for window functions, computed for each row from its whole partition."""

from __future__ import annotations

from calendar import monthrange
from collections import Counter
from datetime import datetime, timedelta
from decimal import localcontext
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from headrace.expr.check import check
from headrace.expr.code_runtime import float32
from headrace.expr.types import FLOAT32
from headrace.lowering.reference import Bag, Row, answer_of_bags, copies, function_of, functions_of, rank
from headrace.operators.aggregates import Aggregation
from headrace.operators.over import ComputeOver
from headrace.operators.window_functions import (
    CumeDist,
    DenseRank,
    FrameUnit,
    Lag,
    Months,
    NthValue,
    Ntile,
    Over,
    PercentRank,
    Rank,
    RowNumber,
    WindowFunction,
)
from headrace.testing.oracle_aggregates import answer_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.graph.node import Node


class Partition:
    """Rows of a partition in order, and what each is ordered by."""

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
        """Return what a row is ordered by, comparable for equality."""
        return [rank(value(self.rows[at])) for value in self._values]

    def distance(self, at: int, other: int) -> Any:
        """Return how far another row's value is along the order; None if either has none."""
        one, two = (self._values[-1](self.rows[place]) for place in (at, other))
        if one is None or two is None:
            return None
        with localcontext(prec=100):
            return one - two if self.descending else two - one

    def beyond(self, at: int, other: int, bound: Any) -> int:
        """Return the sign of a row's value against a bound from another row's, where no distance tells.

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
        return _sign(reached - two) if self.descending else _sign(two - reached)

    def peers(self, at: int) -> list[int]:
        return [other for other in range(len(self.rows)) if self.by(other) == self.by(at)]


@answer_of_bags.register(ComputeOver)
def _over(operator: ComputeOver, node: Node, inputs: Sequence[tuple[Schema, Bag]]) -> Bag:
    [(schema, bag)] = inputs
    per = functions_of(operator.per, schema)
    groups: dict[Row, list[Row]] = {}
    for row in copies(bag):
        groups.setdefault(per(row), []).append(row)
    out: Bag = Counter()
    for rows in groups.values():
        partition = Partition(rows, operator.functions[0][1], schema)
        for at, row in enumerate(partition.rows):
            answers = (_answer(over.function, over, partition, at) for _, over in operator.functions)
            out[(*row, *answers)] += 1
    return out


@singledispatch
def _answer(function: WindowFunction, over: Over, partition: Partition, at: int) -> Any:
    raise NotImplementedError(f"the oracle does not know {function}")


@_answer.register
def _row_number(function: RowNumber, over: Over, partition: Partition, at: int) -> Any:
    return at + 1


@_answer.register
def _rank(function: Rank, over: Over, partition: Partition, at: int) -> Any:
    return partition.peers(at)[0] + 1


@_answer.register
def _percent_rank(function: PercentRank, over: Over, partition: Partition, at: int) -> Any:
    others = len(partition.rows) - 1
    return partition.peers(at)[0] / others if others else 0.0


@_answer.register
def _dense_rank(function: DenseRank, over: Over, partition: Partition, at: int) -> Any:
    different: list[Any] = []
    for other in range(at + 1):
        if partition.by(other) not in different:
            different.append(partition.by(other))
    return len(different)


@_answer.register
def _cume_dist(function: CumeDist, over: Over, partition: Partition, at: int) -> Any:
    return (partition.peers(at)[-1] + 1) / len(partition.rows)


@_answer.register
def _ntile(function: Ntile, over: Over, partition: Partition, at: int) -> Any:
    size, larger = divmod(len(partition.rows), function.parts)
    parts = [part + 1 for part in range(function.parts) for _ in range(size + (part < larger))]
    return parts[at]


@_answer.register
def _lag(function: Lag, over: Over, partition: Partition, at: int) -> Any:
    value = function_of(function.expr, partition.schema)
    before = list(range(at - 1, -1, -1)) if function.offset > 0 else list(range(at + 1, len(partition.rows)))
    if not function.offset:
        return value(partition.rows[at])
    if function.ignore_nulls:
        before = [other for other in before if value(partition.rows[other]) is not None]
    if abs(function.offset) <= len(before):
        return value(partition.rows[before[abs(function.offset) - 1]])
    return (
        None
        if function.default is None
        else function_of(function.default, partition.schema)(partition.rows[at])
    )


def _frame(over: Over, partition: Partition, at: int) -> list[Row]:
    """Return the rows of a row's frame, in order."""
    frame = over.frame
    assert frame is not None
    return [
        row
        for other, row in enumerate(partition.rows)
        if (frame.start is None or _beyond(frame.start, over, partition, at, other) >= 0)
        and (frame.end is None or _beyond(frame.end, over, partition, at, other) <= 0)
    ]


def _beyond(bound: Any, over: Over, partition: Partition, at: int, other: int) -> int:
    """Return the sign of a row's place against a bound of another row's frame."""
    assert over.frame is not None
    if over.frame.unit is FrameUnit.ROWS:
        return _sign(other - at - bound)
    distance = partition.distance(at, other) if bound or over.frame.measures_values else None
    if distance is None:
        return 0 if other in partition.peers(at) else _sign(other - at)
    if isinstance(bound, Months):
        return partition.beyond(at, other, bound)
    if isinstance(distance, timedelta):
        bound = bound if isinstance(bound, timedelta) else timedelta(days=bound)
    if distance != distance:  # NaN is greatest, and at no distance from itself
        return 0 if other in partition.peers(at) else _sign(other - at)
    return partition.beyond(at, other, bound) if isinstance(distance, float) else _sign(distance - bound)


def _sign(number: Any) -> int:
    zero = type(number)()
    return (number > zero) - (number < zero)


@_answer.register
def _nth_value(function: NthValue, over: Over, partition: Partition, at: int) -> Any:
    value = function_of(function.expr, partition.schema)
    found = [value(row) for row in _frame(over, partition, at)]
    if function.ignore_nulls:
        found = [each for each in found if each is not None]
    if function.n < 0:
        found.reverse()
    return found[abs(function.n) - 1] if abs(function.n) <= len(found) else None


@_answer.register
def _aggregate(function: Aggregation, over: Over, partition: Partition, at: int) -> Any:
    rows = _frame(over, partition, at)
    if not rows:
        return function.of_no_rows
    arguments = functions_of(function.arguments(), partition.schema)
    result = function.field("", partition.schema).type
    return answer_of(function, result, [arguments(row) for row in rows])
