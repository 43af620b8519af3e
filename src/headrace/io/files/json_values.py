"""Conversion between parsed JSON and internal values.

    bool, int, float     JSON true/false, whole numbers, numbers; floats also "NaN", "Infinity", "-Infinity"
    decimal              a number or a string, exactly
    str                  a string
    bytes                a string in base64
    date, timestamp      strings in ISO 8601; a timestamp without a zone is in UTC
    struct, list         an object, an array
    map                  an object; its names are the keys, as text or as JSON
    null                 null, or a missing field

Fields that are not in the row type are ignored. A value of another type is an error and never converted.
`json_decoder` restores the values written by `json_encoder`.
"""

from __future__ import annotations

import binascii
import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from functools import singledispatch
from typing import Any, TypeAlias, cast

from headrace.expr.code_runtime import NAN, float32
from headrace.expr.functions import intervals
from headrace.expr.types import (
    FLOAT64,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    FloatingType,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
    with_article,
)
from headrace.expr.value_keys import distinct_entries
from headrace.io.files.text_values import (
    NON_FINITE,
    UnfitValue,
    exact_decimal,
    in_range,
    parser_of,
    unfit,
    unicode_text,
)

JsonConverter: TypeAlias = Callable[[Any], Any]


# --- from JSON -----------------------------------------------------------------------------


class RepeatedNames(dict[str, Any]):
    """An object with a repeated name; the last value wins. repeated: the first such name."""

    repeated: str


