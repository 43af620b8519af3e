"""Spark's `from_json`: values of a type from the text of a JSON object or array.

Fields are found by name, the last one of repeated names. What has another type than its field is null, and
so is a list or map with one such value; a struct with such a field keeps its others. Of a text that is not
JSON, all fields of a struct are null, and a list or map is null itself. In the mode FAILFAST all of these
raise. After an error within a field, reading goes on from where the parser stands: see
`headrace.expr.json_reader`. A name that is repeated in a map raises: a map has each key once.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import DecimalSpec
from headrace.expr.function_records import (
    fitting_type,
    function,
    is_text,
    is_type,
)
from headrace.expr.functions.json_scalars import (
    NUMBERS,
    SCALAR_CONVERTERS,
    Convert,
    Partial,
    ScalarReader,
    Unfit,
    decimal_of_json,
    refuse,
)
from headrace.expr.functions.maps import map_of
from headrace.expr.json_reader import SURROGATE, MalformedJson, Token
from headrace.expr.spark_columns import rebuilt, spark_type
from headrace.expr.types import (
    DATE,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
    holds_maps,
    parts_of,
)
from headrace.expr.typing_rules import Arguments, CallTerm, Emitter, Function, Mismatch, Signature
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column


CORRUPT_RECORD = "_corrupt_record"
"""Field at the top that gets the whole text if something in it does not fit."""


class ParseMode(Enum):
    """Treatment of a text that does not fit its type: nulls, or an error."""

    PERMISSIVE = "PERMISSIVE"
    FAILFAST = "FAILFAST"


_Fields: TypeAlias = dict[str | None, tuple[int, Convert]]
"""Position of each field, and the reader of its values."""


def json_parser(type: DataType, mode: ParseMode) -> Callable[[str], Any]:
    """Return the parser of texts to values of a struct, list or map type."""
    parse = _parser(type, mode)
    check = _key_check(type)
    if check is None:
        return parse

    def checked(text: str) -> Any:
        value = parse(text)
        if value is not None:
            check(value)
        return value

    return checked


def _parser(type: DataType, mode: ParseMode) -> Callable[[str], Any]:
    if isinstance(type, ListType | MapType):
        read = _list_at_top(type) if isinstance(type, ListType) else _converter(type)
        return partial(_parsed, read, None, lambda value, text: value, mode)
    assert isinstance(type, StructType)
    names = tuple(field.name for field in type.fields)
    corrupt = names.index(CORRUPT_RECORD) if CORRUPT_RECORD in names else None

    def with_text(value: tuple[Any, ...], text: str) -> tuple[Any, ...]:
        return value if corrupt is None else (*value[:corrupt], text, *value[corrupt + 1 :])

    fields = _fields_of(type)
    fields.pop(CORRUPT_RECORD, None)
    read = _checked(partial(_object, fields, len(names)), Token.START_OBJECT)
    return partial(_parsed, read, (None,) * len(names), with_text, mode)


def _parsed(
    read: Convert,
    nothing: tuple[Any, ...] | None,
    with_text: Callable[[Any, str], Any],
    mode: ParseMode,
    text: str,
) -> Any:
    """Parse a text. nothing: the value if it does not fit. with_text: adds the text to a bad value."""
    reader = ScalarReader(text)
    found, fits = nothing, False
    try:
        if reader.advance() is None:
            return None
        value = read(reader)
        if value is not None:
            found, fits = value, True
    except Partial as rest:
        found = rest.value
    except (Unfit, MalformedJson):
        pass
    if reader.error is not None and found is not nothing:
        raise reader.error
    if fits:
        return found
    if mode is ParseMode.FAILFAST:
        shown = text if len(text) <= 60 else text[:57] + "..."
        raise EvaluationError(
            f"{shown!r} is no JSON of its type", fix="in the mode PERMISSIVE, what does not fit becomes null"
        )
    return with_text(found, text)


# -- structs, lists and maps --------------------------------------------------------------


def _fields_of(struct: StructType) -> _Fields:
    return {field.name: (at, _converter(field.type)) for at, field in enumerate(struct.fields)}


def _object(fields: _Fields, width: int, reader: ScalarReader) -> tuple[Any, ...]:
    row: list[Any] = [None] * width
    unfit = False
    while reader.advance() not in (None, Token.END_OBJECT):
        known = fields.get(reader.name)
        if known is None:
            reader.skip_children()
            continue
        at, convert = known
        try:
            row[at] = convert(reader)
        except Partial as found:
            unfit = True
            row[at] = found.value
        except (Unfit, MalformedJson):
            unfit = True
            reader.skip_children()
    if unfit:
        raise Partial(tuple(row))
    return tuple(row)


def _array(element: Convert, reader: ScalarReader) -> tuple[Any, ...]:
    values: list[Any] = []
    unfit = False
    while reader.advance() not in (None, Token.END_ARRAY):
        try:
            values.append(element(reader))
        except Partial as found:
            unfit = True
            values.append(found.value)
    if unfit:
        raise Partial(tuple(values))
    return tuple(values)


def _map(convert: Convert, reader: ScalarReader) -> tuple[tuple[str, Any], ...]:
    entries: list[tuple[str, Any]] = []
    unfit = lost = False
    while reader.advance() not in (None, Token.END_OBJECT):
        name = SURROGATE.sub("?", reader.name or "")
        try:
            entries.append((name, convert(reader)))
        except Partial as found:
            unfit = True
            entries.append((name, found.value))
        except (Unfit, MalformedJson):
            lost = True
            reader.skip_children()
    if lost:
        raise Unfit
    if unfit:
        raise Partial(tuple(entries))
    return tuple(entries)


def _key_check(type: DataType) -> Callable[[Any], None] | None:
    """Return the function that raises for a map with a duplicate key; None for types without maps."""
    match type:
        case StructType(fields):
            checks = [(at, check) for at, field in enumerate(fields) if (check := _key_check(field.type))]
            return partial(_check_fields, checks) if checks else None
        case ListType(element):
            check = _key_check(element)
            return None if check is None else partial(_check_elements, check)
        case MapType():
            return partial(_check_entries, _key_check(type.value))
        case _:
            return None


def _check_fields(checks: list[tuple[int, Callable[[Any], None]]], value: tuple[Any, ...]) -> None:
    for at, check in checks:
        if value[at] is not None:
            check(value[at])


def _check_elements(check: Callable[[Any], None], value: tuple[Any, ...]) -> None:
    for each in value:
        if each is not None:
            check(each)


def _check_entries(check: Callable[[Any], None] | None, value: tuple[tuple[str, Any], ...]) -> None:
    map_of(value)
    if check is not None:
        _check_elements(check, tuple(part for _, part in value))


def _list_at_top(type: ListType) -> Convert:
    """Return the reader of a top-level list; an object counts as a list of one struct."""
    element = _converter(type.element)

    def convert(reader: ScalarReader) -> Any:
        if reader.token is Token.START_OBJECT and isinstance(type.element, StructType):
            try:
                return (element(reader),)
            except Partial as found:
                raise Partial((found.value,)) from None
        return read(reader)

    read = _checked(partial(_array, element), Token.START_ARRAY)
    return convert


def _checked(convert: Convert, *tokens: Token) -> Convert:
    """Return the reader of values that must start with one of `tokens`; null stays null."""

    def checked(reader: ScalarReader) -> Any:
        token = reader.token
        while token is Token.NAME:
            token = reader.advance()
        if token is None or token is Token.NULL:
            return None
        if token not in tokens:
            refuse(reader)
        return convert(reader)

    return checked


# -- values -------------------------------------------------------------------------------

_BASIC_PLANE = "\uffff"


# -- times --------------------------------------------------------------------------------


# -- the function -------------------------------------------------------------------------


def _converter(type: DataType) -> Convert:
    """Return the reader of values of a type."""
    match type:
        case StructType(fields):
            return _checked(partial(_object, _fields_of(type), len(fields)), Token.START_OBJECT)
        case ListType(element):
            return _checked(partial(_array, _converter(element)), Token.START_ARRAY)
        case MapType():
            return _checked(partial(_map, _converter(type.value)), Token.START_OBJECT)
        case DecimalType():
            return _checked(partial(decimal_of_json, DecimalSpec.of(type)), *NUMBERS, Token.STRING)
        case _:
            convert, *tokens = SCALAR_CONVERTERS[type]
            return _checked(convert, *tokens)


def _nullable(type: DataType) -> DataType:
    """Allow nulls at any depth of a type. Raises `Mismatch` for types that cannot be read from JSON."""
    match type:
        case StructType(fields):
            named = tuple(Field(field.name, _nullable(field.type), nullable=True) for field in fields)
            return StructType(named, type.row_class)
        case ListType(element):
            return ListType(_nullable(element), nullable=True)
        case MapType():
            if type.key != STR:
                raise Mismatch(f"from_json reads maps with keys of type str, not {type}")
            return MapType(STR, _nullable(type.value), nullable=True)
        case DecimalType():
            return type
        case _ if type in SCALAR_CONVERTERS:
            return type
        case _:
            raise Mismatch(f"from_json does not read {type}", fix="read a str, and convert it")


def _rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    type, mode = options
    if not isinstance(type, StructType | ListType | MapType):
        raise Mismatch(f"from_json makes a struct, a list or a map, not {type}")
    if mode not in ParseMode.__members__:
        raise Mismatch(f"from_json has no mode {mode!r}", fix=f"one of {', '.join(ParseMode.__members__)}")
    result = _nullable(type)
    corrupt = [f for f in type.fields if f.name == CORRUPT_RECORD] if isinstance(type, StructType) else []
    if any(field.type != STR for field in corrupt):
        raise Mismatch(f"the field {CORRUPT_RECORD} gets the text: it is a str")
    text = fitting_type("from_json", arguments[0].type, STR)
    return Signature((text,), result, nullable=True)


def _python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    mode = ParseMode(call.options[1])
    return f"{emitter.constant(json_parser(call.type, mode))}({operands[0]})"


def _fallible(call: CallTerm) -> bool:
    return call.options[1] == ParseMode.FAILFAST.value or _holds_times(call.type) or holds_maps(call.type)


def _holds_times(type: DataType) -> bool:
    """Return whether a type contains dates or timestamps, some of which only Spark can represent."""
    return type in (DATE, TIMESTAMP, TIMESTAMP_NTZ) or any(map(_holds_times, parts_of(type)))


# -- on Spark ---------------------------------------------------------------------------------


_UTC = {"timeZone": "UTC"}


def _from_spark(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    # Spark wants a struct, an array or a map here, which the typing rule guarantees.
    type: Any = spark_type(call.type)
    read = F.from_json(arguments[0], type, {**_UTC, "mode": str(call.options[1])})
    # A map in which a key comes twice, as Spark makes them here, is an error when it is made of entries.
    return rebuilt(call.type, read, before=F.map_entries, after=F.map_from_entries)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "from_json",
        types=_rule,
        code=_python,
        fallible=_fallible,
        nullable=True,
        arity=(1, 1),
        options=(is_type, is_text),
        spark=_from_spark,
    ),
)
