"""Columns computed on integers: decimals on unscaled values, times on microseconds.

An unscaled decimal has 128 bits in Polars, and no end in rows. Times and intervals are days and microseconds
since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from headrace.expr.polars_columns import (
    Bounds,
    LoweredExpression,
    Lowering,
    NotLowered,
    bounds_of,
    dtype_of,
    either_condition,
    quotient,
)
from headrace.expr.types import (
    DATE,
    INT64,
    INTERVAL_UNITS,
    RANGES,
    DataType,
    DecimalType,
    IntegerType,
    IntervalType,
)
from headrace.expr.typing_rules import CallTerm
from headrace.requirements import pl

_MOST = 2**126
_QUOTIENT_DIGITS = 39
_EXACT_FLOATS, _EXACT_POWERS = 2**53, 22
"""Integers up to the one, and powers of ten up to the other, are floats."""


def whole(number: int) -> pl.Expr:
    """Return a 128-bit integer constant."""
    return pl.lit(number, dtype=pl.Int128())


def unscaled(decimal: LoweredExpression) -> LoweredExpression:
    """Convert a decimal to its unscaled integer."""
    return replace(decimal, value=decimal.value.to_physical())


def _scale_of(type: DataType) -> int:
    assert isinstance(type, DecimalType)
    return type.scale


def _greatest(bounds: Bounds) -> int:
    return max(abs(bounds[0]), abs(bounds[1]))


def _limited(a: LoweredExpression, most: int) -> LoweredExpression:
    """Mark the rows in which an integer exceeds `most`, unless its bounds exclude that.

    It is null there: Polars raises for the digits of a decimal, also where nobody asks for the value.
    """
    low, high = bounds_of(a)
    if _greatest((low, high)) <= most:
        return a
    within = a.value.is_between(whole(-most), whole(most))
    value = pl.when(within).then(a.value)
    return LoweredExpression(value, (max(low, -most), min(high, most)), either_condition(a.fails, ~within))


def lengthened(a: LoweredExpression, digits: int) -> LoweredExpression:
    """Multiply by a power of ten."""
    if digits == 0:
        return a
    step = 10**digits
    a = _limited(a, _MOST // step)
    low, high = bounds_of(a)
    if step >= _MOST:  # of what is left, which is 0
        return a
    return LoweredExpression(a.value * whole(step), (low * step, high * step), a.fails)


def _none_but(value: pl.Expr, number: int) -> pl.Expr:
    """Return a constant column that is null wherever `value` is null."""
    return pl.when(value.is_not_null()).then(whole(number))


def divided(a: LoweredExpression, digits: int, *, even: bool = False) -> LoweredExpression:
    """Divide by a power of ten, rounding half away from zero, or to even."""
    if digits == 0:
        return a
    if digits > 38:
        return LoweredExpression(_none_but(a.value, 0), (0, 0), a.fails)
    a = _limited(a, _MOST)
    low, high = bounds_of(a)
    step = 10**digits
    half = step // 2

    def rounded(number: int) -> int:
        return (abs(number) + half) // step * (1 if number >= 0 else -1)

    value = a.value + whole(half)
    if low < 0:  # a half is rounded down there
        value = value - (a.value < 0).cast(pl.Int128)
    value = value // whole(step)
    if even:
        twice = whole(2) * (a.value % whole(step))
        value = value - ((twice == whole(step)) & (value % whole(2) != 0)).cast(pl.Int128) * (
            pl.when(a.value < 0).then(whole(-1)).otherwise(whole(1))
        )
    return LoweredExpression(value, (rounded(low), rounded(high)), a.fails)


def _towards(a: LoweredExpression, digits: int, rounding: str) -> LoweredExpression:
    """Divide by a power of ten, rounding down ("floor"), up ("ceil") or towards zero ("cut")."""
    if digits == 0:
        return a
    if digits > 37:
        raise NotLowered(f"rounding of {digits} digits has no columnar form")
    a = _limited(a, _MOST)
    low, high = bounds_of(a)
    step = 10**digits
    if rounding == "floor" or (rounding == "cut" and low >= 0):
        value = a.value
    elif rounding == "ceil":
        value = a.value + whole(step - 1)
    else:
        value = a.value + (a.value < 0).cast(pl.Int128) * whole(step - 1)
    return LoweredExpression(value // whole(step), (low // step, -(-high // step)), a.fails)


def fitting(a: LoweredExpression, scale: int, type: DataType) -> LoweredExpression:
    """Convert an unscaled integer of some scale to a decimal: rounded half up; fails for too many digits."""
    assert isinstance(type, DecimalType)
    digits = type.scale - scale
    a = lengthened(a, digits) if digits >= 0 else divided(a, -digits)
    a = _limited(a, 10**type.precision - 1)
    return replace(a, value=a.value.reinterpret(dtype=dtype_of(type)))


def _pair(call: CallTerm, arguments: Sequence[LoweredExpression]) -> tuple[LoweredExpression, ...]:
    """Return the unscaled operands, without the failures that the caller of a strict function adds."""
    return tuple(replace(unscaled(each), fails=None) for each in arguments)


def _aligned(call: CallTerm, arguments: Sequence[LoweredExpression]) -> tuple[LoweredExpression, ...]:
    """Return the operands as integers of the greater scale of the two."""
    scale = _common_scale(call)
    pair = zip(_pair(call, arguments), call.arguments, strict=True)
    return tuple(lengthened(each, scale - _scale_of(term.type)) for each, term in pair)


def _common_scale(call: CallTerm) -> int:
    return max(_scale_of(term.type) for term in call.arguments)


def add(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    a, b = _aligned(call, arguments)
    (al, ah), (bl, bh) = bounds_of(a), bounds_of(b)
    total = LoweredExpression(a.value + b.value, (al + bl, ah + bh), either_condition(a.fails, b.fails))
    return fitting(total, _common_scale(call), call.type)


def subtract(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    a, b = _aligned(call, arguments)
    (al, ah), (bl, bh) = bounds_of(a), bounds_of(b)
    rest = LoweredExpression(a.value - b.value, (al - bh, ah - bl), either_condition(a.fails, b.fails))
    return fitting(rest, _common_scale(call), call.type)


def multiply(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    # Rows keep 39 digits of a product, and one of 126 bits has no more.
    a, b = _pair(call, arguments)
    corners = [x * y for x in bounds_of(a) for y in bounds_of(b)]
    product = LoweredExpression(a.value * b.value, (min(corners), max(corners)))
    if _greatest(bounds_of(product)) > _MOST:
        about = a.value.cast(pl.Float64) * b.value.cast(pl.Float64)
        beyond = about.abs() > 0.99 * _MOST
        product = LoweredExpression(pl.when(~beyond).then(product.value), (-_MOST, _MOST), beyond)
    scale = sum(_scale_of(term.type) for term in call.arguments)
    return fitting(product, scale, call.type)


def divide(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    a, b = _pair(call, arguments)
    scale = _scale_of(call.type)
    digits = scale + _scale_of(call.arguments[1].type) - _scale_of(call.arguments[0].type)
    top, bottom = lengthened(a, max(digits, 0)), lengthened(b, max(-digits, 0))
    # Rows round at 39 digits, and then to the scale: the same, unless the divisor has so many digits that
    # a quotient can be nearer to a half than that.
    bottom = _limited(bottom, 10 ** (_QUOTIENT_DIGITS - scale) - 1)
    dividend, divisor = top.value.abs(), bottom.value.abs()
    quotient = dividend // divisor
    rounded = quotient + (whole(2) * (dividend - quotient * divisor) >= divisor).cast(pl.Int128)
    negative = (top.value < 0) != (bottom.value < 0)
    most = _greatest(bounds_of(top)) + 1
    fails = either_condition(top.fails, bottom.fails, b.value == 0)
    value = pl.when(negative).then(whole(0) - rounded).otherwise(rounded)
    return fitting(LoweredExpression(value, (-most, most), fails), scale, call.type)


def _remainder(
    call: CallTerm, arguments: Sequence[LoweredExpression]
) -> tuple[pl.Expr, pl.Expr, pl.Expr | None, int]:
    """Return the remainder with the dividend's sign, the divisor, the failures, and the greatest size."""
    a, b = _aligned(call, arguments)
    rest = a.value.abs() % b.value.abs()
    signed = pl.when(a.value < 0).then(whole(0) - rest).otherwise(rest)
    fails = either_condition(a.fails, b.fails, b.value == 0)
    return signed, b.value, fails, min(_greatest(bounds_of(a)), _greatest(bounds_of(b)))


