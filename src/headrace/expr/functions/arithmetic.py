"""Arithmetic operators: + - * / // %.

Integers keep their width and raise on overflow; `/` of integers is a float; decimals follow Spark's rules for
precision and scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import DecimalSpec
from headrace.expr.function_records import function, of_spark_columns
from headrace.expr.functions import integer_columns
from headrace.expr.functions.cast_columns import spark_time_sum
from headrace.expr.functions.integer_columns import (
    interval_product,
    of_intervals,
    time_sum,
)
from headrace.expr.functions.intervals import interval_signature, interval_source
from headrace.expr.polars_columns import (
    Bounds,
    LoweredExpression,
    bounds_of,
    dtype_of,
    lower_bounded_integer,
    spread,
)
from headrace.expr.types import (
    FLOAT32,
    FLOAT64,
    INT64,
    RANGES,
    STR,
    DataType,
    DecimalType,
    IntervalType,
)
from headrace.expr.typing_rules import (
    MAX_PRECISION,
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    Mismatch,
    Signature,
    SparkForm,
    common_type,
    decimal_of,
    is_float,
    is_integer,
    is_number,
    limit_decimal_digits,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


def overflow_checked(emitter: Emitter, source: str, type: DataType) -> str:
    """Wrap integer source so that it raises on overflow."""
    low, high = RANGES[type]
    name = emitter.fresh()
    return f"({name} if {low} <= ({name} := {source}) <= {high} else x_overflow({name}, '{type}'))"


def in_bits(type: DataType, source: str) -> str:
    """Wrap float source so that it is rounded to the width of its type."""
    return f"x_f32({source})" if type == FLOAT32 else source


def is_decimal_pair(arguments: Arguments) -> bool:
    """Return whether arithmetic on two types is decimal: one is a decimal and the other is not a float."""
    types = [a.type for a in arguments]
    return not any(map(is_float, types)) and any(isinstance(t, DecimalType) for t in types)


def common_number_type(what: str, arguments: Arguments) -> DataType:
    """Return the common type of numbers. Raises `Mismatch` for other types."""
    common = common_type(arguments)
    if not is_number(common):
        types = " and ".join(str(a.type) for a in arguments)
        raise Mismatch(f"{what} needs numbers, got {types}", fix="cast them to numbers")
    return common


DecimalRule = Callable[[DecimalType, DecimalType], DecimalType]


def _sum_type(a: DecimalType, b: DecimalType) -> DecimalType:
    scale = max(a.scale, b.scale)
    return limit_decimal_digits(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def _product_type(a: DecimalType, b: DecimalType) -> DecimalType:
    return limit_decimal_digits(a.precision + b.precision + 1, a.scale + b.scale)


def arithmetic_rule(what: str, decimals: DecimalRule) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        types = [a.type for a in arguments]
        if what == "+" and types == [STR, STR]:
            return Signature((STR, STR), STR)
        spans = interval_signature(what, arguments)
        if spans is not None:
            return spans
        _refuse_times(what, arguments)
        if is_decimal_pair(arguments):
            common_number_type(what, arguments)
            beside = next(t for t in types if isinstance(t, DecimalType))
            a, b = (beside if t.type == NULL else decimal_of(t) for t in arguments)
            return Signature((a, b), decimals(a, b))
        common = common_number_type(what, arguments)
        if what == "/":
            common = FLOAT64
        return Signature((common, common), common)

    return rule


def _refuse_times(what: str, arguments: Arguments) -> None:
    types = {str(a.type) for a in arguments}
    if types & {"date", "timestamp"}:
        raise Mismatch(
            f"{what} does not work on {' and '.join(str(a.type) for a in arguments)}",
            fix="add or subtract a timedelta; differences are micros_since, seconds_since, days_since",
        )


def _plain(symbol: str, helper: str) -> Callable[[Emitter, CallTerm, tuple[str, ...]], str]:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        a, b = operands
        spans = interval_source(symbol, call, operands)
        if spans is not None:
            return spans
        if isinstance(call.type, DecimalType):
            if not _loses_digits(symbol, *(argument.type for argument in call.arguments)):
                return _exact_decimal(emitter, symbol, a, b)
            return f"{helper}({a}, {b}, {emitter.constant(decimal_spec(call.type))})"
        if is_integer(call.type):
            return overflow_checked(emitter, f"{a} {symbol} {b}", call.type)
        return in_bits(call.type, f"({a} {symbol} {b})")

    return python


def _loses_digits(symbol: str, a: DataType, b: DataType) -> bool:
    """Return whether a decimal result may be rounded or overflow."""
    assert isinstance(a, DecimalType)
    assert isinstance(b, DecimalType)
    if symbol == "*":
        return a.precision + b.precision + 1 > MAX_PRECISION
    whole = max(a.precision - a.scale, b.precision - b.scale)
    return whole + max(a.scale, b.scale) + 1 > MAX_PRECISION


def _exact_decimal(emitter: Emitter, symbol: str, a: str, b: str) -> str:
    source = f"{_EXACT_DECIMALS[symbol]}({a}, {b})"
    if symbol != "*":
        return source
    first, again = emitter.name_value(source)
    return f"({again} if {first} else {again}.copy_abs())"


_EXACT_DECIMALS = {"+": "x_exact_add", "-": "x_exact_subtract", "*": "x_exact_multiply"}

_SHAPES: dict[DecimalType, DecimalSpec] = {}


def decimal_spec(type: DecimalType) -> DecimalSpec:
    """Return the `DecimalSpec` of a decimal type, one object per type."""
    return _SHAPES.setdefault(type, DecimalSpec.of(type))


# -- on columns -------------------------------------------------------------------------------


MIN_INT64, MAX_INT64 = RANGES[INT64]
# A product of floats is off by a few parts in 10**16; this leaves far more room below 2**63.
_SAFE = 9.2e18


def wide_integers(call: CallTerm, arguments: Sequence[LoweredExpression]) -> list[pl.Expr]:
    """Widen integer operands to 64 bits, in which narrower arithmetic cannot overflow."""
    if call.type not in RANGES or call.type == INT64:
        return [a.value for a in arguments]
    return [a.value.cast(pl.Int64) for a in arguments]


def checked_integer(call: CallTerm, exact: pl.Expr, bounds: Bounds, leaves64: pl.Expr) -> LoweredExpression:
    """Range-check a 64-bit result and cast it to the integer type of the call."""
    if call.type == INT64:
        return lower_bounded_integer(exact, bounds, INT64, lambda: leaves64)
    low, high = RANGES[call.type]
    narrow = exact.cast(dtype_of(call.type), strict=False)
    return lower_bounded_integer(narrow, bounds, call.type, lambda: (exact < low) | (exact > high))


def _add_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return time_sum(call, arguments)
    if isinstance(call.type, DecimalType):
        return integer_columns.add(call, arguments)
    a, b = wide_integers(call, arguments)
    if call.type == STR:
        return LoweredExpression(pl.concat_str([a, b]))
    if call.type not in RANGES:
        return LoweredExpression(spread(a, b, dtype_of(call.type)) + spread(b, a, dtype_of(call.type)))
    total = a + b
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    # The sum has wrapped where its sign differs from that of both operands.
    return checked_integer(call, total, (al + bl, ah + bh), ((a ^ total) & (b ^ total)) < 0)


def _subtract_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return time_sum(call, arguments)
    if isinstance(call.type, DecimalType):
        return integer_columns.subtract(call, arguments)
    a, b = wide_integers(call, arguments)
    if call.type not in RANGES:
        return LoweredExpression(spread(a, b, dtype_of(call.type)) - spread(b, a, dtype_of(call.type)))
    rest = a - b
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    return checked_integer(call, rest, (al - bh, ah - bl), ((a ^ b) & (a ^ rest)) < 0)


def _multiply_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_product(call, arguments)
    if isinstance(call.type, DecimalType):
        return integer_columns.multiply(call, arguments)
    a, b = wide_integers(call, arguments)
    if call.type not in RANGES:
        return LoweredExpression(a * b)
    corners = [x * y for x in bounds_of(arguments[0]) for y in bounds_of(arguments[1])]
    leaves = (a.cast(pl.Float64) * b.cast(pl.Float64)).abs() > _SAFE
    return checked_integer(call, a * b, (min(corners), max(corners)), leaves)


# -- on Spark ---------------------------------------------------------------------------------


def _add_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    a, b = arguments
    moved = spark_time_sum(call, arguments)
    if moved is not None:
        return moved
    return F.concat(a, b) if call.type == STR else a + b


def _subtract_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    a, b = arguments
    moved = spark_time_sum(call, arguments)
    return a - b if moved is None else moved


def tried_spark(name: str) -> SparkForm:
    """Lower arithmetic that gives null if it fails itself, but raises if its operands do.

    Of times and intervals, Spark makes a `TryEval` of it, in which operands are null, too: they are computed
    before, and an element of a list.
    """

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        if not any(isinstance(each.type, IntervalType) for each in (call, *call.arguments)):
            return F.call_function(name, *arguments)
        moved = spark_time_sum(call, arguments)
        if moved is not None:
            return moved
        a, b = arguments
        pairs = F.array(F.struct(a.alias("a"), b.alias("b")))
        return F.transform(pairs, lambda pair: F.call_function(name, pair.getField("a"), pair.getField("b")))[
            0
        ]

    return lowering


NAMES: dict[str, Any] = {}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "add",
        types=arithmetic_rule("+", _sum_type),
        code=_plain("+", "x_decimal_add"),
        fallible=True,
        arity=(2, 2),
        catalyst="Add",
        columns=_add_columns,
        spark=_add_spark,
    ),
    function(
        "subtract",
        types=arithmetic_rule("-", _sum_type),
        code=_plain("-", "x_decimal_subtract"),
        fallible=True,
        arity=(2, 2),
        catalyst="Subtract",
        columns=_subtract_columns,
        spark=_subtract_spark,
    ),
    function(
        "multiply",
        types=arithmetic_rule("*", _product_type),
        code=_plain("*", "x_decimal_multiply"),
        fallible=True,
        arity=(2, 2),
        catalyst="Multiply",
        columns=_multiply_columns,
        spark=of_spark_columns(lambda a, b: a * b),
    ),
)
