"""Accumulators: where an aggregate keeps its state in a group's list, and the code to update and read it.

A group is one list: [rows, last answer, fields...]. An accumulator owns consecutive fields, starting at `at`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, ClassVar

from headrace.engine.float_totals import FLOAT_PARTS
from headrace.expr.check import TypeAndNullability, check
from headrace.expr.sort_keys import Key, order_key
from headrace.expr.types import INT64, DecimalType, IntervalType, StructType
from headrace.expr.types import Field as SchemaField
from headrace.expr.typing_rules import is_float
from headrace.lowering.row_code import weight_product
from headrace.lowering.slot import Thaw, as_it_is, thaw_dict, thaw_list
from headrace.operators.aggregates import (
    Aggregation,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    OfDistinct,
    Sum,
    decimal_mean_type,
    decimal_sum_type,
)
from headrace.operators.value_aggregates import StringAgg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.lowering.generated_source import SourceCode
    from headrace.lowering.step_writer import StepWriter

WHOLE_NUMBER = DecimalType(38, 0)
"""Type of a partial sum of integers: an int in Headrace's own rows, a decimal in Spark's."""


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a group's list: source of its initial value, and its thaw."""

    initial: str
    thaw: Thaw = as_it_is


@dataclass(frozen=True, slots=True)
class Target:
    """Destination of an accumulator's code: group variable, first field."""

    writer: StepWriter
    group: str
    at: int

    @property
    def code(self) -> SourceCode:
        return self.writer.code

    def field(self, offset: int) -> str:
        return f"{self.group}[{self.at + offset}]"


class Accumulator:
    """State and code of one aggregate function over one type.

    types: of the arguments. append: rows are never retracted.
    merges: values that are equal are one to it, so they come with one zero and one NaN.
    """

    merges: ClassVar[bool] = False

    def __init__(self, types: tuple[TypeAndNullability, ...], append: bool) -> None:
        self.types = types
        self.append = append

    def fields(self) -> tuple[Field, ...]:
        """Return the fields in the group's list."""
        raise NotImplementedError

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        """Write the update by one row; no argument in `arguments` is null."""
        raise NotImplementedError

    def settle(self, to: Target) -> None:
        """Write the code to run once per tick for a touched group, after all updates."""

    def result(self, to: Target) -> str:
        """Return the source of the result, for a non-empty group."""
        raise NotImplementedError

    def partial_columns(self) -> tuple[SchemaField, ...] | None:
        """Return the columns that carry the fields of a partial aggregate; None if they cannot be sent."""
        return None

    def partial_values(self, to: Target) -> tuple[str, ...]:
        """Return the sources of the values that carry the fields of a partial aggregate."""
        return tuple(to.field(number) for number in range(len(self.fields())))

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        """Write code that merges another group's fields, given as sources, into those of `to`.

        Only for groups whose rows are never retracted.
        """
        raise NotImplementedError(type(self).__name__)

    def merge_partial(self, to: Target, values: Sequence[str]) -> None:
        """Write code that merges `partial_values` of another group, as `merge` does."""
        self.merge(to, values)


def _plus(field: str, amount: str, weight: str | None) -> str:
    if weight == "-1":
        return f"{field} -= {amount}"
    return (
        f"{field} += {amount if weight in (None, '1') else weight_product(_factor(amount), _factor(weight))}"
    )


def _factor(source: str | None) -> str:
    assert source is not None
    return source if source.isidentifier() or source.isdigit() else f"({source})"


class CountRows(Accumulator):
    """Accumulator of count() over rows, which reads the group's own count."""

    def fields(self) -> tuple[Field, ...]:
        return ()

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        pass

    def result(self, to: Target) -> str:
        return f"{to.group}[0]"

    def partial_columns(self) -> tuple[SchemaField, ...]:
        return ()

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        pass


class CountValues(Accumulator):
    def fields(self) -> tuple[Field, ...]:
        return (Field("0"),)

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        to.code.line(_plus(to.field(0), "1", weight))

    def result(self, to: Target) -> str:
        return to.field(0)

    def partial_columns(self) -> tuple[SchemaField, ...]:
        return (SchemaField("values", INT64),)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"{to.field(0)} += {fields[0]}")


