"""Extremes: least and greatest values, values of the first and last row in an order, and ordered multisets.

The ordered multiset of a group has its present values in order, with the copies of each.
"""

from __future__ import annotations

import builtins
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from itertools import chain
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.check import check, check_ordered
from headrace.expr.types import DataType, Field, Schema, StructType
from headrace.expr.value_keys import Key, order_key
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import rank
from headrace.lowering.slot import thaw_dict, thaw_list
from headrace.operators.aggregate.aggregation import (
    Accumulator,
    AggregateArguments,
    Aggregation,
    ArgumentRows,
    ArgumentTypes,
    NativeAggregates,
    StateField,
    Target,
    ValueAggregation,
    accumulator_of,
    answer_of,
    measure,
    present_values,
)
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.tree import Expr


class _OrderedValues(ValueAggregation):
    """Base of aggregates that compare values."""

    __slots__ = ()

    def field(self, name: str, schema: Schema) -> Field:
        typed = check_ordered(self.expr, schema)
        return Field(name, typed.type, typed.nullable)


class Minimum(_OrderedValues):
    """Least value; NaN is greatest. Null if every value is null."""

    __slots__ = ()
    described_as: ClassVar[str] = "Min"


class Maximum(_OrderedValues):
    """Greatest value; NaN is greatest. Null if every value is null."""

    __slots__ = ()
    described_as: ClassVar[str] = "Max"

    only_grows: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class _ByOrder(Aggregation):
    """Base of aggregates that return `expr` of the first or last row, ordered by `by`."""

    expr: Expr
    by: Expr

    def skips_null(self) -> tuple[bool, ...]:
        return (False, True)

    def field(self, name: str, schema: Schema) -> Field:
        typed, by = check(self.expr, schema), check_ordered(self.by, schema)
        return Field(name, typed.type, typed.nullable or by.nullable)


class First(_ByOrder):
    """Value of `expr` in the row with the least `by`. Ties go to the least `expr`, null first.

    Rows whose `by` is null do not take part; null if none does.
    """

    __slots__ = ()


class Last(_ByOrder):
    """Value of `expr` in the row with the greatest `by`. Ties go to the greatest `expr`.

    Rows whose `by` is null do not take part; null if none does.
    """

    __slots__ = ()


def min(expr: Expr) -> Minimum:
    """Least value of an expression."""
    return Minimum(expr)


def max(expr: Expr) -> Maximum:
    """Greatest value of an expression."""
    return Maximum(expr)


def first(expr: Expr, *, by: Expr) -> First:
    """Value of `expr` in the row with the least `by`."""
    return First(expr, by)


def last(expr: Expr, *, by: Expr) -> Last:
    """Value of `expr` in the row with the greatest `by`."""
    return Last(expr, by)


# --- accumulators ------------------------------------------------------------------------------------


def _extreme_key(types: ArgumentTypes) -> Key | None:
    """Return the sort key of values, or of pairs (by, value), where `by` is never null."""
    if len(types) == 1:
        return order_key(types[0].type, False)
    value, by = types
    pair = (Field("by", by.type, nullable=False), Field("value", value.type, value.nullable))
    return order_key(StructType(pair), False)


class AppendExtreme(Accumulator):
    """Extreme of values that are never retracted: [value], or [by, value] of the extreme pair."""

    merges = True

    def __init__(self, types: ArgumentTypes, append: bool, sign: str) -> None:
        super().__init__(types, append)
        self.sign = sign

    def fields(self) -> tuple[StateField, ...]:
        return (StateField("None"),) * len(self.types)

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        new = arguments[::-1]
        best = [to.field(number) for number in range(len(new))]
        ours, theirs = (parts[0] if len(parts) == 1 else f"({', '.join(parts)})" for parts in (new, best))
        key = _extreme_key(self.types)
        if key is not None:
            order = to.writer.constant("order", key)
            ours, theirs = f"{order}({ours})", f"{order}({theirs})"
        with to.code.block(f"if {best[0]} is None or {ours} {self.sign} {theirs}:"):
            to.code.line(f"{', '.join(best)} = {', '.join(new)}")

    def result(self, to: Target) -> str:
        return to.field(len(self.types) - 1)

    def partial_columns(self) -> tuple[Field, ...]:
        names = ("by", "best")[-len(self.types) :]
        pairs = zip(names, reversed(self.types), strict=True)
        return tuple(Field(name, of.type, nullable=True) for name, of in pairs)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"if {fields[0]} is not None:"):
            self.update(to, tuple(fields[::-1]), None)


