"""JSON output as Spark writes it, and extraction of parts of JSON texts.

Numbers are written anew: `1.50` becomes `1.5` and `1e2` becomes `100.0`. Floats that are no numbers become
strings.

The path of a part (`get_json_object`) is `$` and steps: `.name`, `['name']`, `[0]`, `[*]`. The text of a
string is given without quotes; what `[*]` finds is an array, but for one element alone. Lists within lists
that are both read by `[*]` become one. A part that comes before an error in the text is not given either,
unless the text ends before it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum, auto
from functools import lru_cache
from typing import Any, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH
from headrace.expr.functions.intervals import writer_of
from headrace.expr.json_reader import SURROGATE, JsonReader, MalformedJson, Token
from headrace.expr.text_casts import format_bool, format_float, iso_of, of_float32
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
    """Return a text as a JSON string, with escapes for characters beyond the basic plane."""
    return f'"{_TO_ESCAPE_IN_BYTES.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    found = match[0]
    if found in _SHORT:
        return _SHORT[found]
    units = found.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def float_text(value: float, of: Callable[[float], str] = format_float) -> str:
    """Return a float as JSON; NaN and infinities are strings. of: formats the float."""
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
        """Write a value that is already JSON."""
        self._parts += (self._comma, value)
        self._comma = "," if self._depth else " "

    def write_raw(self, text: str) -> None:
        """Write raw text that is not JSON."""
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
    """Convert the text of a JSON number to a float."""
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
    BoolType: format_bool,
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
    BoolType: format_bool,
    DateType: lambda value: str((value - EPOCH.date()).days),
    DecimalType: str,
    Float64Type: format_float,
    Float32Type: of_float32,
    **_INTEGER_TEXTS,
    IntervalType: lambda value: str(value // timedelta(microseconds=1)),
    StrType: str,
    TimestampNtzType: lambda value: str((value - EPOCH.replace(tzinfo=None)) // timedelta(microseconds=1)),
    TimestampType: lambda value: str((value - EPOCH) // timedelta(microseconds=1)),
}


class Wildcard(Enum):
    """Step to each element of an array."""

    EACH = "[*]"


Step: TypeAlias = str | int | Wildcard
Path: TypeAlias = tuple[Step, ...]

MAX_STEPS = 100
_MAX_INDEX = 2**63 - 1

# Java skips space before names, quotes and numbers, but not before points and brackets.
_STEP = re.compile(
    r"""\s*(?P<any>\.\*|\['\*'\])
    | \.\s*+(?P<name>[^.\[]+)
    | \s*\['\s*+(?P<quoted>[^']+)'\]
    | \[(?:(?P<each>\*)|\s*+(?P<index>[0-9]+))\]""",
    re.ASCII | re.VERBOSE,
)
_PATH_END = re.compile(r"\s*\Z", re.ASCII)


@lru_cache(maxsize=256)
def json_path(text: str) -> Path | None:
    """Parse a path; None for a path that matches nothing: an invalid one, or one with a field wildcard.

    Raises `EvaluationError` beyond `MAX_STEPS`.
    """
    if not text.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while not _PATH_END.match(text, at):
        match = _STEP.match(text, at)
        if match is None or match["any"]:
            return None
        name = match["name"] or match["quoted"]
        if name is not None:
            steps.append(name)
        elif match["each"]:
            steps.append(Wildcard.EACH)
        else:
            digits = match["index"].lstrip("0") or "0"
            if len(digits) > len(str(_MAX_INDEX)) or int(digits) > _MAX_INDEX:
                return None
            steps.append(int(digits))
        at = match.end()
    if len(steps) > MAX_STEPS:
        raise EvaluationError(
            f"a JSON path has {len(steps)} steps, more than {MAX_STEPS}",
            fix=f"take {MAX_STEPS} of them first, then the others",
        )
    return tuple(steps)


class _Style(Enum):
    """Output form of a match: a string without or with quotes, or a list as its elements."""

    RAW = auto()
    QUOTED = auto()
    FLAT = auto()


def get_json_object(text: str, path: Path | None) -> str | None:
    """Return the part of a text that a path matches; null if there is none, or the text is malformed."""
    if path is None:
        return None
    reader, writer = JsonReader(text), JsonWriter(quoted_in_bytes)
    try:
        if reader.advance() is None:
            return None
        found = _write(reader, writer, _Style.RAW, path)
    except MalformedJson:
        return None
    result = writer.text()
    return None if not found or SURROGATE.search(result) else result


def _write(reader: JsonReader, writer: JsonWriter, style: _Style, path: Path) -> bool:
    """Write a path's matches in the value that starts with the last token; return whether any exist."""
    if not path:
        return _write_value(reader, writer, style)
    step, rest = path[0], path[1:]
    if reader.token is Token.START_OBJECT and isinstance(step, str):
        return _write_field(reader, writer, style, step, rest)
    if reader.token is Token.START_ARRAY and isinstance(step, Wildcard):
        return _write_elements(reader, writer, style, rest)
    if reader.token is Token.START_ARRAY and isinstance(step, int):
        inner = _Style.QUOTED if rest[:1] == (Wildcard.EACH,) else style
        return _write_element(reader, writer, inner, step, rest)
    reader.skip_children()
    return False


