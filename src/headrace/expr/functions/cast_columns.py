"""Casts of columns, in Polars and in Spark.

In Polars, the casts on which it agrees with Spark, or whose differing rows can be detected. In Spark, casts
and sums of times and intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.expr.functions import integer_columns
from headrace.expr.functions.integer_columns import count_of, cut_to_step, moment
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    bounds_of,
    dtype_of,
    either_condition,
    lower_bounded_integer,
    quotient,
)
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import (
    INT64,
    INTERVAL,
    INTERVAL_UNITS,
    RANGES,
    STR,
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
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.typing_rules import CallTerm, SparkForm
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column

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
    made = integer_columns.fitting(shortest_decimal(a.value), PLACES, target)
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
    """Parse texts of the usual form. Other and unreadable texts are marked as failed."""

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
    made = integer_columns.fitting(LoweredExpression(read.value.to_physical(), (-most, most)), 17, target)
    return LoweredExpression(made.value, made.bounds, either_condition(read.fails, made.fails))


def _bool_of_text(a: LoweredExpression, source: DataType, target: DataType) -> LoweredExpression:
    true = a.value.is_in(["t", "true", "y", "yes", "1"])
    false = a.value.is_in(["f", "false", "n", "no", "0"])
    return LoweredExpression(true, None, ~(true | false))


_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"


def since_first_year(value: pl.Expr) -> pl.Expr:
    """Replace dates and times before the year 1, which Python lacks, by null."""
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
    return integer_columns.fitting(
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
    (IntegerType, DecimalType): integer_columns.of_integer,
    (BoolType, DecimalType): integer_columns.of_integer,
    (Float64Type, DecimalType): _decimal_of_float,
    (DecimalType, DecimalType): integer_columns.to_decimal,
    (DecimalType, IntegerType): integer_columns.to_integer,
    (DecimalType, Float64Type): integer_columns.to_float,
    (DecimalType, BoolType): integer_columns.to_bool,
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


MICROSECONDS = {
    "microsecond": 1,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
# The texts that are read as moments: with a zone, which then decides, and without, in UTC. Spark would
# read times of today, too.
_BLANK = r"[\x00-\x20\x7f]*"
_DATE = rf"^{_BLANK}\+?\d{{4,6}}-\d{{1,2}}-\d{{1,2}}"
_ZONED = rf"(?s){_DATE}[ T]\d{{1,2}}:\d{{1,2}}:\d{{1,2}}(\.\d*)?{_BLANK}[^.\d\x00-\x20\x7f].*$"
_LOCAL = rf"({_DATE}([ T]\d[\d:.]*)?|^{_BLANK}\+?\d{{4,6}}(-\d{{1,2}})?){_BLANK}$"
_ALONE = rf"^{_BLANK}(T\s*\d|\d{{1,2}}:)"


def whole_quotient(value: Column, by: int) -> Column:
    """`value // by` for a value that is non-negative or a multiple of `by`."""
    return F.call_function("div", value, F.lit(by).cast("bigint"))


def rest_of(value: Column, by: int) -> Column:
    return F.pmod(value, F.lit(by).cast("bigint"))


def utc_date(moment: Column) -> Column:
    micros = F.unix_micros(moment)
    return F.date_from_unix_date(
        whole_quotient(micros - rest_of(micros, MICROSECONDS["day"]), MICROSECONDS["day"]).cast("int")
    )


def utc_midnight(day: Column) -> Column:
    return F.timestamp_micros(F.unix_date(day).cast("bigint") * F.lit(MICROSECONDS["day"]))


_SECONDS = "decimal(20,6)"


def interval_micros(span: Column) -> Column:
    seconds = span.cast(spark_type(INTERVAL)).cast(_SECONDS)
    return (seconds * F.lit(MICROSECONDS["second"])).cast("bigint")


def spark_time_sum(call: CallTerm, arguments: tuple[Column, ...]) -> Column | None:
    """Lower a sum or difference of times and intervals, free of time zones; None for other types."""
    (a, b), (first, second) = arguments, (argument.type for argument in call.arguments)
    if first == second == TIMESTAMP:
        return without_zone(a) - without_zone(b)
    if call.type != TIMESTAMP:
        return None
    if isinstance(first, IntervalType):
        a, b = b, a
    moved = interval_micros(b) if call.function.name.endswith("add") else -interval_micros(b)
    return F.timestamp_micros(F.unix_micros(a) + moved)


_UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


def in_utc(function: str | Callable[..., Column]) -> SparkForm:
    """Lower to a Spark function that depends on the session's time zone, which must be UTC."""

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        message = f"{call.function.name} needs a session with spark.sql.session.timeZone = UTC"
        failed = F.raise_error(F.lit(message)).cast(spark_type(call.type))
        made = F.call_function(function, *arguments) if isinstance(function, str) else function(*arguments)
        return F.when(F.current_timezone().isin(*_UTC_NAMES), made).otherwise(failed)

    return lowering


