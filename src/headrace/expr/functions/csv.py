"""`to_csv`, which writes a struct as a line of CSV, as Spark's writer does by default."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from functools import partial, singledispatch
from typing import Any

from headrace.expr.code_emission import Emitter
from headrace.expr.deferred_imports import F
from headrace.expr.function_records import function
from headrace.expr.functions.intervals import writer_of
from headrace.expr.text_casts import iso_of, of_float, of_float32
from headrace.expr.types import (
    STR,
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
    StructType,
    TimestampNtzType,
    TimestampType,
    parts_of,
)
from headrace.expr.typing_rules import Arguments, CallTerm, Function, Mismatch, Signature

Writer = Callable[[Any], str]

_BLANKS = "".join(map(chr, range(33)))
"""Characters that are left out around a value: all up to the blank."""
_QUOTED = frozenset('",\n\r')
"""Characters of which a value that holds one is quoted."""


def _quoted_where_needed(text: str, *, first: bool) -> str:
    """Return a text as a value in a line. first: whether it is the first one, which would seem a comment."""
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
    return of_float


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
    """Return the function from structs of a type to lines; None if a field has a type that isn't written."""
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


FUNCTIONS: tuple[Function, ...] = (
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