def modulo(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    rest, _, fails, most = _remainder(call, arguments)
    return fitting(LoweredExpression(rest, (-most, most), fails), _common_scale(call), call.type)


def pmod(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    rest, divisor, fails, _ = _remainder(call, arguments)
    value = pl.when((rest < 0) & (divisor > 0)).then(rest + divisor).otherwise(rest)
    return fitting(LoweredExpression(value, (-_MOST, _MOST), fails), _common_scale(call), call.type)


def negate(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (a,) = _pair(call, arguments)
    low, high = bounds_of(a)
    made = LoweredExpression(whole(0) - a.value, (-high, -low))
    return fitting(made, _scale_of(call.type), call.type)


def absolute(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (a,) = _pair(call, arguments)
    made = LoweredExpression(a.value.abs(), (0, _greatest(bounds_of(a))))
    return fitting(made, _scale_of(call.type), call.type)


def whole_number(call: CallTerm, arguments: Sequence[LoweredExpression], rounding: str) -> LoweredExpression:
    """Lower `floor` or `ceil`."""
    (a,) = _pair(call, arguments)
    return fitting(_towards(a, _scale_of(call.arguments[0].type), rounding), 0, call.type)


def _digits_of(call: CallTerm) -> int:
    (digits,) = call.options
    assert isinstance(digits, int)
    return digits


def _rounded(call: CallTerm, arguments: Sequence[LoweredExpression], *, even: bool) -> LoweredExpression:
    (a,), digits = _pair(call, arguments), _digits_of(call)
    scale = _scale_of(call.arguments[0].type)
    to = max(digits, 0)
    cut = divided(a, scale - digits, even=even) if digits < scale else lengthened(a, to - scale)
    return fitting(lengthened(cut, max(-digits, 0)), to, call.type)


def round_half_up(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _rounded(call, arguments, even=False)


def round_half_even(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return _rounded(call, arguments, even=True)


def round_towards(rounding: str) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        (a,), digits = _pair(call, arguments), _digits_of(call)
        scale = _scale_of(call.arguments[0].type)
        if digits >= scale:
            return fitting(a, scale, call.type)
        cut = _towards(a, scale - digits, rounding)
        return fitting(lengthened(cut, max(-digits, 0)), max(digits, 0), call.type)

    return lowering


# -- casts -----------------------------------------------------------------------------------


def of_integer(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    bounds = a.bounds if a.bounds is not None else (0, 1)
    return fitting(LoweredExpression(a.value.cast(pl.Int128), bounds), 0, target)


def to_decimal(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    return fitting(replace(unscaled(a), fails=None), _scale_of(source), target)


def to_integer(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    low, high = RANGES[target]
    cut = _towards(replace(unscaled(a), fails=None), _scale_of(source), "cut")
    least, most = bounds_of(cut)
    fails = cut.fails
    if least < low or most > high:
        fails = either_condition(fails, (cut.value < low) | (cut.value > high))
    value = cut.value.cast(dtype_of(target), strict=False)
    return LoweredExpression(value, (max(least, low), min(most, high)), fails)


def float_of(a: LoweredExpression, scale: int) -> LoweredExpression:
    """Divide an integer by a power of ten, as a float that is rounded once."""
    exact = _limited(a, _EXACT_FLOATS)
    value = exact.value.cast(pl.Float64)
    return LoweredExpression(quotient(value, 10.0**scale) if scale else value, None, exact.fails)


def to_float(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    if _scale_of(source) > _EXACT_POWERS:
        raise NotLowered(f"a cast from {source} to {target} has no columnar form")
    return float_of(replace(unscaled(a), fails=None), _scale_of(source))


def to_bool(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    return LoweredExpression(unscaled(a).value != 0)


def decimal_constant(value: int, type: DecimalType) -> LoweredExpression:
    """Lower a decimal constant, given as its unscaled integer."""
    return LoweredExpression(whole(value).reinterpret(dtype=dtype_of(type)), (value, value))


MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
FIRST_MICROSECOND = (datetime.min - _EPOCH) // MICROSECOND
LAST_MICROSECOND = (datetime.max - _EPOCH) // MICROSECOND
_FIRST_DAY, _LAST_DAY = (date.min - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days


def count_of(value: pl.Expr) -> pl.Expr:
    """Convert a date to days, or a timestamp to microseconds, since 1970; an interval to microseconds."""
    return value.to_physical().cast(pl.Int64)


def moment(count: pl.Expr, type: DataType) -> LoweredExpression:
    """Convert a count from `count_of` to a date or timestamp; fails outside the years 1 to 9999."""
    first, last = (_FIRST_DAY, _LAST_DAY) if type == DATE else (FIRST_MICROSECOND, LAST_MICROSECOND)
    outside = (count < first) | (count > last)
    if type != DATE:
        return LoweredExpression(count.cast(pl.Datetime("us")), None, outside)
    return LoweredExpression(count.cast(pl.Int32, strict=False).cast(pl.Date), None, outside)


_DAY = INTERVAL_UNITS[0]
SAFE_FLOAT = 9.2e18
"""Cut to whole numbers, floats below this are far from the ends of int64."""


def of_intervals(call: CallTerm) -> bool:
    """Return whether an arithmetic call involves intervals."""
    return any(isinstance(term.type, IntervalType) for term in (call, *call.arguments))


def _span(micros: pl.Expr, fails: pl.Expr | None) -> LoweredExpression:
    return LoweredExpression(micros.cast(pl.Duration("us")), None, fails)


def sum_of_counts(a: pl.Expr, b: pl.Expr) -> LoweredExpression:
    """Add microseconds of intervals; fails beyond 64 bits."""
    total = a + b
    # The sum has wrapped where its sign differs from that of both operands.
    return _span(total, ((a ^ total) & (b ^ total)) < 0)


def _difference(a: pl.Expr, b: pl.Expr) -> LoweredExpression:
    rest = a - b
    return _span(rest, ((a ^ b) & (a ^ rest)) < 0)


def time_sum(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower a sum or difference that involves intervals."""
    (a, b), plus = (count_of(one.value) for one in arguments), call.function.name == "add"
    first, second = (isinstance(argument.type, IntervalType) for argument in call.arguments)
    if first and second:
        return (sum_of_counts if plus else _difference)(a, b)
    if isinstance(call.type, IntervalType):
        # The times of a calendar are close together.
        return _span((a - b) * (_DAY if call.arguments[0].type == DATE else 1), None)
    count, step = (b, a) if first else (a, b)
    if call.type == DATE:
        step = count_of(cut_to_step(step, _DAY)) // _DAY
    # What wraps in 64 bits is not within the years either.
    return moment(count + step if plus else count - step, call.type)


def interval_product(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower the product of an interval and a whole number."""
    if not any(isinstance(argument.type, IntegerType) for argument in call.arguments):
        raise NotLowered("an interval times a fraction has no columnar form")
    a, b = (count_of(one.value) for one in arguments)
    return _span(a * b, (a.cast(pl.Float64) * b.cast(pl.Float64)).abs() > SAFE_FLOAT)


def interval_sign(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower the negation or the absolute value of an interval."""
    micros = count_of(arguments[0].value)
    return _span(-micros if call.function.name == "negate" else micros.abs(), micros == RANGES[INT64][0])


def cut_to_step(span: pl.Expr, step: int) -> pl.Expr:
    """Truncate towards zero to a multiple of a step in microseconds."""
    micros = count_of(span)
    rest = micros % step
    rest = pl.when((rest != 0) & (micros < 0)).then(rest - step).otherwise(rest)
    return (micros - rest).cast(pl.Duration("us"))