def without_zone(moment: Column) -> Column:
    """Convert a timestamp to its UTC wall-clock time, without a zone."""
    seconds = (F.unix_micros(moment).cast("decimal(20,0)") * F.lit(0.000001).cast("decimal(6,6)")).cast(
        "decimal(18,6)"
    )
    start = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    return start + F.make_dt_interval(secs=seconds)


def _text_of_moment(value: Column, target: DataType) -> Column:
    return without_zone(value).cast("string")


def _ntz_of_text(text: Column, target: DataType) -> Column:
    message = F.concat(F.lit("'"), text, F.lit("' cannot be read as timestamp"))
    failed = F.when(text.isNotNull(), F.raise_error(message).cast("timestamp_ntz"))
    return F.when(text.rlike(_ZONED) | text.rlike(_LOCAL), text.cast("timestamp_ntz")).otherwise(failed)


def _tried_ntz_of_text(text: Column) -> Column:
    return F.when(text.rlike(_ZONED) | text.rlike(_LOCAL), text.try_cast("timestamp_ntz"))


def _moment_of_text(text: Column, target: DataType) -> Column:
    message = F.concat(F.lit("'"), text, F.lit("' cannot be read as timestamp"))
    failed = F.raise_error(message).cast("timestamp")
    in_utc = moment_in_utc(text.cast("timestamp_ntz"))
    zoned = F.when(text.rlike(_ZONED), text.cast("timestamp"))
    return zoned.when(text.rlike(_LOCAL), in_utc).otherwise(F.when(text.isNotNull(), failed))


def _tried_moment_of_text(text: Column) -> Column:
    in_utc = moment_in_utc(text.try_cast("timestamp_ntz"))
    message = F.concat(
        F.lit("'"), text, F.lit("' is a time of the current day, which has no counterpart here")
    )
    today = text.rlike(_ALONE) & text.try_cast("timestamp").isNotNull()
    return (
        F.when(text.rlike(_ZONED), text.try_cast("timestamp"))
        .when(text.rlike(_LOCAL), in_utc)
        .when(today, F.raise_error(message).cast("timestamp"))
    )


def moment_in_utc(wall: Column) -> Column:
    """Return the instant at which a UTC clock shows the given zoneless timestamp."""
    day = F.unix_date(wall.cast("date")).cast("bigint") * F.lit(MICROSECONDS["day"])
    hours = F.hour(wall).cast("bigint") * F.lit(MICROSECONDS["hour"])
    minutes = F.minute(wall).cast("bigint") * F.lit(MICROSECONDS["minute"])
    seconds = (F.extract(F.lit("SECOND"), wall) * F.lit(MICROSECONDS["second"])).cast("bigint")
    return F.timestamp_micros(day + hours + minutes + seconds)


