"""Aggregates that combine all values of a group: lists, joined text, combined bits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check, check_ordered
from headrace.expr.types import STR, DataType, Field, ListType, Schema
from headrace.expr.typing_rules import is_integer
from headrace.expr.value_keys import Key, order_key
from headrace.lowering.generated_source import register_runtime
from headrace.lowering.reference import rank
from headrace.lowering.row_code import tuple_source
from headrace.lowering.slot import thaw_dict
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
from headrace.operators.aggregate.counts import of_distinct
from headrace.operators.aggregate.extremes import Copies, SortedValues, Values
from headrace.operators.over.window_function import orderings_of
from headrace.requirements import F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from headrace.expr.tree import Expr, Ordering
    from headrace.operators.aggregate.extremes import OrderKey


class Collect(ValueAggregation):
    """Sorted list of the non-null values, duplicates included."""

    __slots__ = ()

    distinct_on_spark: ClassVar[bool] = True

    def field(self, name: str, schema: Schema) -> Field:
        return Field(name, ListType(check(self.expr, schema).type))

    @property
    def of_no_rows(self) -> tuple[()]:
        return ()


@dataclass(frozen=True, slots=True)
class StringAgg(Aggregation):
    """Text of all values, ordered by `by` and then by themselves; null if there are no values."""

    distinct_on_spark: ClassVar[bool] = True
    expr: Expr
    separator: str = ""
    by: tuple[Ordering, ...] = ()

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr, *(ordering.expr for ordering in self.by))

    def skips_null(self) -> tuple[bool, ...]:
        return (True, *(False for _ in self.by))

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        if typed.type != STR:
            raise WrongType(
                f"string_agg needs text, got {typed.type}: {self.expr}",
                where=[SourceLocation.of_caller()],
                fix="cast(str) it, or use collect",
            )
        for ordering in self.by:
            check_ordered(ordering.expr, schema)
        return Field(name, STR, typed.nullable)

    def __str__(self) -> str:
        by = f", by {', '.join(map(str, self.by))}" if self.by else ""
        return f"string_agg({self.expr}, {self.separator!r}{by})"


class BitOperation(Enum):
    """Operation by which `Bits` combines integers."""

    AND = "and"
    OR = "or"
    XOR = "xor"


@dataclass(frozen=True, slots=True)
class Bits(Aggregation):
    """Bitwise combination of integers; null if there are no values."""

    distinct_on_spark: ClassVar[bool] = True
    expr: Expr
    operation: BitOperation

    def arguments(self) -> tuple[Expr, ...]:
        return (self.expr,)

    def field(self, name: str, schema: Schema) -> Field:
        typed = check(self.expr, schema)
        if not is_integer(typed.type):
            raise WrongType(
                f"bit_{self.operation.value} needs integers, got {typed.type}: {self.expr}",
                where=[SourceLocation.of_caller()],
                fix="cast(int) it",
            )
        return Field(name, typed.type, typed.nullable)

    def __str__(self) -> str:
        return f"bit_{self.operation.value}({self.expr})"


def collect(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Sorted list of the non-null values, or of the distinct ones."""
    return of_distinct(Collect(expr), distinct)


def string_agg(
    expr: Expr,
    separator: str = "",
    *,
    order_by: str | Expr | Ordering | Sequence[str | Expr | Ordering] = (),
    distinct: bool = False,
) -> Aggregation:
    """Text of all values of an expression, ordered by `order_by` and then by themselves.

    distinct: of equal texts with an equal order, one counts.
    """
    return of_distinct(StringAgg(expr, separator, orderings_of(order_by)), distinct)


def bit_and(expr: Expr) -> Bits:
    """Bits that are set in all values of an integer expression."""
    return Bits(expr, BitOperation.AND)


def bit_or(expr: Expr) -> Bits:
    """Bits that are set in any value of an integer expression."""
    return Bits(expr, BitOperation.OR)


def bit_xor(expr: Expr, *, distinct: bool = False) -> Aggregation:
    """Bits that are set in an odd number of values of an integer expression."""
    return of_distinct(Bits(expr, BitOperation.XOR), distinct)


# --- accumulators ------------------------------------------------------------------------------------


class CollectedValues(Accumulator):
    """Collected values: copies per value; the result is rebuilt when the group changes."""

    merges = True

    def fields(self) -> tuple[StateField, ...]:
        return (StateField("{}", thaw_dict),)

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        to.code.line(f"x_count_value({to.field(0)}, {arguments[0]}, {weight or '1'})")

    def result(self, to: Target) -> str:
        key = order_key(self.types[0].type, False)
        order = "None" if key is None else to.writer.constant("order", key)
        return f"x_collected({to.field(0)}, {order})"

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for value, copies in {fields[0]}.items():"):
            to.code.line(f"x_count_value({to.field(0)}, value, copies)")


