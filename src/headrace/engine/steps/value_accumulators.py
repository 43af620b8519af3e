"""Accumulators over distinct values, over all values in order, and of sums of powers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.ordered_values import numbers_of
from headrace.engine.power_sums import degrees_of, empty_sums
from headrace.engine.steps.accumulator import Accumulator, Extreme, Field, Target, accumulator_of
from headrace.expr.sort_keys import Key, order_key
from headrace.lowering.row_code import tuple_source
from headrace.lowering.slot import thaw_dict
from headrace.operators.aggregates import NullOnError, OfDistinct
from headrace.operators.moment_aggregates import Moments
from headrace.operators.value_aggregates import BitOperation, Bits, Histogram, Mode, Percentile, StringAgg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.check import TypeAndNullability
    from headrace.expr.tree import Ordering
    from headrace.expr.types import Field as SchemaField

Types = tuple["TypeAndNullability", ...]


class OnceEach(Accumulator):
    """Another accumulator, updated as values come and go: [copies per value, its fields...]."""

    merges = True

    def __init__(self, types: Types, append: bool, of: Accumulator) -> None:
        super().__init__(types, append)
        self.of = of

    def fields(self) -> tuple[Field, ...]:
        return (Field("{}", thaw_dict), *self.of.fields())

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        value = arguments[0] if len(arguments) == 1 else tuple_source(arguments)
        change = to.writer.fresh("change")
        to.code.line(f"{change} = x_count_value({to.field(0)}, {value}, {weight or '1'})")
        with to.code.block(f"if {change}:"):
            self.of.update(self._inner(to), arguments, change)

    def settle(self, to: Target) -> None:
        self.of.settle(self._inner(to))

    def result(self, to: Target) -> str:
        return self.of.result(self._inner(to))

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        with to.code.block(f"for value, copies in {fields[0]}.items():"):
            several = len(self.types) > 1
            arguments = tuple(f"value[{at}]" for at in range(len(self.types))) if several else ("value",)
            self.update(to, arguments, "copies")

    def _inner(self, to: Target) -> Target:
        return replace(to, at=to.at + 1)


class NullWhereItFails(Accumulator):
    """Another accumulator, whose result is null where it raises."""

    def __init__(self, types: Types, append: bool, of: Accumulator) -> None:
        super().__init__(types, append)
        self.of = of

    def fields(self) -> tuple[Field, ...]:
        return self.of.fields()

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        self.of.update(to, arguments, weight)

    def settle(self, to: Target) -> None:
        self.of.settle(to)

    def result(self, to: Target) -> str:
        return f"x_try(lambda: {self.of.result(to)})"

    def partial_columns(self) -> tuple[SchemaField, ...] | None:
        return self.of.partial_columns()

    def partial_values(self, to: Target) -> tuple[str, ...]:
        return self.of.partial_values(to)

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        self.of.merge(to, fields)

    def merge_partial(self, to: Target, values: Sequence[str]) -> None:
        self.of.merge_partial(to, values)


class SortedValues(Extreme):
    """Function of an ordered multiset: [sorted present values, copies per value, values of this tick].

    Null if it is empty.
    """

    def __init__(self, types: Types, append: bool, function: str, *settings: object) -> None:
        super().__init__(types, append, 0)
        self.function = function
        self.settings = settings

    def settle(self, to: Target) -> None:
        to.code.line(f"x_settle({to.group}, {to.at}, {self.order(to)})")

    def result(self, to: Target) -> str:
        settings = (to.writer.constant("setting", setting) for setting in self.settings)
        arguments = ", ".join((to.field(0), to.field(1), *settings))
        return f"({self.function}({arguments}) if {to.field(0)} else None)"


class WeightedValues(SortedValues):
    """Sorted values that come with their frequencies."""

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        value, frequency = arguments
        copies = f"x_frequency({frequency}) * ({weight or '1'})"
        to.code.line(f"x_add_ordered_value({to.group}, {to.at}, {value}, {copies})")


class SortedTexts(SortedValues):
    """Texts in an order of their own: tuples of the values ordered by, and the text."""

    def __init__(self, types: Types, append: bool, by: tuple[Ordering, ...], separator: str) -> None:
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


class PowerSums(Accumulator):
    """Statistic of sums of powers: the state of `power_sums`."""

    def __init__(self, types: Types, append: bool, aggregation: Moments) -> None:
        super().__init__(types, append)
        self.moment, self.degrees = aggregation.moment, degrees_of(aggregation.moment)

    def fields(self) -> tuple[Field, ...]:
        return tuple(Field("0") for _ in empty_sums(self.degrees))

    def update(self, to: Target, arguments: tuple[str, ...], weight: str | None) -> None:
        values = tuple_source(arguments)
        to.code.line(f"x_add_powers({to.group}, {to.at}, {self.degrees}, {values}, {weight or '1'})")

    def result(self, to: Target) -> str:
        moment = to.writer.constant("moment", self.moment)
        return f"x_statistic({to.group}, {to.at}, {self.degrees}, {moment})"

    def merge(self, to: Target, fields: Sequence[str]) -> None:
        to.code.line(f"x_merge_powers({to.group}, {to.at}, {self.degrees}, {tuple_source(tuple(fields))})")


@accumulator_of.register(OfDistinct)
def _distinct(aggregation: OfDistinct, types: Types, append: bool) -> Accumulator:
    # The count of a group's rows is not that of its distinct values: so the other one keeps its own.
    of = accumulator_of(aggregation.of, tuple(replace(typed, nullable=True) for typed in types), append)
    return OnceEach(types, append, of)


@accumulator_of.register(NullOnError)
def _null_on_error(aggregation: NullOnError, types: Types, append: bool) -> Accumulator:
    return NullWhereItFails(types, append, accumulator_of(aggregation.of, types, append))


@accumulator_of.register(Percentile)
def _percentile(aggregation: Percentile, types: Types, append: bool) -> Accumulator:
    how = aggregation.at, aggregation.discrete, aggregation.descending
    kind = SortedValues if aggregation.frequency is None else WeightedValues
    return kind(types, append, "x_percentiles", *how)


@accumulator_of.register(Histogram)
def _histogram(aggregation: Histogram, types: Types, append: bool) -> Accumulator:
    return SortedValues(types, append, "x_histogram", aggregation.bins, *numbers_of(types[0].type))


@accumulator_of.register(Mode)
def _mode(aggregation: Mode, types: Types, append: bool) -> Accumulator:
    return SortedValues(types, append, "x_mode", aggregation.greatest)


@accumulator_of.register(StringAgg)
def _string_agg(aggregation: StringAgg, types: Types, append: bool) -> Accumulator:
    return SortedTexts(types, append, aggregation.by, aggregation.separator)


@accumulator_of.register(Bits)
def _bits(aggregation: Bits, types: Types, append: bool) -> Accumulator:
    return SortedValues(types, append, _BITS[aggregation.operation])


_BITS = {BitOperation.AND: "x_bits_and", BitOperation.OR: "x_bits_or", BitOperation.XOR: "x_bits_xor"}


@accumulator_of.register(Moments)
def _moments(aggregation: Moments, types: Types, append: bool) -> Accumulator:
    return PowerSums(types, append, aggregation)