def _write_value(reader: JsonReader, writer: JsonWriter, style: _Style) -> bool:
    if style is _Style.RAW and reader.token is Token.STRING:
        writer.write_raw(reader.string())
    elif style is _Style.FLAT and reader.token is Token.START_ARRAY:
        return _write_flat(reader, writer)
    else:
        writer.copy(reader)
    return True


def _write_flat(reader: JsonReader, writer: JsonWriter) -> bool:
    """Write the elements of an array, with nested arrays flattened."""
    found, depth = False, 1
    while depth:
        token = reader.advance()
        if token is Token.START_ARRAY:
            depth += 1
        elif token is Token.END_ARRAY:
            depth -= 1
        else:
            writer.copy(reader)
            found = True
    return found


def _write_field(reader: JsonReader, writer: JsonWriter, style: _Style, name: str, rest: Path) -> bool:
    found = False
    while reader.advance() is not Token.END_OBJECT:
        if not found and reader.name == name:
            found = reader.advance() is not Token.NULL and _write(reader, writer, style, rest)
        else:
            reader.advance()
            reader.skip_children()
    return found


def _write_element(reader: JsonReader, writer: JsonWriter, style: _Style, index: int, rest: Path) -> bool:
    found, at = False, 0
    while reader.advance() is not Token.END_ARRAY:
        if at == index:
            found = _write(reader, writer, style, rest)
        else:
            reader.skip_children()
        at += 1
    return found


def _write_elements(reader: JsonReader, writer: JsonWriter, style: _Style, rest: Path) -> bool:
    """Write a path's matches in each element of an array."""
    twice = rest[:1] == (Wildcard.EACH,)
    if not twice and style is not _Style.QUOTED:
        return _write_few(reader, writer, _Style.QUOTED if style is _Style.RAW else style, rest)
    inner, after = (_Style.FLAT, rest[1:]) if twice else (_Style.QUOTED, rest)
    writer.start(Token.START_ARRAY)
    found = False
    while reader.advance() is not Token.END_ARRAY:
        found |= _write(reader, writer, inner, after)
    writer.end(Token.END_ARRAY)
    return found


def _write_few(reader: JsonReader, writer: JsonWriter, style: _Style, rest: Path) -> bool:
    """Write the elements' matches as an array, or alone if only one element has any."""
    inner = JsonWriter(quoted)
    inner.start(Token.START_ARRAY)
    count = 0
    while reader.advance() is not Token.END_ARRAY:
        count += _write(reader, inner, style, rest)
    inner.end(Token.END_ARRAY)
    if count:
        writer.write(inner.text() if count > 1 else inner.text()[1:-1])
    return count > 0


# -- the top of a text ----------------------------------------------------------------------


def json_array_length(text: str) -> int | None:
    """Return the number of elements of an array; null for other texts."""
    reader = JsonReader(text)
    count = 0
    try:
        if reader.advance() is not Token.START_ARRAY:
            return None
        while reader.advance() is not Token.END_ARRAY:
            reader.skip_children()
            count += 1
    except MalformedJson:
        return None
    return count


def json_object_keys(text: str) -> tuple[str, ...] | None:
    """Return the names of the fields of an object, including repeated ones; null for other texts."""
    reader = JsonReader(text)
    names: list[str] = []
    try:
        if reader.advance() is not Token.START_OBJECT:
            return None
        while reader.advance() is not Token.END_OBJECT:
            names.append(SURROGATE.sub("?", reader.name or ""))
            reader.advance()
            reader.skip_children()
    except MalformedJson:
        return None
    return tuple(names)


def json_tuple(text: str | None, names: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return fields of an object as text, with strings unquoted. A repeated name keeps its last value.

    All are null for other texts.
    """
    nothing: tuple[str | None, ...] = (None,) * len(names)
    if text is None:
        return nothing
    found: dict[str | None, str] = {}
    reader = JsonReader(text)
    try:
        if reader.advance() is not Token.START_OBJECT:
            return nothing
        while reader.advance() is not Token.END_OBJECT:
            name = reader.name
            if reader.advance() is not Token.NULL and name in names:
                found[name] = _as_text(reader)
            else:
                reader.skip_children()
    except MalformedJson:
        return nothing
    return tuple(map(found.get, names))


def _as_text(reader: JsonReader) -> str:
    if reader.token is Token.STRING:
        text = reader.string()
        if SURROGATE.search(text):
            raise MalformedJson("half a character")
        return text
    writer = JsonWriter(quoted_in_bytes)
    writer.copy(reader)
    return writer.text()