_TIME_CASTS: dict[tuple[type[DataType], type[DataType]], Callable[[Column, DataType], Column]] = {
    (TimestampType, DateType): lambda value, target: utc_date(value),
    (DateType, TimestampType): lambda value, target: utc_midnight(value),
    (TimestampType, StrType): _text_of_moment,
    (StrType, TimestampType): _moment_of_text,
    (StrType, TimestampNtzType): _ntz_of_text,
    (TimestampType, TimestampNtzType): lambda value, target: without_zone(value),
    (TimestampNtzType, TimestampType): lambda value, target: moment_in_utc(value),
}
_TRIED_CASTS: dict[tuple[type[DataType], type[DataType]], Callable[[Column], Column]] = {
    (TimestampType, DateType): utc_date,
    (DateType, TimestampType): utc_midnight,
    (TimestampType, StrType): lambda value: _text_of_moment(value, STR),
    (StrType, TimestampType): _tried_moment_of_text,
    (StrType, TimestampNtzType): _tried_ntz_of_text,
    (TimestampType, TimestampNtzType): without_zone,
    (TimestampNtzType, TimestampType): moment_in_utc,
}
"""Casts that look at the session's time zone, null where they fail."""


# -- casts -----------------------------------------------------------------------------------------


def cast_column(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return _casted(arguments[0], call.arguments[0].type, call.type)


def _casted(value: Column, source: DataType, target: DataType) -> Column:
    special = _CASTS.get((type(source), type(target)))
    if special is not None:
        return special(value, target)
    if isinstance(source, ListType) and isinstance(target, ListType) and _is_special(source, target):
        inside, outside = source.element, target.element
        return F.transform(value, lambda each: _casted(each, inside, outside))
    if isinstance(source, MapType) and isinstance(target, MapType) and _entries_differ(source, target):
        # A cast of a map would keep keys that become equal.
        return F.map_from_entries(F.transform(F.map_entries(value), _cast_of_entries(source, target)))
    if isinstance(source, StructType) and isinstance(target, StructType) and _is_special(source, target):
        pairs = zip(source.fields, target.fields, strict=True)
        fields = [_casted(value.getField(a.name), a.type, b.type).alias(b.name) for a, b in pairs]
        return F.when(value.isNotNull(), F.struct(*fields))
    if target == STR and (inside := _with_texts(source)) != source:
        value = _casted(value, source, inside)
    return value.cast(spark_type(target))


def _with_texts(source: DataType) -> DataType:
    """Replace the parts of a type that have a special cast to text by the text type."""
    if isinstance(source, ListType):
        return replace(source, element=_with_texts(source.element))
    if isinstance(source, MapType):
        return replace(source, key=_with_texts(source.key), value=_with_texts(source.value))
    if isinstance(source, StructType):
        return StructType(tuple(replace(each, type=_with_texts(each.type)) for each in source.fields))
    return STR if _is_special(source, STR) else source


def _cast_of_entries(source: MapType, target: MapType) -> Callable[[Column], Column]:
    def cast(entry: Column) -> Column:
        key = _casted(entry.getField("key"), source.key, target.key)
        value = _casted(entry.getField("value"), source.value, target.value)
        return F.struct(key.alias("key"), value.alias("value"))

    return cast


def _entries_differ(source: MapType, target: MapType) -> bool:
    return source.key != target.key or _is_special(source.value, target.value)


def _is_special(source: DataType, target: DataType) -> bool:
    if isinstance(source, MapType) and isinstance(target, MapType):
        return _entries_differ(source, target)
    if isinstance(source, ListType) and isinstance(target, ListType):
        return _is_special(source.element, target.element)
    if isinstance(source, StructType) and isinstance(target, StructType):
        return any(_is_special(a.type, b.type) for a, b in zip(source.fields, target.fields, strict=True))
    return (type(source), type(target)) in _CASTS


def try_cast_column(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    source, target = call.arguments[0].type, call.type
    special = _TRIED_CASTS.get((type(source), type(target)))
    return arguments[0].try_cast(spark_type(target)) if special is None else special(arguments[0])


def _str_of_bytes(value: Column, target: DataType) -> Column:
    return F.validate_utf8(value.cast("string"))


_CASTS: dict[tuple[type[DataType], type[DataType]], Callable[[Column, DataType], Column]] = {
    (BytesType, StrType): _str_of_bytes,
    **_TIME_CASTS,
}
