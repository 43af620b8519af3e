"""Casts between column types by the rules of Spark ANSI, which raise for values that do not fit.

The table gives the conversion for each pair of types, and whether it can fail for a row; pairs that are not
in the table cannot be cast.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from headrace.expr.code_runtime import EPOCH, EXACT, raise_overflow
from headrace.expr.function_records import function, is_type
from headrace.expr.functions.arithmetic import decimal_spec, overflow_checked
from headrace.expr.functions.cast_columns import cast_column, cast_columns
from headrace.expr.functions.higher_order import VARIABLE
from headrace.expr.functions.maps import map_source
from headrace.expr.text_casts import TIME_ALONE, malformed_error
from headrace.expr.text_casts import to_timestamp as timestamp_of_str
from headrace.expr.types import (
    INTEGERS,
    INTERVAL,
    STR,
    AnyType,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    FloatingType,
    Int64Type,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
    parts_of,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    Mismatch,
    Signature,
    holds_all_of,
)

_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_UTC = UTC


@dataclass(frozen=True, slots=True)
class _Cast:
    """Cast as source with placeholders: `{v}` value, `{shape}` target decimal, `{bits}` target width."""

    source: str
    fallible: bool = False
    checked: bool = False


_SAME = _Cast("{v}")
_Pairs = dict[tuple[type[DataType], type[DataType]], _Cast]
_WITHOUT_INTEGERS: _Pairs = {
    (Float64Type, DecimalType): _Cast("x_decimal_of_float({v}, {shape})", fallible=True),
    (Float32Type, Float64Type): _SAME,
    (Float64Type, Float32Type): _Cast("x_f32({v})"),
    (Float32Type, DecimalType): _Cast("x_decimal_of_float({v}, {shape})", fallible=True),
    (Float32Type, BoolType): _Cast("({v} != 0.0)"),
    (Float32Type, StrType): _Cast("x_str_of_f32({v})"),
    (DecimalType, Float32Type): _Cast("x_f32_of_exact({v})"),
    (BoolType, Float32Type): _Cast("float({v})"),
    (StrType, Float32Type): _Cast("x_f32_of_str({v})", fallible=True),
    (Float64Type, BoolType): _Cast("({v} != 0.0)"),
    (Float64Type, StrType): _Cast("x_str_of_float({v})"),
    (DecimalType, DecimalType): _Cast("x_decimal_fit({v}, {shape})", fallible=True),
    (DecimalType, Float64Type): _Cast("float({v})"),
    (DecimalType, BoolType): _Cast("({v} != 0)"),
    (DecimalType, StrType): _Cast("format({v}, 'f')"),
    (BoolType, Float64Type): _Cast("float({v})"),
    (BoolType, DecimalType): _Cast("x_decimal_of_int({v}, {shape})", fallible=True),
    (BoolType, StrType): _Cast("x_str_of_bool({v})"),
    (StrType, BoolType): _Cast("x_bool_of_str({v})", fallible=True),
    (StrType, Float64Type): _Cast("x_float_of_str({v})", fallible=True),
    (StrType, DecimalType): _Cast("x_decimal_of_str({v}, {shape})", fallible=True),
    (StrType, DateType): _Cast("x_date_of_str({v})", fallible=True),
    (StrType, TimestampType): _Cast("x_timestamp_of_str({v})", fallible=True),
    (StrType, BytesType): _Cast("x_utf8({v})"),
    (BytesType, StrType): _Cast("x_str_of_bytes({v})", fallible=True),
    (DateType, StrType): _Cast("{v}.isoformat()"),
    (DateType, TimestampType): _Cast("x_timestamp_of_date({v})"),
    (TimestampType, StrType): _Cast("x_str_of_timestamp({v})"),
    (TimestampType, DateType): _Cast("{v}.date()"),
    (StrType, TimestampNtzType): _Cast("x_ntz_of_str({v})", fallible=True),
    (TimestampNtzType, StrType): _Cast("x_str_of_timestamp({v})"),
    (DateType, TimestampNtzType): _Cast("x_timestamp_of_date({v}).replace(tzinfo=None)"),
    (TimestampNtzType, DateType): _Cast("{v}.date()"),
    (TimestampType, TimestampNtzType): _Cast("{v}.replace(tzinfo=None)"),
    (TimestampNtzType, TimestampType): _Cast("{v}.replace(tzinfo=x_utc)"),
    (IntervalType, StrType): _Cast("x_str_of_interval({v}, {units})"),
    (StrType, IntervalType): _Cast("x_interval_of_str({v}, {units})", fallible=True),
    (IntervalType, IntervalType): _Cast("x_cut_interval({v}, {last})"),
    (IntervalType, DecimalType): _Cast(
        "x_decimal_fit(x_interval_units({v}, {last}), {shape})", fallible=True
    ),
    (DecimalType, IntervalType): _Cast("x_interval_of_units({v}, {last})", fallible=True),
    (TimestampType, Float64Type): _Cast("x_float_seconds({v})"),
    (TimestampType, Float32Type): _Cast("x_f32(x_float_seconds({v}))"),
    (TimestampType, DecimalType): _Cast("x_decimal_of_float(x_float_seconds({v}), {shape})", fallible=True),
    (Float64Type, TimestampType): _Cast("x_timestamp_of_float({v})", fallible=True),
    (Float32Type, TimestampType): _Cast("x_timestamp_of_float({v})", fallible=True),
    (DecimalType, TimestampType): _Cast("x_timestamp_of_decimal({v})", fallible=True),
}
_NARROWED = _Cast("{v}", fallible=True, checked=True)


def _of_integer(integer: type[IntegerType]) -> _Pairs:
    narrow = integer is not Int64Type
    return {
        **{(integer, type(each)): _SAME if each.bits >= integer.bits else _NARROWED for each in INTEGERS},
        (integer, Float64Type): _Cast("float({v})"),
        (integer, DecimalType): _Cast("x_decimal_of_int({v}, {shape})", fallible=True),
        (integer, BoolType): _Cast("({v} != 0)"),
        (integer, StrType): _Cast("str({v})"),
        (integer, IntervalType): _Cast("x_interval_of_units({v}, {last})", fallible=True),
        (IntervalType, integer): _Cast("x_whole_units({v}, {last})", fallible=narrow, checked=narrow),
        (integer, TimestampType): _Cast("x_timestamp_of_seconds({v})", fallible=True),
        (TimestampType, integer): (_Cast("x_seconds_of_timestamp({v})", fallible=narrow, checked=narrow)),
        (BoolType, integer): _Cast("int({v})"),
        (integer, Float32Type): _Cast("x_f32_of_exact({v})"),
        (Float64Type, integer): _Cast("x_int_of_float({v}, {bits})", fallible=True),
        (Float32Type, integer): _Cast("x_int_of_float({v}, {bits})", fallible=True),
        (DecimalType, integer): _Cast("int({v})", fallible=True, checked=True),
        (StrType, integer): _Cast("x_int_of_str({v}, {bits})", fallible=True),
    }


_TABLE: _Pairs = dict(_WITHOUT_INTEGERS)
for _integer in INTEGERS:
    _TABLE.update(_of_integer(type(_integer)))


def _entry(source: DataType, target: DataType) -> _Cast | None:
    if holds_all_of(target, source):
        return _SAME
    return _TABLE.get((type(source), type(target)))


def _is_castable(source: DataType, target: DataType) -> bool:
    if _entry(source, target) is not None:
        return True
    if isinstance(source, MapType) and isinstance(target, MapType):
        castable = _is_castable(source.key, target.key) and _is_castable(source.value, target.value)
        castable = castable and not _makes_null(source.key, target.key)
        nullable = source.nullable or _makes_null(source.value, target.value)
    elif isinstance(source, ListType) and isinstance(target, ListType):
        castable = _is_castable(source.element, target.element)
        nullable = source.nullable or _makes_null(source.element, target.element)
    elif isinstance(source, StructType) and isinstance(target, StructType):
        return len(source.fields) == len(target.fields) and all(
            _is_castable(a.type, b.type) and (b.nullable or not (a.nullable or _makes_null(a.type, b.type)))
            for a, b in zip(source.fields, target.fields, strict=True)
        )
    else:
        parts = parts_of(source)
        return target == STR and bool(parts) and all(_is_castable(part, target) for part in parts)
    return castable and (target.nullable or not nullable)


def _parts(source: DataType) -> list[tuple[DataType, bool]]:
    """Return the types within a list, map or struct, and whether their values may be null."""
    if isinstance(source, ListType):
        return [(source.element, source.nullable)]
    if isinstance(source, MapType):
        return [(source.key, False), (source.value, source.nullable)]
    if isinstance(source, StructType):
        return [(each.type, each.nullable) for each in source.fields]
    return []


def _makes_null(source: DataType, target: DataType) -> bool:
    """Return whether a cast turns some values into null: NaN and infinities, for casts to decimal."""
    return isinstance(source, FloatingType) and isinstance(target, DecimalType)


def _instead(source: DataType) -> str:
    if not isinstance(source, AnyType):
        return ""
    return "give the column a type in the row class, or map() the rows with a function"


def _rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,), (target,) = arguments, options
    assert isinstance(target, DataType)
    source = target if argument.type == NULL else argument.type
    if not _is_castable(source, target):
        targets = sorted({str(t()).partition("(")[0] for s, t in _TABLE if s is type(source)})
        raise Mismatch(
            f"{source} cannot be cast to {target}",
            fix=f"it can be cast to {', '.join(targets)}" if targets else _instead(source),
        )
    return Signature((source,), target, True if _makes_null(source, target) else None)


def _cast(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    entry = _entry(call.arguments[0].type, call.type)
    if entry is None:
        return _NESTED[type(call.type)](emitter, call, operands[0])
    shape = emitter.constant(decimal_spec(call.type)) if isinstance(call.type, DecimalType) else ""
    bits = call.type.bits if isinstance(call.type, IntegerType) else 64
    span = next((t for t in (call.type, call.arguments[0].type) if isinstance(t, IntervalType)), INTERVAL)
    units = f"{span.first}, {span.last}"
    source = entry.source.format(v=operands[0], shape=shape, bits=bits, units=units, last=span.last)
    return overflow_checked(emitter, source, call.type) if entry.checked else source


def _cast_elements(emitter: Emitter, call: CallTerm, values: str) -> str:
    source, target, each = call.arguments[0].type, call.type, emitter.fresh()
    assert isinstance(source, ListType)
    assert isinstance(target, ListType)
    cast = _cast_variable(emitter, each, source.element, target.element, source.nullable)
    return _after(emitter, values, lambda again: f"tuple([{cast} for {each} in {again}])")


def _cast_entries(emitter: Emitter, call: CallTerm, entries: str) -> str:
    source, target = call.arguments[0].type, call.type
    assert isinstance(source, MapType)
    assert isinstance(target, MapType)
    key, value = emitter.fresh(), emitter.fresh()
    casts = (
        _cast_variable(emitter, key, source.key, target.key, False),
        _cast_variable(emitter, value, source.value, target.value, source.nullable),
    )
    pairs = f"[({casts[0]}, {casts[1]}) for {key}, {value} in {{}}]"
    same_keys = holds_all_of(target.key, source.key)
    made = f"tuple({pairs})" if same_keys else map_source(pairs, target.key)
    return _after(emitter, entries, made.format)


def _cast_fields(emitter: Emitter, call: CallTerm, fields: str) -> str:
    source, target = call.arguments[0].type, call.type
    assert isinstance(source, StructType)
    assert isinstance(target, StructType)
    names = [emitter.fresh() for _ in source.fields]
    casts = [
        _cast_variable(emitter, name, mine.type, wanted.type, mine.nullable)
        for name, mine, wanted in zip(names, source.fields, target.fields, strict=True)
    ]
    made = f"({', '.join(casts)},)"
    return _after(emitter, fields, lambda again: f"[{made} for {', '.join(names)}, in ({again},)][0]")


def _text(emitter: Emitter, call: CallTerm, value: str) -> str:
    """Write a list as [1, null], a map as {1 -> a}, and a struct as {1, a}."""
    source = call.arguments[0].type
    names = [emitter.fresh() for _ in _parts(source)]
    texts = [
        _text_of_variable(emitter, name, part, nullable)
        for name, (part, nullable) in zip(names, _parts(source), strict=True)
    ]
    first = ", ".join(names)
    if isinstance(source, StructType):
        each = f"[{', '.join(texts)}] for {first}, in "
        return _after(emitter, value, lambda again: f"('{{' + ', '.join([{each}({again},)][0]) + '}}')")
    if isinstance(source, MapType):
        each = f"{texts[0]} + ' -> ' + {texts[1]}"
        return _after(
            emitter, value, lambda again: f"('{{' + ', '.join([{each} for {first} in {again}]) + '}}')"
        )
    return _after(
        emitter, value, lambda again: f"('[' + ', '.join([{texts[0]} for {first} in {again}]) + ']')"
    )


def _text_of_variable(emitter: Emitter, name: str, source: DataType, nullable: bool) -> str:
    text = _cast_variable(emitter, name, source, STR, False)
    return f"('null' if {name} is None else {text})" if nullable else text


_NESTED: dict[type[DataType], Callable[[Emitter, CallTerm, str], str]] = {
    ListType: _cast_elements,
    MapType: _cast_entries,
    StructType: _cast_fields,
    StrType: _text,
}


def _cast_variable(emitter: Emitter, name: str, source: DataType, target: DataType, nullable: bool) -> str:
    """Return the source of the cast of a variable of generated code."""
    variable = CallTerm(source, nullable, VARIABLE, (), (name,))
    made = nullable or _makes_null(source, target)
    return emitter.value(CallTerm(target, made, CAST, (variable,), (target,)))


def _after(emitter: Emitter, values: str, made: Callable[[str], str]) -> str:
    """Return the source of `made(values)`, with `values` evaluated once, outside the loop in `made`."""
    first, again = emitter.name_value(values)
    return made(again) if first == again else f"[{first}, {made(again)}][1]"


def _fallible(call: CallTerm) -> bool:
    return _can_fail(call.arguments[0].type, call.type)


def _can_fail(source: DataType, target: DataType) -> bool:
    entry = _entry(source, target)
    if entry is None and isinstance(source, ListType) and isinstance(target, ListType):
        return _can_fail(source.element, target.element)
    if entry is None and isinstance(source, MapType) and isinstance(target, MapType):
        # Different keys may become equal.
        return source.key != target.key or _can_fail(source.value, target.value)
    if entry is None and isinstance(source, StructType) and isinstance(target, StructType):
        pairs = zip(source.fields, target.fields, strict=True)
        return any(_can_fail(mine.type, wanted.type) for mine, wanted in pairs)
    if entry is None:
        return any(_can_fail(part, target) for part in parts_of(source))
    return entry.fallible


CAST = function(
    "cast",
    types=_rule,
    code=_cast,
    fallible=_fallible,
    keeps_nan=True,
    nullable=lambda call: _makes_null(call.arguments[0].type, call.type),
    arity=(1, 1),
    options=(is_type,),
    columns=cast_columns,
    spark=cast_column,
)


def int_of_float(value: float, bits: int) -> int:
    """Truncate towards zero. Raises for NaN and out of range; 2**63 gives the greatest int64."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if value - value != 0.0 or math.floor(value) > float(high) or math.ceil(value) < float(low):
        raise_overflow(value, f"int{bits}")
    return min(int(value), high)


