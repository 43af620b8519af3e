"""Casts, and sums of times and intervals, as Spark columns.

Spark reads the fields of a timestamp in the session's time zone. Here, time is UTC in every session, so
everything is computed on microseconds since 1970, and on dates, which have no time zone. What cannot be
computed so raises in a session of another zone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.expr.deferred_imports import F
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import (
    INTERVAL,
    STR,
    TIMESTAMP,
    BytesType,
    DataType,
    DateType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.typing_rules import CallTerm, SparkForm

if TYPE_CHECKING:
    from pyspark.sql import Column

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
    """Lower a sum or a difference of times and intervals; None if it is of neither. No zone has a say."""
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
    """Lower to a function of Spark that looks at the session's time zone, which must be UTC."""

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        message = f"{call.function.name} needs a session with spark.sql.session.timeZone = UTC"
        failed = F.raise_error(F.lit(message)).cast(spark_type(call.type))
        made = F.call_function(function, *arguments) if isinstance(function, str) else function(*arguments)
        return F.when(F.current_timezone().isin(*_UTC_NAMES), made).otherwise(failed)

    return lowering


def without_zone(moment: Column) -> Column:
    """Return what a clock in UTC shows."""
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
    """Return a type with text for what within it becomes text by a special cast."""
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
