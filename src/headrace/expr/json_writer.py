"""Writing of JSON texts as Spark writes them: whole values, and parts of a text that is read.

Numbers are written anew: `1.50` becomes `1.5` and `1e2` becomes `100.0`. Floats that are no numbers become
strings.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from headrace.expr.code_runtime import EPOCH
from headrace.expr.functions.intervals import writer_of
from headrace.expr.json_reader import JsonReader, Token
from headrace.expr.text_casts import iso_of, of_bool, of_float, of_float32
from headrace.expr.types import (
    INTEGERS,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)

_TO_ESCAPE = re.compile(r'["\\\x00-\x1f]')
_TO_ESCAPE_IN_BYTES = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def quoted(text: str) -> str:
    """Return a text as a JSON string."""
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def quoted_in_bytes(text: str) -> str:
    """Return a text as a JSON string, with escapes for what lies beyond the basic plane."""
    return f'"{_TO_ESCAPE_IN_BYTES.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    found = match[0]
    if found in _SHORT:
        return _SHORT[found]
    units = found.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def float_text(value: float, of: Callable[[float], str] = of_float) -> str:
    """Return a float in JSON: NaN and infinities are strings. of: makes its digits."""
    text = of(value)
    return text if value - value == 0.0 else f'"{text}"'


# -- parts of a text ------------------------------------------------------------------------

_START = (Token.START_OBJECT, Token.START_ARRAY)
_END = (Token.END_OBJECT, Token.END_ARRAY)


class JsonWriter:
    """Writer of JSON values copied from a reader.

    quote: form of strings. Jackson writes into bytes and into texts differently.
    """

    __slots__ = ("_comma", "_depth", "_parts", "quote")

    def __init__(self, quote: Callable[[str], str]) -> None:
        self._parts: list[str] = []
        self._comma = ""
        self._depth = 0
        self.quote = quote

    def text(self) -> str:
        return "".join(self._parts)

    def write(self, value: str) -> None:
        """Write a value that is JSON already."""
        self._parts += (self._comma, value)
        self._comma = "," if self._depth else " "

    def write_raw(self, text: str) -> None:
        """Write a text that is no JSON."""
        self._parts.append(text)

    def start(self, token: Token) -> None:
        """Start an object or array."""
        self._parts += (self._comma, token.value)
        self._comma = ""
        self._depth += 1

    def end(self, token: Token) -> None:
        """End an object or array."""
        self._parts.append(token.value)
        self._depth -= 1
        self._comma = "," if self._depth else " "

    def copy(self, reader: JsonReader) -> None:
        """Copy the value that starts with the reader's last token. Raises `MalformedJson`."""
        depth = 0
        token = reader.token
        while token is not None:
            if token in _START:
                depth += 1
                self.start(token)
            elif token in _END:
                depth -= 1
                self.end(token)
            elif token is Token.NAME:
                self._parts += (self._comma, self.quote(reader.name or ""), ":")
                self._comma = ""
            else:
                self.write(self._scalar(reader, token))
            if not depth:
                return
            token = reader.advance()

    def _scalar(self, reader: JsonReader, token: Token) -> str:
        if token is Token.STRING:
            return self.quote(reader.string())
        if token is Token.INTEGER:
            return "0" if reader.number == "-0" else reader.number
        return float_text(float_of(reader.number)) if token is Token.FLOAT else token.value


_NON_NUMBERS = {"+INF": float("inf"), "-INF": float("-inf")}


def float_of(number: str) -> float:
    """Return the float that a number of a text is."""
    return _NON_NUMBERS[number] if number in _NON_NUMBERS else float(number)


# -- values -----------------------------------------------------------------------------------

_ToText = Callable[[Any], str]


def value_writer(type: DataType) -> _ToText | None:
    """Return the function that writes values of a type; None if there is none for it."""
    match type:
        case StructType(fields):
            writers = [value_writer(field.type) for field in fields]
            names = [f"{quoted(field.name)}:" for field in fields]
            known = [each for each in writers if each is not None]
            return _struct_writer(names, known) if len(known) == len(writers) else None
        case ListType(element):
            each = value_writer(element)
            return None if each is None else _list_writer(each)
        case MapType(key, value):
            name, each = _NAMES.get(key.__class__), value_writer(value)
            return None if name is None or each is None else _map_writer(name, each)
        case IntervalType():
            write = writer_of(type)
            return lambda value: quoted(write(value))
        case _:
            return _WRITERS.get(type.__class__)


def _struct_writer(names: list[str], writers: list[_ToText]) -> _ToText:
    fields = list(zip(names, writers, strict=True))

    def write(value: tuple[Any, ...]) -> str:
        parts = zip(fields, value, strict=True)
        return "{" + ",".join(name + of(part) for (name, of), part in parts if part is not None) + "}"

    return write


def _list_writer(each: _ToText) -> _ToText:
    def write(value: tuple[Any, ...]) -> str:
        return "[" + ",".join("null" if part is None else each(part) for part in value) + "]"

    return write


def _map_writer(name: _ToText, each: _ToText) -> _ToText:
    def write(value: tuple[tuple[Any, Any], ...]) -> str:
        entries = (f"{quoted(name(key))}:{'null' if part is None else each(part)}" for key, part in value)
        return "{" + ",".join(entries) + "}"

    return write


_INTEGER_TEXTS: dict[type[DataType], _ToText] = {type(each): str for each in INTEGERS}
_WRITERS: dict[type[DataType], _ToText] = {
    BoolType: of_bool,
    BytesType: lambda value: f'"{base64.b64encode(value).decode()}"',
    DateType: lambda value: f'"{value.isoformat()}"',
    # Java shows a decimal as Python does, with an exponent where it is small.
    DecimalType: str,
    Float64Type: float_text,
    Float32Type: lambda value: float_text(value, of_float32),
    **_INTEGER_TEXTS,
    StrType: quoted,
    TimestampNtzType: lambda value: f'"{iso_of(value)}"',
    TimestampType: lambda value: f'"{iso_of(value)}Z"',
}
# Spark writes the numbers that dates, timestamps and intervals are inside.
_NAMES: dict[type[DataType], _ToText] = {
    BoolType: of_bool,
    DateType: lambda value: str((value - EPOCH.date()).days),
    DecimalType: str,
    Float64Type: of_float,
    Float32Type: of_float32,
    **_INTEGER_TEXTS,
    IntervalType: lambda value: str(value // timedelta(microseconds=1)),
    StrType: str,
    TimestampNtzType: lambda value: str((value - EPOCH.replace(tzinfo=None)) // timedelta(microseconds=1)),
    TimestampType: lambda value: str((value - EPOCH) // timedelta(microseconds=1)),
}
