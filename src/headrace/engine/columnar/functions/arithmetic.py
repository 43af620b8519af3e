"""Arithmetic: + - * / // %, signs, rounding to integers, least and greatest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import polars as pl

from headrace.engine.columnar.functions import decimals
from headrace.engine.columnar.functions.time import (
    count_of,
    interval_product,
    interval_sign,
    of_intervals,
    time_sum,
)
from headrace.expr.polars_columns import (
    Bounds,
    LoweredExpression,
    Lowering,
    NotLowered,
    bounds_hull,
    bounds_of,
    dtype_of,
    either_condition,
    lower_bounded_integer,
    quotient,
    spread,
)
from headrace.expr.types import INT64, RANGES, STR, DecimalType
from headrace.expr.typing_rules import CallTerm, LiteralTerm
from headrace.expr.widening import is_float

_MIN64, _MAX64 = RANGES[INT64]
# A product of floats is off by a few parts in 10**16; this leaves far more room below 2**63.
_SAFE = 9.2e18


def _wide(call: CallTerm, arguments: Sequence[LoweredExpression]) -> list[pl.Expr]:
    """Widen integer operands to 64 bits, in which narrower arithmetic cannot overflow."""
    if call.type not in RANGES or call.type == INT64:
        return [a.value for a in arguments]
    return [a.value.cast(pl.Int64) for a in arguments]


def _integer(call: CallTerm, exact: pl.Expr, bounds: Bounds, leaves64: pl.Expr) -> LoweredExpression:
    """Range-check a 64-bit result and cast it to the integer type of the call."""
    if call.type == INT64:
        return lower_bounded_integer(exact, bounds, INT64, lambda: leaves64)
    low, high = RANGES[call.type]
    narrow = exact.cast(dtype_of(call.type), strict=False)
    return lower_bounded_integer(narrow, bounds, call.type, lambda: (exact < low) | (exact > high))


def _add(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return time_sum(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimals.add(call, arguments)
    a, b = _wide(call, arguments)
    if call.type == STR:
        return LoweredExpression(pl.concat_str([a, b]))
    if call.type not in RANGES:
        return LoweredExpression(spread(a, b, dtype_of(call.type)) + spread(b, a, dtype_of(call.type)))
    total = a + b
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    # The sum has wrapped where its sign differs from that of both operands.
    return _integer(call, total, (al + bl, ah + bh), ((a ^ total) & (b ^ total)) < 0)


def _subtract(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return time_sum(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimals.subtract(call, arguments)
    a, b = _wide(call, arguments)
    if call.type not in RANGES:
        return LoweredExpression(spread(a, b, dtype_of(call.type)) - spread(b, a, dtype_of(call.type)))
    rest = a - b
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    return _integer(call, rest, (al - bh, ah - bl), ((a ^ b) & (a ^ rest)) < 0)


def _multiply(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_product(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimals.multiply(call, arguments)
    a, b = _wide(call, arguments)
    if call.type not in RANGES:
        return LoweredExpression(a * b)
    corners = [x * y for x in bounds_of(arguments[0]) for y in bounds_of(arguments[1])]
    leaves = (a.cast(pl.Float64) * b.cast(pl.Float64)).abs() > _SAFE
    return _integer(call, a * b, (min(corners), max(corners)), leaves)


def _divide(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return decimals.divide(call, arguments)
    if of_intervals(call):
        raise NotLowered("a part of an interval has no columnar form")
    a, b = (one.value for one in arguments)
    return LoweredExpression(quotient(a, b), None, b == 0.0)


def _zero(divisor: LoweredExpression) -> pl.Expr | None:
    low, high = bounds_of(divisor)
    return divisor.value == 0 if low <= 0 <= high else None


def _div(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        arguments = [LoweredExpression(count_of(one.value), (_MIN64, _MAX64)) for one in arguments]
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    a, b = (one.value for one in arguments)
    floor = a // b
    # Polars rounds down, and Spark cuts: one more where there is a rest and the signs differ.
    cut = floor if al >= 0 and bl > 0 else floor + ((floor * b != a) & ((a < 0) != (b < 0)))
    leaves = (a == _MIN64) & (b == -1) if al == _MIN64 and bl <= -1 <= bh else None
    most = max(abs(al), abs(ah))
    return LoweredExpression(
        cut, (max(-most, _MIN64), min(most, _MAX64)), either_condition(_zero(arguments[1]), leaves)
    )


def _modulo(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return decimals.modulo(call, arguments)
    if is_float(call.type):
        raise NotLowered("% of floats has no columnar form")
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    a, b = _wide(call, arguments)
    rest = a % b
    if al < 0 or bl < 0:
        # Polars gives the sign of the divisor, and Spark that of the dividend.
        rest = pl.when((rest != 0) & ((a < 0) != (b < 0))).then(rest - b).otherwise(rest)
    most = max(abs(bl), abs(bh), 1) - 1
    bounds = (-min(most, abs(al)) if al < 0 else 0, min(most, max(ah, 0)))
    value = rest if call.type == INT64 else rest.cast(dtype_of(call.type))
    return LoweredExpression(value, bounds, _zero(arguments[1]))


def _negate(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_sign(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimals.negate(call, arguments)
    (a,) = _wide(call, arguments)
    if is_float(call.type):
        return LoweredExpression(-a)
    low, high = bounds_of(arguments[0])
    return _integer(call, -a, (-high, -low), a == _MIN64)


def _abs(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_sign(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimals.absolute(call, arguments)
    (a,) = _wide(call, arguments)
    if is_float(call.type):
        return LoweredExpression(a.abs())
    low, high = bounds_of(arguments[0])
    least = 0 if low <= 0 <= high else min(abs(low), abs(high))
    return _integer(call, a.abs(), (least, max(abs(low), abs(high))), a == _MIN64)


def _whole(call: CallTerm, arguments: Sequence[LoweredExpression], *, up: bool) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return decimals.whole_number(call, arguments, "ceil" if up else "floor")
    (a,) = arguments
    if not is_float(call.arguments[0].type):
        return a
    rounded = a.value.ceil() if up else a.value.floor()
    number = a.value.is_not_nan()
    value = pl.when(number).then(rounded.cast(pl.Int64, strict=False)).when(~number).then(0)
    return LoweredExpression(value, (_MIN64, _MAX64), number & ~(rounded.abs() <= _SAFE))


def _floor(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _whole(call, arguments, up=False)


def _ceil(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _whole(call, arguments, up=True)


def _best(call: CallTerm, arguments: Sequence[LoweredExpression], *, least: bool) -> LoweredExpression:
    """Return the extreme of the operands, ignoring nulls.

    NaN is the greatest float, to comparisons of Polars as well.
    """
    values = [a.value for a in arguments]
    if is_float(call.type):  # of two constants, Polars takes -0.0 for less than 0.0
        of_rows = next(
            v for v, t in zip(values, call.arguments, strict=True) if not isinstance(t, LiteralTerm)
        )
        values = [spread(value, of_rows, dtype_of(call.type)) for value in values]

    def better(one: pl.Expr, other: pl.Expr) -> pl.Expr:
        wins = other < one if least else other > one
        return pl.when(one.is_null() | wins).then(other).otherwise(one)

    # A null that is compared is never better.
    value = reduce(better, values)
    return LoweredExpression(value, bounds_hull(arguments), either_condition(*(a.fails for a in arguments)))


def _least(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _best(call, arguments, least=True)


def _greatest(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _best(call, arguments, least=False)


LOWERINGS: Mapping[str, Lowering] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "div": _div,
    "modulo": _modulo,
    "negate": _negate,
    "abs": _abs,
    "floor": _floor,
    "ceil": _ceil,
    "least": _least,
    "greatest": _greatest,
}