def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from names and values, as a hook of `json`; `RepeatedNames` if a name is repeated."""
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    found = RepeatedNames(made)
    names = [name for name, _ in pairs]
    found.repeated = next(name for name in names if names.count(name) > 1)
    return found


@singledispatch
def json_decoder(data_type: DataType) -> JsonConverter:
    """Build a converter from non-null parsed JSON to internal values; it raises `UnfitValue`."""
    raise TypeError(data_type)


@json_decoder.register
def _(data_type: BoolType) -> JsonConverter:
    def boolean(value: Any) -> Any:
        if type(value) is not bool:
            raise unfit("true or false", value)
        return value

    return boolean


def _whole(bits: int) -> JsonConverter:
    low, high = -(1 << bits - 1), 1 << bits - 1

    def whole(value: Any) -> Any:
        if type(value) is not int:
            raise unfit(f"an int{bits}", value)
        return value if low <= value < high else in_range(value, bits)

    return whole


@json_decoder.register
def _(data_type: IntegerType) -> JsonConverter:
    return _whole(data_type.bits)


@json_decoder.register
def _(data_type: Float64Type) -> JsonConverter:
    def number(value: Any) -> Any:
        if type(value) is float:
            return value if value == value else NAN
        try:
            if type(value) is int:
                return float(value)
            if type(value) is Decimal:  # files are parsed like this if the row type has decimals
                return float(value) if value == value else NAN
            return NON_FINITE[value]
        except (KeyError, TypeError, OverflowError):
            raise unfit("a number", value) from None

    return number


@json_decoder.register
def _(data_type: DecimalType) -> JsonConverter:
    parse_text = parser_of(data_type)

    def decimal(value: Any) -> Any:
        kind = type(value)
        if kind is Decimal or kind is int:
            return exact_decimal(Decimal(value), data_type)
        if kind is not str:
            raise unfit(data_type, value)
        return parse_text(value)

    return decimal


@json_decoder.register
def _(data_type: StrType) -> JsonConverter:
    def text(value: Any) -> Any:
        if type(value) is not str:
            raise unfit("a string", value)
        return value if value.isascii() else unicode_text(value)

    return text


@json_decoder.register
def _(data_type: BytesType) -> JsonConverter:
    def octets(value: Any) -> Any:
        if type(value) is not str:
            raise unfit("a string in base64", value)
        try:
            return b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise unfit("a string in base64", value) from None

    return octets


@json_decoder.register(DateType)
@json_decoder.register(TimestampType)
@json_decoder.register(TimestampNtzType)
@json_decoder.register(IntervalType)
def _(data_type: DataType) -> JsonConverter:
    parse_text = parser_of(data_type)

    def moment(value: Any) -> Any:
        if type(value) is not str:
            raise unfit(f"{with_article(data_type)} as a string", value)
        return parse_text(value)

    return moment


@json_decoder.register
def _(data_type: ListType) -> JsonConverter:
    convert = json_decoder(data_type.element)

    def array(value: Any) -> Any:
        if type(value) is not list:
            raise unfit("an array", value)
        if None not in value:
            return tuple(map(convert, value))
        if not data_type.nullable:
            raise unfit(data_type.element, None)
        return tuple(None if element is None else convert(element) for element in value)

    return array


@json_decoder.register
def _(data_type: MapType) -> JsonConverter:
    # Names of objects are text, also where the keys are not.
    read_key, convert = _key_decoder(data_type.key), json_decoder(data_type.value)

    def mapping(value: Any) -> Any:
        if type(value) is RepeatedNames:
            raise UnfitValue(f"expected an object with different keys, found {value.repeated!r} twice")
        if type(value) is not dict:
            raise unfit("an object", value)
        named = cast("dict[str, Any]", value)
        if not data_type.nullable and None in named.values():
            raise unfit(data_type.value, None)
        made = distinct_entries((read_key(k), None if v is None else convert(v)) for k, v in named.items())
        if made is None:
            raise unfit("an object with different keys", named)
        return made

    return mapping


def _key_decoder(data_type: DataType) -> Callable[[str], Any]:
    convert = json_decoder(data_type)
    if isinstance(
        data_type,
        BytesType | DateType | DecimalType | StrType | TimestampType | TimestampNtzType | IntervalType,
    ):
        return convert

    def key(text: str) -> Any:
        try:
            return convert(json.loads(text))
        except (ValueError, RecursionError):  # also for numbers of thousands of digits
            raise unfit(f"{with_article(data_type)} in JSON", text) from None

    return key


@json_decoder.register
def _(data_type: StructType) -> JsonConverter:
    return object_decoder(data_type.fields)


def object_decoder(fields: Sequence[Field], live: AbstractSet[str] | None = None) -> JsonConverter:
    """Build a converter from JSON objects to tuples. `UnfitValue` names the field.

    live: the fields to look at, or None for all; the others are None.
    """
    names: dict[str, Any] = {"unfit": unfit, "Repeated": RepeatedNames}
    lines = [
        "def row(value):",
        "    if type(value) is not dict and type(value) is not Repeated:",
        "        raise unfit('an object', value)",
        "    get = value.get",
    ]
    for at, f in enumerate(fields):
        if live is not None and f.name not in live:
            lines.append(f"    v{at} = None")
            continue
        names[f"convert_{at}"] = _field(f)
        lines.append(f"    v{at} = get({f.name!r})")
        lines.append(f"    if {needs_conversion(f.type).format(f'v{at}')}:")
        lines.append(f"        v{at} = convert_{at}(value, v{at})")
    lines.append(f"    return ({''.join(f'v{at}, ' for at in range(len(fields)))})")
    # One generated function for all fields: a loop over them is three times slower.
    exec("\n".join(lines), names)
    return names["row"]


def _field(declared: Field) -> Callable[[dict[str, Any], Any], Any]:
    """Build a converter for one field, given its object and the value found there."""
    name, convert = declared.name, json_decoder(declared.type)

    def value(whole: dict[str, Any], found: Any) -> Any:
        if found is None:
            if not declared.nullable:
                raise missing(declared, is_there=name in whole)
            return None
        try:
            return convert(found)
        except UnfitValue as problem:
            raise UnfitValue(f"{name}: {problem}") from None

    return value


@singledispatch
def needs_conversion(data_type: DataType) -> str:
    """Generate a test on a value `{0}` that is false only for values that need no conversion."""
    return "True"


@needs_conversion.register
def _(data_type: BoolType) -> str:
    return "type({0}) is not bool"


@needs_conversion.register
def _(data_type: IntegerType) -> str:
    low, high = data_type.range
    return f"type({{0}}) is not int or not {low} <= {{0}} <= {high}"


@needs_conversion.register
def _(data_type: Float64Type) -> str:
    return "type({0}) is not float or {0} != {0}"


@json_decoder.register
def _(data_type: Float32Type) -> JsonConverter:
    number = json_decoder(FLOAT64)
    return lambda value: float32(number(value))


@needs_conversion.register
def _(data_type: StrType) -> str:
    return "type({0}) is not str or not {0}.isascii()"


def missing(declared: Field, *, is_there: bool) -> UnfitValue:
    found = "it is null" if is_there else "it is missing"
    return UnfitValue(f"{declared.name}: {found}, but {declared.type} is declared without null")


# --- to JSON -------------------------------------------------------------------------------


def json_encoder(data_type: DataType) -> JsonConverter:
    """Build a converter from a value or None to input for `json.dumps`."""
    convert = _converter(data_type)
    return lambda value: None if value is None else convert(value)


def object_encoder(fields: Sequence[Field]) -> JsonConverter:
    """Build a converter from rows to JSON objects."""
    parts = [(field.name, json_encoder(field.type)) for field in fields]
    return lambda row: {name: convert(value) for (name, convert), value in zip(parts, row, strict=True)}


@singledispatch
def _converter(data_type: DataType) -> JsonConverter:
    return lambda value: value


@_converter.register
def _(data_type: FloatingType) -> JsonConverter:
    return lambda value: value if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


@_converter.register
def _(data_type: DecimalType) -> JsonConverter:
    return str


@_converter.register
def _(data_type: IntervalType) -> JsonConverter:
    return intervals.writer_of(data_type)


@_converter.register(DateType)
@_converter.register(TimestampType)
@_converter.register(TimestampNtzType)
def _moment(data_type: DataType) -> JsonConverter:
    return lambda value: value.isoformat()


@_converter.register
def _(data_type: BytesType) -> JsonConverter:
    return lambda value: b64encode(value).decode("ascii")


@_converter.register
def _(data_type: ListType) -> JsonConverter:
    element = json_encoder(data_type.element)
    return lambda values: [element(value) for value in values]


@_converter.register
def _(data_type: MapType) -> JsonConverter:
    key, value = json_encoder(data_type.key), json_encoder(data_type.value)

    def name(found: Any) -> str:
        made = key(found)
        return made if type(made) is str else json.dumps(made, ensure_ascii=False)

    return lambda entries: {name(k): value(v) for k, v in entries}


@_converter.register
def _(data_type: StructType) -> JsonConverter:
    return object_encoder(data_type.fields)