class Extreme(Accumulator):
    """Extreme with retractions: [values at that end, in order, copies per value, values of this tick]."""

    merges = True

    def __init__(self, types: ArgumentTypes, append: bool, end: int) -> None:
        super().__init__(types, append)
        self.end = end

    def fields(self) -> tuple[StateField, ...]:
        return (StateField("[]", thaw_list), StateField("{}", thaw_dict), StateField("{}", thaw_dict))

    def key(self) -> Key | None:
        return order_key(self.types[0].type, False)

    def value(self, arguments: tuple[str, ...]) -> str:
        return arguments[0]

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        value = self.value(arguments)
        to.code.line(f"x_add_ordered_value({to.group}, {to.at}, {value}, {weight or '1'})")

    def settle(self, to: Target) -> None:
        to.code.line(f"x_settle_end({to.group}, {to.at}, {self.order(to)}, 1, {self.end})")

    def order(self, to: Target) -> str:
        """Return the source of the function from values to sort keys."""
        key = self.key()
        return "None" if key is None else to.writer.constant("order", key)

    def result(self, to: Target) -> str:
        return f"({to.field(0)}[{self.end}] if {to.field(0)} else None)"

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for value, copies in {fields[1]}.items():"):
            to.code.line(f"x_add_ordered_value({to.group}, {to.at}, value, copies)")


class ExtremeBy(Extreme):
    """Value of the extreme pair (by, value), with retractions."""

    def key(self) -> Key | None:
        return _extreme_key(self.types)

    def value(self, arguments: tuple[str, ...]) -> str:
        return f"({arguments[1]}, {arguments[0]})"

    def result(self, to: Target) -> str:
        return f"({to.field(0)}[{self.end}][1] if {to.field(0)} else None)"


@accumulator_of.register(Minimum)
@accumulator_of.register(Maximum)
@accumulator_of.register(First)
@accumulator_of.register(Last)
def _accumulate(
    aggregation: Minimum | Maximum | First | Last, types: ArgumentTypes, append: bool
) -> Accumulator:
    least = isinstance(aggregation, Minimum | First)
    if append:
        return AppendExtreme(types, append, "<" if least else ">")
    return (Extreme if len(types) == 1 else ExtremeBy)(types, append, 0 if least else -1)


# --- on Spark ----------------------------------------------------------------------------------------


@measure.register(Minimum)
@measure.register(Maximum)
def _measure(aggregation: Minimum | Maximum, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.sql("min({0})" if isinstance(aggregation, Minimum) else "max({0})"),))


@measure.register(First)
@measure.register(Last)
def _measure_by_order(aggregation: First | Last, to: AggregateArguments) -> NativeAggregates:
    value, by = to.columns
    # The struct orders ties of `by` by value.
    pair = F.when(by.isNotNull(), F.struct(by.alias("by"), value.alias("value")))
    extreme = F.min if isinstance(aggregation, First) else F.max
    return NativeAggregates((extreme(pair),), lambda found: found.getField("value"))


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(Minimum)
def _answer_min(aggregation: Minimum, result: DataType, rows: ArgumentRows) -> Any:
    return builtins.min(present_values(rows), key=rank, default=None)


@answer_of.register(Maximum)
def _answer_max(aggregation: Maximum, result: DataType, rows: ArgumentRows) -> Any:
    return builtins.max(present_values(rows), key=rank, default=None)


@answer_of.register(First)
def _answer_first(aggregation: First, result: DataType, rows: ArgumentRows) -> Any:
    taking_part = [(by, value) for value, by in rows if by is not None]
    return builtins.min(taking_part, key=rank)[1] if taking_part else None


@answer_of.register(Last)
def _answer_last(aggregation: Last, result: DataType, rows: ArgumentRows) -> Any:
    taking_part = [(by, value) for value, by in rows if by is not None]
    return builtins.max(taking_part, key=rank)[1] if taking_part else None


Values = list[Any]
Copies = dict[Any, int]
OrderKey = Callable[[Any], Any] | None


def add_ordered_value(group: list[Any], at: int, value: Any, weight: int) -> None:
    """Add `weight` copies of `value` to [values in order, counts, moved] at `group[at:]`.

    The values are brought up to date by `settle` or `settle_end`, once per tick. `moved` has the copies that
    there were, of each value that may have come or gone.
    """
    counts, moved = group[at + 1], group[at + 2]
    before = counts.get(value, 0)
    if value not in moved:
        moved[value] = before
    after = before + weight
    if after:
        counts[value] = after
    elif before:
        del counts[value]


