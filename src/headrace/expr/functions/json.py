"""JSON and CSV functions, under Spark's names; `from_json` has a module of its own.

`to_csv` writes a struct as a line of CSV, as Spark's writer does by default.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any

from headrace.expr.function_records import fitting_type, function
from headrace.expr.functions.intervals import writer_of
from headrace.expr.json_writer import (
    get_json_object,
    json_array_length,
    json_object_keys,
    json_path,
    json_tuple,
    value_writer,
)
from headrace.expr.text_casts import format_float, iso_of, of_float32
from headrace.expr.types import (
    INT32,
    STR,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
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
    parts_of,
)
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    Mismatch,
    Signature,
)
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column


def _tuple_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    types = tuple(fitting_type("json_tuple", argument.type, STR) for argument in arguments)
    fields = tuple(Field(f"c{at}", STR, nullable=True) for at in range(len(arguments) - 1))
    return Signature(types, StructType(fields), nullable=False)


def _tuple(emitter: Emitter, call: CallTerm) -> GuardedSource:
    text, *names = map(emitter.value, call.arguments)
    return GuardedSource(f"x_json_tuple({text}, ({''.join(f'{name}, ' for name in names)}))")


def _to_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if not isinstance(argument.type, StructType | ListType | MapType):
        raise Mismatch(f"to_json needs a struct, a list or a map, got {argument.type}")
    if value_writer(argument.type) is None:
        raise Mismatch(f"to_json does not write {argument.type}")
    return Signature((argument.type,), STR)


def _to(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"{emitter.constant(value_writer(call.arguments[0].type))}({operands[0]})"


# -- on Spark ---------------------------------------------------------------------------------


_AS_OTHER_FUNCTIONS = {"allowUnquotedControlChars": "true", "allowNonNumericNumbers": "false"}
"""Options for texts that are no strict JSON, by which `from_json` takes what the other functions do."""


def _tuple_spark(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    # Spark's json_tuple makes rows. A map has the fields in order, also those of one name.
    text, *names = arguments
    entries = F.map_entries(F.from_json(text, "map<string, string>", _AS_OTHER_FUNCTIONS))

    def last(name: Column) -> Column:
        of_name = F.filter(entries, lambda entry: (entry["key"] == name) & entry["value"].isNotNull())
        return F.try_element_at(of_name, F.lit(-1))["value"]

    assert isinstance(call.type, StructType)
    fields = zip(call.type.fields, names, strict=True)
    return F.struct(*(last(name).alias(field.name) for field, name in fields))


NAMES: dict[str, Any] = {
    "x_json_tuple": json_tuple,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "get_json_object",
        "The part of a JSON text at a path such as `$.a[0]['b']`; null if there is none.",
        (STR, STR),
        STR,
        get_json_object,
        nullable=True,
        prepared={1: json_path},
        example="'{\"a\": [7]}', '$.a[0]'",
        catalyst="GetJsonObject",
    ),
    function(
        "json_array_length",
        "Number of elements of a JSON array; null for other text.",
        (STR,),
        INT32,
        json_array_length,
        nullable=True,
        example="'[1, 2]'",
        catalyst="JsonExpressionUtils.lengthOfJsonArray",
    ),
    function(
        "json_object_keys",
        "Names of the fields of a JSON object; null for other text.",
        (STR,),
        ListType(STR, nullable=True),
        json_object_keys,
        nullable=True,
        example='\'{"a": 1, "b": 2}\'',
        catalyst="JsonExpressionUtils.jsonObjectKeys",
    ),
    function(
        "json_tuple",
        "Struct of the named fields of a JSON object, as texts `c0`, `c1`, …",
        types=_tuple_rule,
        lazy=_tuple,
        arity=(2, None),
        shown_parameters="str, *names",
        example="'{\"a\": 1}', 'a', 'b'",
        spark=_tuple_spark,
    ),
    function(
        "to_json",
        "JSON text of a struct, list or map.",
        types=_to_rule,
        code=_to,
        arity=(1, 1),
        shown_parameters="struct, list or map",
        example="struct(a=1, b='x')",
        spark=lambda call, arguments: F.to_json(arguments[0], {"timeZone": "UTC"}),
    ),
)

Writer = Callable[[Any], str]

_BLANKS = "".join(map(chr, range(33)))
"""Characters that are left out around a value: all up to the blank."""
_QUOTED = frozenset('",\n\r')
"""Characters of which a value that holds one is quoted."""


def _quoted_where_needed(text: str, *, first: bool) -> str:
    """Return a text as a CSV value. first: whether it starts the line, where # would start a comment."""
    started = text.lstrip(_BLANKS)
    if not started:
        return '""'
    kept = started.rstrip(_BLANKS)
    if _QUOTED.isdisjoint(started) and not (first and text.startswith("#")):
        return kept
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'