def timestamp_of_date(value: date) -> datetime:
    """Convert a date to midnight UTC."""
    return datetime(value.year, value.month, value.day, tzinfo=_UTC)


def seconds_of_timestamp(value: datetime) -> int:
    """Convert a timestamp to whole seconds since 1970, rounded down."""
    return (value - EPOCH) // _SECOND


def float_seconds(value: datetime) -> float:
    """Convert a timestamp to seconds since 1970, rounded to a float once."""
    return (value - EPOCH) // _MICROSECOND / 1_000_000


def timestamp_of_float(value: float) -> datetime:
    """Convert seconds since 1970, truncated to microseconds. Raises as for integers."""
    micros = value * 1e6
    if micros - micros != 0.0:
        raise_overflow(value, "timestamp")
    return _timestamp_of_micros(int(micros), value)


def timestamp_of_decimal(value: Decimal) -> datetime:
    """Convert seconds since 1970, truncated to microseconds. Raises as for integers."""
    return _timestamp_of_micros(int(value.scaleb(6, EXACT)), value)


def _timestamp_of_micros(micros: int, value: object) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise_overflow(value, "timestamp")


def timestamp_of_seconds(value: int) -> datetime:
    """Convert seconds since 1970 to a timestamp. Raises outside the years 1 to 9999."""
    try:
        return EPOCH + timedelta(seconds=value)
    except OverflowError:
        raise_overflow(value, "timestamp")


def ntz_of_str(text: str) -> datetime:
    """Parse like a timestamp. A zone must be valid, but is ignored."""
    if TIME_ALONE.fullmatch(text.strip()):
        malformed_error(text, "timestamp")
    moment = timestamp_of_str(text)
    day, between, time = text.strip().partition("T" if "T" in text[:12] else " ")
    local = re.sub(r" *[A-Za-z+-].*", "", time)
    return (moment if local == time else timestamp_of_str(f"{day}{between}{local}")).replace(tzinfo=None)


NAMES: dict[str, Any] = {
    "x_ntz_of_str": ntz_of_str,
    "x_utc": UTC,
    "x_int_of_float": int_of_float,
    "x_timestamp_of_date": timestamp_of_date,
    "x_seconds_of_timestamp": seconds_of_timestamp,
    "x_float_seconds": float_seconds,
    "x_timestamp_of_float": timestamp_of_float,
    "x_timestamp_of_decimal": timestamp_of_decimal,
    "x_timestamp_of_seconds": timestamp_of_seconds,
}

FUNCTIONS: tuple[Function, ...] = (CAST,)