# From so many moved values on, and this part of all, one sort is cheaper than a place for each.
_MANY, _PART = 16, 16


def settle(group: list[Any], at: int, order_key: OrderKey) -> None:
    """Update the ordered values at `group[at]`, all present values, from the counts."""
    values, counts, moved = group[at : at + 3]
    come, gone = _come_and_gone(counts, moved)
    _move(values, counts, come, gone, order_key)
    moved.clear()


def settle_end(group: list[Any], at: int, order_key: OrderKey, least: int, end: int) -> None:
    """Update the values at `group[at]`, taken from one end of the order, from the counts.

    They are `least` at least, or all that are present. end: 0 for the first values, -1 for the last.

    More are kept than asked for, so that all others are searched only once these are used up: a change costs
    the square root of their number on average, and most changes only their count.
    """
    values, counts, moved = group[at : at + 3]
    come, gone = _come_and_gone(counts, moved)
    before = len(counts) - sum((counts.get(v, 0) != 0) - (n != 0) for v, n in moved.items())
    if before != len(values):
        come, gone = (_at_end(values, each, order_key, end) for each in (come, gone))
    kept = least + _KEPT + 4 * isqrt(len(counts))
    if len(values) + len(come) > 2 * kept:
        present = (v for v in chain(values, come) if counts.get(v, 0) > 0)
        values[:] = _ends(present, kept, order_key, end)
    else:
        _move(values, counts, come, gone, order_key)
    if len(values) < least and len(values) < len(counts):
        values[:] = _ends((v for v, n in counts.items() if n > 0), kept, order_key, end)
    moved.clear()


def ends_of(counts: Copies, order_key: OrderKey, end: int) -> Values:
    """Return the values that `settle_end` keeps for these counts."""
    return _ends((v for v, n in counts.items() if n > 0), _KEPT + 4 * isqrt(len(counts)), order_key, end)


_KEPT = 256
"""Values that are kept in order, however few there are."""


def _come_and_gone(counts: Copies, moved: Copies) -> tuple[Values, Values]:
    """Return the values that have become present, and those that have become absent."""
    come: Values = []
    gone: Values = []
    for value, before in moved.items():
        present = counts.get(value, 0) > 0
        if present != (before > 0):
            (come if present else gone).append(value)
    return come, gone


def _at_end(values: Values, some: Values, order_key: OrderKey, end: int) -> Values:
    """Return the values of `some` within the range of `values`, which are at one end of the order."""
    if not values:
        return []
    key = order_key or _same
    limit = key(values[-1 - end])
    return [v for v in some if (key(v) >= limit if end else key(v) <= limit)]


def _ends(values: Iterable[Any], count: int, order_key: OrderKey, end: int) -> Values:
    """Return the first or last values, in order."""
    return nlargest(count, values, order_key)[::-1] if end else nsmallest(count, values, order_key)


def _move(values: Values, counts: Copies, come: Values, gone: Values, order_key: OrderKey) -> None:
    """Insert values into an ordered list, and remove others."""
    moved = len(come) + len(gone)
    if moved > _MANY and moved * _PART > len(values):
        # What stays is a sorted run, which the sort takes as a whole.
        values[:] = [v for v in values if counts.get(v, 0) > 0]
        values += come
        values.sort(key=order_key)
        return
    for value in come:
        values.insert(_place(values, value, order_key), value)
    for value in gone:
        del values[_place(values, value, order_key)]


def _place(values: Values, value: Any, order_key: OrderKey) -> int:
    return bisect_left(values, value if order_key is None else order_key(value), key=order_key)


def _same(value: Any) -> Any:
    return value


register_runtime(
    {
        "x_add_ordered_value": add_ordered_value,
        "x_settle": settle,
        "x_settle_end": settle_end,
    }
)


# --- accumulator -------------------------------------------------------------------------------------


class SortedValues(Extreme):
    """Function of an ordered multiset: [sorted present values, copies per value, values of this tick].

    Null if it is empty.
    """

    def __init__(self, types: ArgumentTypes, append: bool, function: str, *settings: object) -> None:
        super().__init__(types, append, 0)
        self.function = function
        self.settings = settings

    def settle(self, to: Target) -> None:
        to.code.line(f"x_settle({to.group}, {to.at}, {self.order(to)})")

    def result(self, to: Target) -> str:
        settings = (to.writer.constant("setting", setting) for setting in self.settings)
        arguments = ", ".join((to.field(0), to.field(1), *settings))
        return f"({self.function}({arguments}) if {to.field(0)} else None)"