class Totals(Accumulator):
    """Base of sum and mean: [total], or [total, number of non-null values]."""

    def total_fields(self) -> tuple[Field, ...]:
        return (Field("0"),)

    def fields(self) -> tuple[Field, ...]:
        counted = (Field("0"),) if self.types[0].nullable else ()
        return self.total_fields() + counted

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        self.add(to, arguments[0], weight)
        if self.types[0].nullable:
            to.code.line(_plus(to.field(len(self.total_fields())), "1", weight))

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(_plus(to.field(0), value, weight))

    def count(self, to: Target) -> str:
        return to.field(len(self.total_fields())) if self.types[0].nullable else f"{to.group}[0]"

    def total(self, to: Target) -> str:
        raise NotImplementedError

    def result(self, to: Target) -> str:
        if self.types[0].nullable:
            return f"({self.total(to)} if {self.count(to)} > 0 else None)"
        return self.total(to)

    def total_parts(self) -> tuple[SchemaField, ...]:
        return (SchemaField("total", WHOLE_NUMBER),)

    def partial_columns(self) -> tuple[SchemaField, ...]:
        counted = (SchemaField("values", INT64),) if self.types[0].nullable else ()
        return self.total_parts() + counted

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        self.merge_total(to, fields)
        if self.types[0].nullable:
            to.code.line(f"{to.field(len(self.total_fields()))} += {fields[-1]}")

    def merge_total(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"{to.field(0)} += int({fields[0]})")


class IntSum(Totals):
    def total(self, to: Target) -> str:
        total = to.field(0)
        return f"({total} if {-(2**63)} <= {total} < {2**63} else x_int64_overflow())"


class IntMean(Totals):
    def total(self, to: Target) -> str:
        return f"{to.field(0)} / {self.count(to)}"


class FloatTotals(Totals):
    """Exact float totals: [numerator, denominator, nan, +inf, -inf], so that removal leaves no error."""

    def total_fields(self) -> tuple[Field, ...]:
        return (Field("0"), Field("1"), Field("0"), Field("0"), Field("0"))

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(f"x_float_add({to.group}, {to.at}, {value}, {weight or '1'})")

    def total_parts(self) -> tuple[SchemaField, ...]:
        names = (*(f"part {at}" for at in range(FLOAT_PARTS)), "less", "nan", "up", "down")
        return tuple(SchemaField(name, INT64) for name in names)

    def partial_values(self, to: Target) -> tuple[str, ...]:
        parts = to.writer.fresh("parts")
        to.code.line(f"{parts} = x_float_parts({to.group}, {to.at})")
        own = (f"{parts}[{at}]" for at in range(FLOAT_PARTS + 1))
        return (*own, *(to.field(number) for number in range(2, len(self.fields()))))

    def merge_total(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"x_float_merge({to.group}, {to.at}, {', '.join(fields[:5])})")

    def merge_partial(self, to: Target, values: Sequence[str]) -> None:
        total = len(self.total_parts())
        to.code.line(f"x_float_merge_parts({to.group}, {to.at}, {', '.join(values[:total])})")
        for value in values[total:]:
            to.code.line(f"{to.field(len(self.total_fields()))} += {value}")


class FloatSum(FloatTotals):
    def total(self, to: Target) -> str:
        return f"x_float_sum({to.group}, {to.at})"


class FloatMean(FloatTotals):
    def total(self, to: Target) -> str:
        return f"x_float_sum({to.group}, {to.at}, {self.count(to)})"


class DecimalTotals(Totals):
    """Decimal totals as integers in units of the last digit."""

    def __init__(self, types: tuple[TypeAndNullability, ...], append: bool) -> None:
        super().__init__(types, append)
        argument = types[0].type
        assert isinstance(argument, DecimalType)
        self.argument, self.scale = argument, argument.scale

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(_plus(to.field(0), f"x_unscaled({value}, {self.scale})", weight))


class DecimalSum(DecimalTotals):
    def total(self, to: Target) -> str:
        out = decimal_sum_type(self.argument)
        return f"x_decimal_of({to.field(0)}, {out.precision}, {out.scale})"


class DecimalMean(DecimalTotals):
    def total(self, to: Target) -> str:
        out = decimal_mean_type(self.argument)
        numbers = f"{self.scale}, {out.precision}, {out.scale}"
        return f"x_decimal_mean({to.field(0)}, {self.count(to)}, {numbers})"


class IntervalTotals(Totals):
    """Totals of intervals, in microseconds."""

    def add(self, to: Target, value: str, weight: str | None) -> None:
        to.code.line(_plus(to.field(0), f"x_micros({value})", weight))


class IntervalSum(IntervalTotals):
    def total(self, to: Target) -> str:
        return f"x_interval_of({to.field(0)})"


class IntervalMean(IntervalTotals):
    def total(self, to: Target) -> str:
        return f"x_interval_mean({to.field(0)}, {self.count(to)})"


def _extreme_key(types: tuple[TypeAndNullability, ...]) -> Key | None:
    """Return the order of values, or of pairs (by, value). What orders the rows is not null."""
    if len(types) == 1:
        return order_key(types[0].type, False)
    value, by = types
    pair = (SchemaField("by", by.type, nullable=False), SchemaField("value", value.type, value.nullable))
    return order_key(StructType(pair), False)


