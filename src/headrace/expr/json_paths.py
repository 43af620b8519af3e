"""Parts of JSON texts: `get_json_object` with its paths, and the fields and elements at the top.

A path is `$` and steps: `.name`, `['name']`, `[0]`, `[*]`. The text of a string is given without quotes; what
`[*]` finds is an array, but for one element alone. Lists within lists that are both read by `[*]` become one.
A part that comes before an error in the text is not given either, unless the text ends before it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from typing import TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.json_reader import SURROGATE, JsonReader, MalformedJson, Token
from headrace.expr.json_writer import JsonWriter, quoted, quoted_in_bytes


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
_END = re.compile(r"\s*\Z", re.ASCII)


@lru_cache(maxsize=256)
def json_path(text: str) -> Path | None:
    """Parse a path; None for one that finds nothing: an invalid one, and one with the wildcard of fields.

    Raises `EvaluationError` beyond `MAX_STEPS`.
    """
    if not text.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while not _END.match(text, at):
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
    """Form of what is found: a string without quotes, with them, or a list as its elements."""

    RAW = auto()
    QUOTED = auto()
    FLAT = auto()


def get_json_object(text: str, path: Path | None) -> str | None:
    """Return the part of a text that a path finds; null if it finds none, or the text is malformed."""
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
    """Write what a path finds in the value that starts with the last token; return whether it finds any."""
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
    """Write the elements of an array, and of those within it."""
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
    """Write what is found in each element of an array."""
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
    """Write an array of what is found in each element, or the value alone if one has any."""
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
    """Return the names of the fields of an object, also repeated ones; null for other texts."""
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
    """Return the values of fields of an object, strings without quotes; the last one of repeated names.

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
