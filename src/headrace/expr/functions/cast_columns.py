"""Casts on which Polars agrees with Spark, or whose differing rows can be detected."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.expr.deferred_imports import pl
from headrace.expr.functions import decimal_columns
from headrace.expr.functions.time_columns import count_of, cut_to_step, moment
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    bounds_of,
    dtype_of,
    either_condition,
    lower_bounded_integer,
    quotient,
)
from headrace.expr.types import (
    INT64,
    INTERVAL_UNITS,
    RANGES,
    TIMESTAMP,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    StrType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.typing_rules import CallTerm

Cast = Callable[[LoweredExpression, DataType, DataType], LoweredExpression]
"""Cast of a value from a type to another one."""

# Cut to whole numbers, floats below this are far from the ends of int64.
_SAFE64 = 9.2e18
_EXACT = 2**53
_SECOND = 1_000_000
# Floats of this size, and decimals with so many digits, are written without an exponent.
_LEAST_PLAIN, _GREATEST_PLAIN = 1e-3, 1e7
PLACES = 22


def _value(of: Callable[[pl.Expr], pl.Expr]) -> Cast:
    return lambda a, source, target: LoweredExpression(of(a.value))


def _to_dtype(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(dtype_of(target)))


def _integer(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    low, high = RANGES[target]
    narrow = a.value.cast(dtype_of(target), strict=False)
    return lower_bounded_integer(narrow, bounds_of(a), target, lambda: (a.value < low) | (a.value > high))


def _int_of_bool(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    return LoweredExpression(a.value.cast(dtype_of(target)), (0, 1))


def _cut(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    low, high = RANGES[target]
    value = a.value.cast(pl.Float64)
    safe = _SAFE64 if target == INT64 else float(high - 1)
    return LoweredExpression(value.cast(dtype_of(target), strict=False), (low, high), ~(value.abs() <= safe))


# -- floats as decimals --------------------------------------------------------------------------


def _is_plain(value: pl.Expr) -> pl.Expr:
    return value.abs().is_between(_LEAST_PLAIN, _GREATEST_PLAIN, closed="left") | (value == 0.0)


def shortest_decimal(value: pl.Expr) -> LoweredExpression:
    """Return the unscaled integers of the shortest decimals of floats, with 22 places. Many sizes fail."""
    plain = _is_plain(value)
    digits = pl.when(plain).then(value).cast(pl.String).cast(pl.Decimal(38, PLACES)).to_physical()
    most = 10**7 * 10**PLACES
    return LoweredExpression(digits, (-most, most), ~plain)


def _decimal_of_float(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    made = decimal_columns.fitting(shortest_decimal(a.value), PLACES, target)
    # NaN and infinities are null, as on Spark.
    return LoweredExpression(made.value, made.bounds, _unless_infinite(a.value, made.fails))


def _unless_infinite(value: pl.Expr, fails: pl.Expr | None) -> pl.Expr | None:
    return None if fails is None else fails & value.is_finite()


# -- texts -----------------------------------------------------------------------------------


def _text_of_bool(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    text = pl.when(a.value).then(pl.lit("true")).when(~a.value).then(pl.lit("false"))
    return LoweredExpression(text)


def _text_of_float(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    shown = a.value.cast(pl.String)
    infinite = pl.when(a.value > 0).then(pl.lit("Infinity")).otherwise(pl.lit("-Infinity"))
    plain = a.value.is_nan() | _is_plain(a.value)
    return LoweredExpression(
        pl.when(a.value.is_infinite()).then(infinite).otherwise(shown), None, ~(plain | a.value.is_infinite())
    )


def _text_of_time(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    fraction = a.value.dt.microsecond()
    digits = pl.concat_str([pl.lit("."), fraction.cast(pl.String).str.zfill(6).str.strip_chars_end("0")])
    seconds = a.value.dt.to_string("%Y-%m-%d %H:%M:%S")
    return LoweredExpression(pl.when(fraction == 0).then(seconds).otherwise(pl.concat_str([seconds, digits])))


def parsed_text(form: str, of: Callable[[pl.Expr], pl.Expr]) -> Cast:
    """Parse the texts of the usual form. Others, and those that cannot be read, are marked."""

    def cast(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
        usual = a.value.str.contains(rf"\A{form}\z")
        value = of(pl.when(usual).then(a.value))
        return LoweredExpression(value, RANGES.get(target), value.is_null() & a.value.is_not_null())

    return cast


def _int_of_text(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    return parsed_text("[+-]?[0-9]{1,18}", lambda text: text.cast(dtype_of(target), strict=False))(
        a, source, target
    )


def _float_of_text(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    def number(text: pl.Expr) -> pl.Expr:
        return text.cast(pl.Float64, strict=False)

    return parsed_text(r"[+-]?[0-9]{1,30}(\.[0-9]{0,30})?([eE][+-]?[0-9]{1,2})?", number)(a, source, target)


def _decimal_of_text(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    def number(text: pl.Expr) -> pl.Expr:
        return text.cast(pl.Decimal(38, 17), strict=False)

    read = parsed_text(r"[+-]?[0-9]{1,20}(\.[0-9]{1,17})?", number)(a, source, target)
    most = 10**37
    made = decimal_columns.fitting(LoweredExpression(read.value.to_physical(), (-most, most)), 17, target)
    return LoweredExpression(made.value, made.bounds, either_condition(read.fails, made.fails))


def _bool_of_text(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    true = a.value.is_in(["t", "true", "y", "yes", "1"])
    false = a.value.is_in(["f", "false", "n", "no", "0"])
    return LoweredExpression(true, None, ~(true | false))


_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"


def since_first_year(value: pl.Expr) -> pl.Expr:
    """Drop dates and times that Python does not have."""
    return pl.when(value.dt.year() > 0).then(value)


def _read_date(text: pl.Expr) -> pl.Expr:
    return since_first_year(text.str.to_date("%Y-%m-%d", strict=False))


def _read_time(text: pl.Expr) -> pl.Expr:
    form = "%Y-%m-%d %H:%M:%S%.f"
    read = text.str.replace("T", " ", literal=True).str.to_datetime(form, time_unit="us", strict=False)
    return since_first_year(read)


# -- times -----------------------------------------------------------------------------------


def _whole_units(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    assert isinstance(target, IntervalType)
    return LoweredExpression(cut_to_step(a.value, target.step))


def _seconds_of(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    seconds = LoweredExpression(count_of(a.value) // _SECOND, RANGES[INT64])
    return seconds if target == INT64 else _integer(seconds, INT64, target)


def _float_seconds(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    micros = count_of(a.value)
    return LoweredExpression(quotient(micros.cast(pl.Float64), 1e6), None, micros.abs() > _EXACT)


def _time_of_seconds(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    seconds = a.value.cast(pl.Int64)
    few = seconds.is_between(-(2**40), 2**40)
    made = moment(pl.when(few).then(seconds) * _SECOND, TIMESTAMP)
    return LoweredExpression(made.value, None, either_condition(~few, made.fails))


def _unit_of(interval: DataType) -> int:
    assert isinstance(interval, IntervalType)
    return INTERVAL_UNITS[interval.last]


def _integer_of_interval(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    unit = _unit_of(source)
    units = LoweredExpression(count_of(cut_to_step(a.value, unit)) // unit, RANGES[INT64])
    return units if target == INT64 else _integer(units, INT64, target)


def _interval_of_integer(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    low, high = RANGES[INT64]
    unit = _unit_of(target)
    fits = a.value.cast(pl.Int64).is_between(-(-low // unit), high // unit)
    micros = pl.when(fits).then(a.value.cast(pl.Int64)) * unit
    return LoweredExpression(micros.cast(pl.Duration("us")), None, ~fits)


def _decimal_of_interval(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    seconds = _unit_of(source) == _SECOND
    micros = count_of(a.value)
    count = micros if seconds else count_of(cut_to_step(a.value, _unit_of(source))) // _unit_of(source)
    return decimal_columns.fitting(
        LoweredExpression(count.cast(pl.Int128), RANGES[INT64]), 6 if seconds else 0, target
    )


_TABLE: dict[tuple[type[DataType], type[DataType]], Cast] = {
    (IntegerType, Float64Type): _to_dtype,
    (IntegerType, Float32Type): _to_dtype,
    (BoolType, Float64Type): _to_dtype,
    (BoolType, Float32Type): _to_dtype,
    (Float32Type, Float64Type): _to_dtype,
    (Float64Type, Float32Type): _to_dtype,
    (IntegerType, BoolType): _value(lambda value: value != 0),
    (Float64Type, BoolType): _value(lambda value: value != 0),
    (Float32Type, BoolType): _value(lambda value: value != 0),
    (IntegerType, DecimalType): decimal_columns.of_integer,
    (BoolType, DecimalType): decimal_columns.of_integer,
    (Float64Type, DecimalType): _decimal_of_float,
    (DecimalType, DecimalType): decimal_columns.to_decimal,
    (DecimalType, IntegerType): decimal_columns.to_integer,
    (DecimalType, Float64Type): decimal_columns.to_float,
    (DecimalType, BoolType): decimal_columns.to_bool,
    (DecimalType, StrType): _value(lambda value: value.cast(pl.String)),
    (BoolType, IntegerType): _int_of_bool,
    (Float64Type, IntegerType): _cut,
    (Float32Type, IntegerType): _cut,
    (IntegerType, StrType): _value(lambda value: value.cast(pl.String)),
    (BoolType, StrType): _text_of_bool,
    (Float64Type, StrType): _text_of_float,
    (StrType, BytesType): _value(lambda value: value.cast(pl.Binary)),
    (StrType, IntegerType): _int_of_text,
    (StrType, Float64Type): _float_of_text,
    (StrType, DecimalType): _decimal_of_text,
    (StrType, BoolType): _bool_of_text,
    (StrType, DateType): parsed_text(_DAY, _read_date),
    (StrType, TimestampType): parsed_text(f"{_DAY}[ T]{_CLOCK}", _read_time),
    (StrType, TimestampNtzType): parsed_text(f"{_DAY}[ T]{_CLOCK}", _read_time),
    (DateType, StrType): _value(lambda value: value.dt.to_string("%Y-%m-%d")),
    (TimestampType, StrType): _text_of_time,
    (TimestampNtzType, StrType): _text_of_time,
    (DateType, TimestampType): _value(lambda value: value.cast(pl.Datetime("us"))),
    (TimestampType, DateType): _value(lambda value: value.dt.date()),
    (DateType, TimestampNtzType): _value(lambda value: value.cast(pl.Datetime("us"))),
    (TimestampNtzType, DateType): _value(lambda value: value.dt.date()),
    (TimestampNtzType, TimestampType): _value(lambda value: value),
    (TimestampType, TimestampNtzType): _value(lambda value: value),
    (TimestampType, IntegerType): _seconds_of,
    (TimestampType, Float64Type): _float_seconds,
    (IntegerType, TimestampType): _time_of_seconds,
    (IntervalType, IntervalType): _whole_units,
    (IntervalType, IntegerType): _integer_of_interval,
    (IntegerType, IntervalType): _interval_of_integer,
    (IntervalType, DecimalType): _decimal_of_interval,
}


def _kind(of: DataType) -> type[DataType]:
    return IntegerType if isinstance(of, IntegerType) else type(of)


def cast_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    source, target = call.arguments[0].type, call.type
    if source == target:
        return arguments[0]
    if isinstance(source, IntegerType) and isinstance(target, IntegerType):
        return _integer(arguments[0], source, target)
    cast = _TABLE.get((_kind(source), _kind(target)))
    if cast is None:
        raise NotLowered(f"a cast from {source} to {target} has no columnar form")
    return cast(arguments[0], source, target)