class AppendExtreme(Accumulator):
    """Extreme of values that are never retracted: [value], or [by, value] of the extreme pair."""

    merges = True

    def __init__(self, types: tuple[TypeAndNullability, ...], append: bool, sign: str) -> None:
        super().__init__(types, append)
        self.sign = sign

    def fields(self) -> tuple[Field, ...]:
        return (Field("None"),) * len(self.types)

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

    def partial_columns(self) -> tuple[SchemaField, ...]:
        names = ("by", "best")[-len(self.types) :]
        pairs = zip(names, reversed(self.types), strict=True)
        return tuple(SchemaField(name, of.type, nullable=True) for name, of in pairs)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"if {fields[0]} is not None:"):
            self.update(to, tuple(fields[::-1]), None)


class Extreme(Accumulator):
    """Extreme with retractions: [values at that end, in order, copies per value, values of this tick]."""

    merges = True

    def __init__(self, types: tuple[TypeAndNullability, ...], append: bool, end: int) -> None:
        super().__init__(types, append)
        self.end = end

    def fields(self) -> tuple[Field, ...]:
        return (Field("[]", thaw_list), Field("{}", thaw_dict), Field("{}", thaw_dict))

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


class DistinctValues(Accumulator):
    """Distinct count: [copies per value, number of present values]."""

    merges = True

    def fields(self) -> tuple[Field, ...]:
        return (Field("{}", thaw_dict), Field("0"))

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        to.code.line(f"{to.field(1)} += x_count_value({to.field(0)}, {arguments[0]}, {weight or '1'})")

    def result(self, to: Target) -> str:
        return to.field(1)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for value, copies in {fields[0]}.items():"):
            to.code.line(f"{to.field(1)} += x_count_value({to.field(0)}, value, copies)")


class CollectedValues(Accumulator):
    """Collected values: copies per value; the result is rebuilt when the group changes."""

    merges = True

    def fields(self) -> tuple[Field, ...]:
        return (Field("{}", thaw_dict),)

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        to.code.line(f"x_count_value({to.field(0)}, {arguments[0]}, {weight or '1'})")

    def result(self, to: Target) -> str:
        key = order_key(self.types[0].type, False)
        order = "None" if key is None else to.writer.constant("order", key)
        return f"x_collected({to.field(0)}, {order})"

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for value, copies in {fields[0]}.items():"):
            to.code.line(f"x_count_value({to.field(0)}, value, copies)")


def accumulator_for(aggregation: Aggregation, schema: Schema, append: bool) -> Accumulator:
    """Create the accumulator of an aggregate function over rows of `schema`."""
    types = tuple(check(expr, schema) for expr in aggregation.arguments())
    return accumulator_of(aggregation, types, append)


@singledispatch
def accumulator_of(
    aggregation: Aggregation, types: tuple[TypeAndNullability, ...], append: bool
) -> Accumulator:
    """Create the accumulator of an aggregate function over arguments of these types."""
    match aggregation:
        case Count():
            return CountValues(types, append) if types and types[0].nullable else CountRows((), append)
        case Sum() | Mean():
            means = isinstance(aggregation, Mean)
            if isinstance(types[0].type, DecimalType):
                return (DecimalMean if means else DecimalSum)(types, append)
            if is_float(types[0].type):
                return (FloatMean if means else FloatSum)(types, append)
            if isinstance(types[0].type, IntervalType):
                return (IntervalMean if means else IntervalSum)(types, append)
            return (IntMean if means else IntSum)(types, append)
        case Min() | Max() | First() | Last():
            least = isinstance(aggregation, Min | First)
            if append:
                return AppendExtreme(types, append, "<" if least else ">")
            return (Extreme if len(types) == 1 else ExtremeBy)(types, append, 0 if least else -1)
        case CountDistinct():
            return DistinctValues(types, append)
        case Collect():
            return CollectedValues(types, append)
        case _:
            raise NotImplementedError(f"the in-process engine cannot compute {type(aggregation).__name__}")


def null_skips(aggregation: Aggregation) -> tuple[bool, ...]:
    """Return whether rows with a null argument are skipped, per argument."""
    if isinstance(aggregation, OfDistinct):
        return null_skips(aggregation.of)
    if isinstance(aggregation, First | Last):
        return (False, True)
    if isinstance(aggregation, StringAgg):
        return (True, *(False for _ in aggregation.by))
    return (True,) * len(aggregation.arguments())


def all_partial_columns(
    aggregations: Sequence[Aggregation], schema: Schema, *, appends: bool
) -> list[SchemaField] | None:
    """Return the columns of all partial states of a group's aggregates; None if a state cannot be sent."""
    found: list[SchemaField] = []
    for number, aggregation in enumerate(aggregations):
        parts = accumulator_for(aggregation, schema, appends).partial_columns()
        if parts is None:
            return None
        found.extend(SchemaField(f"{part.name} {number}", part.type, part.nullable) for part in parts)
    return found