@singledispatch
def _writer(type: DataType, first: bool) -> Writer | None:
    """Return the function from values of a type, nulls excluded, to their text; None for other types."""
    return None


@_writer.register(StrType)
def _str(type: StrType, first: bool) -> Writer:
    return partial(_quoted_where_needed, first=first)


@_writer.register(BoolType)
def _bool(type: BoolType, first: bool) -> Writer:
    return lambda value: "true" if value else "false"


@_writer.register(IntegerType)
@_writer.register(DecimalType)
def _exact(type: IntegerType | DecimalType, first: bool) -> Writer:
    return str


@_writer.register(Float64Type)
def _float64(type: Float64Type, first: bool) -> Writer:
    return format_float


@_writer.register(Float32Type)
def _float32(type: Float32Type, first: bool) -> Writer:
    return of_float32


@_writer.register(BytesType)
def _bytes(type: BytesType, first: bool) -> Writer:
    return lambda value: f"[{value.hex(' ').upper()}]"


@_writer.register(IntervalType)
def _interval(type: IntervalType, first: bool) -> Writer:
    return writer_of(type)


@_writer.register(DateType)
def _date(type: DateType, first: bool) -> Writer:
    return date.isoformat


@_writer.register(TimestampType)
@_writer.register(TimestampNtzType)
def _timestamp(type: TimestampType | TimestampNtzType, first: bool) -> Writer:
    zone = "Z" if isinstance(type, TimestampType) else ""

    def write(value: datetime) -> str:
        return iso_of(value) + zone

    return write


def line_writer(type: StructType) -> Callable[[tuple[Any, ...]], str | None] | None:
    """Return the function from structs of a type to lines; None if a field's type is unsupported."""
    writers = [_writer(field.type, at == 0) for at, field in enumerate(type.fields)]
    known = [each for each in writers if each is not None]
    if len(known) < len(writers):
        return None

    def write(values: tuple[Any, ...]) -> str | None:
        parts = zip(known, values, strict=True)
        # An empty line, of one null, is none.
        return ",".join("" if value is None else each(value) for each, value in parts) or None

    return write


def _rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if not isinstance(argument.type, StructType):
        raise Mismatch(f"to_csv needs a struct, got {argument.type}")
    for field in argument.type.fields:
        if _writer(field.type, False) is None:
            raise Mismatch(
                f"to_csv does not write {field.type}, the type of {field.name}",
                fix="make it text before, by to_json" if parts_of(field.type) else "cast it to a type",
            )
    return Signature((argument.type,), STR, nullable=True)


def _python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    assert isinstance(call.arguments[0].type, StructType)
    return f"{emitter.constant(line_writer(call.arguments[0].type))}({operands[0]})"


CSV_FUNCTIONS: tuple[Function, ...] = (
    function(
        "to_csv",
        "Line of CSV of a struct.",
        types=_rule,
        code=_python,
        nullable=True,
        arity=(1, 1),
        shown_parameters="struct",
        example="struct(a=1, b='x, y', c=lit(True))",
        spark=lambda call, arguments: F.to_csv(arguments[0], {"timeZone": "UTC"}),
    ),
)