class SortedTexts(SortedValues):
    """Texts in a separate order, stored as tuples of the ordering values and the text."""

    def __init__(self, types: ArgumentTypes, append: bool, by: tuple[Ordering, ...], separator: str) -> None:
        super().__init__(types, append, "x_joined_text", separator)
        self.by = by

    def key(self) -> Key | None:
        of_text, *of_by = self.types
        keys = [
            order_key(typed.type, typed.nullable, ordering.descending)
            for typed, ordering in zip(of_by, self.by, strict=True)
        ]
        keys.append(order_key(of_text.type, False))
        if not any(keys):
            return None

        def key(value: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(v if k is None else k(v) for k, v in zip(keys, value, strict=True))

        return key

    def value(self, arguments: tuple[str, ...]) -> str:
        return tuple_source((*arguments[1:], arguments[0]))


@accumulator_of.register(Collect)
def _accumulate_collect(aggregation: Collect, types: ArgumentTypes, append: bool) -> Accumulator:
    return CollectedValues(types, append)


@accumulator_of.register(StringAgg)
def _accumulate_string_agg(aggregation: StringAgg, types: ArgumentTypes, append: bool) -> Accumulator:
    return SortedTexts(types, append, aggregation.by, aggregation.separator)


@accumulator_of.register(Bits)
def _accumulate_bits(aggregation: Bits, types: ArgumentTypes, append: bool) -> Accumulator:
    return SortedValues(types, append, f"x_bits_{aggregation.operation.value}")


def collected(counts: dict[Any, int], order_key: OrderKey) -> tuple[Any, ...]:
    """Return all present values in ascending order, with repetitions."""
    values = sorted((v for v, n in counts.items() if n > 0), key=order_key)
    return tuple(v for v in values for _ in range(counts[v]))


def joined_text(values: Values, copies: Copies, separator: str) -> str:
    """Join the texts that are the last items of tuples."""
    return separator.join(value[-1] for value in values for _ in range(copies[value]))


def bits_and(values: Values, copies: Copies) -> int:
    """Return the bits that are set in all values of a non-empty multiset."""
    found: int = values[0]
    for value in values:
        found &= value
    return found


def bits_or(values: Values, copies: Copies) -> int:
    """Return the bits that are set in any value."""
    found = 0
    for value in values:
        found |= value
    return found


def bits_xor(values: Values, copies: Copies) -> int:
    """Return the bits that are set in an odd number of values."""
    found = 0
    for value in values:
        if copies[value] % 2:
            found ^= value
    return found


register_runtime(
    {
        "x_collected": collected,
        "x_joined_text": joined_text,
        "x_bits_and": bits_and,
        "x_bits_or": bits_or,
        "x_bits_xor": bits_xor,
    }
)


# --- on Spark ----------------------------------------------------------------------------------------


@measure.register(Collect)
def _measure_collect(aggregation: Collect, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.values(),), F.sort_array)


@measure.register(StringAgg)
def _measure_string_agg(aggregation: StringAgg, to: AggregateArguments) -> NativeAggregates:
    text, by = to.names[0], tuple(zip(to.names[1:], aggregation.by, strict=True))

    def compare(one: Column, other: Column) -> Column:
        found = _compare(one.getField(text), other.getField(text))
        for name, ordering in reversed(by):
            sides = (other, one) if ordering.descending else (one, other)
            of_this = _compare(*(side.getField(name) for side in sides))
            found = F.when(of_this != 0, of_this).otherwise(found)
        return found

    def answer(rows: Column) -> Column:
        texts = F.transform(F.array_sort(rows, compare), lambda row: row.getField(text))
        return F.when(F.size(rows) > 0, F.array_join(texts, aggregation.separator))

    rows = F.when(to.columns[0].isNotNull(), F.struct(*to.columns))
    return NativeAggregates((to.collect(rows),), answer)


def _compare(one: Column, other: Column) -> Column:
    """Compare two values, null first: -1, 0 or 1."""
    less = (one.isNull() & other.isNotNull()) | F.coalesce(one < other, F.lit(False))
    same = one.eqNullSafe(other)
    return F.when(same, F.lit(0)).when(less, F.lit(-1)).otherwise(F.lit(1))


@measure.register(Bits)
def _measure_bits(aggregation: Bits, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.sql(f"bit_{aggregation.operation.value}({{of}} {{0}})"),))


# --- reference answers -------------------------------------------------------------------------------


@answer_of.register(Collect)
def _answer_collect(aggregation: Collect, result: DataType, rows: ArgumentRows) -> Any:
    return tuple(sorted(present_values(rows), key=rank))


@answer_of.register(StringAgg)
def _answer_string_agg(aggregation: StringAgg, result: DataType, rows: ArgumentRows) -> Any:
    there = sorted((row for row in rows if row[0] is not None), key=lambda row: rank(row[0]))
    for at, ordering in reversed(list(enumerate(aggregation.by, 1))):
        there.sort(key=lambda row, at=at: rank(row[at]), reverse=ordering.descending)
    return aggregation.separator.join(row[0] for row in there) if there else None


@answer_of.register(Bits)
def _answer_bits(aggregation: Bits, result: DataType, rows: ArgumentRows) -> Any:
    values = present_values(rows)
    if not values:
        return None
    total = values[0]
    for value in values[1:]:
        match aggregation.operation:
            case BitOperation.AND:
                total &= value
            case BitOperation.OR:
                total |= value
            case BitOperation.XOR:
                total ^= value
    return total
