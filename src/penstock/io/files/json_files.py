"""JSON source: files with one object per line, or one array of objects.

The first character of a file decides between the two. Values are converted by
`penstock.io.files.json_values`. Files are UTF-8; `.gz` is decompressed. An array is parsed as a whole, so
prefer lines for large files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.expr.types import INT64, DataType, DecimalType, Field, ListType, StructType
from penstock.io.files.file_reader import FileFormat, FilesReader, Record, open_bytes, unreadable
from penstock.io.files.file_source import Files, Listing
from penstock.io.files.json_values import from_object
from penstock.io.files.text_values import Unfit, shortened
from penstock.io.requirements import refuse_untyped
from penstock.io.source import WEIGHT, BadRecord, Feed, Reader, open_source

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, init=False)
class JsonFiles(Files):
    __doc__ = "JSON files, one object per line or one array per file. " + (Files.__doc__ or "")


class JsonFormat(FileFormat):
    def __init__(self, feed: Feed) -> None:
        self._source = feed.name
        self._convert = row_converter(feed)
        self._load = json.loads
        self._decode = json.JSONDecoder().raw_decode
        if any(holds_decimal(f.type) for f in feed.schema.fields):
            self._load = lambda text: json.loads(text, parse_float=Decimal)
            self._decode = json.JSONDecoder(parse_float=Decimal).raw_decode

    def records(self, path: Path, skip: int) -> Iterator[Record]:
        with open_bytes(path) as file:
            row = 0
            for number, line in enumerate(file, 1):
                if number == 1 and line.startswith(_BOM):
                    line = line[len(_BOM) :]
                if not line.strip():
                    continue
                if not row and line.lstrip().startswith(b"["):
                    yield from self._array(path, skip, line + file.read())
                    return
                row += 1
                if row > skip:
                    yield self._line(path, row, number, line)

    def _line(self, path: Path, row: int, number: int, line: bytes) -> Record:
        try:
            return self._convert(self._value(line.decode()))
        except Unfit as problem:
            reason = str(problem)
        except UnicodeDecodeError:
            reason = "the line is not UTF-8"
        except json.JSONDecodeError as error:
            reason = f"the line is not JSON: {error.msg}, at character {error.colno}"
        except (ValueError, RecursionError) as error:
            reason = f"the line is not JSON: {error}"
        text = line.decode(errors="replace").strip()
        return BadRecord(str(path), row, reason, shortened(text, 200), number)

    def _value(self, text: str) -> Any:
        try:
            value, end = self._decode(text)
        except json.JSONDecodeError:
            # Leading blanks or invalid JSON, where the error must refer to the whole text.
            return self._load(text)
        return value if text[end:] in ("\n", "\r\n", "") else self._load(text)

    def _array(self, path: Path, skip: int, content: bytes) -> Iterator[Record]:
        try:
            values = self._load(content.decode())
        except (ValueError, RecursionError) as error:
            raise unreadable(
                self._source, path, f"not a JSON array, although it begins with [: {error}"
            ) from error
        for row, value in enumerate(values, 1):
            if row > skip:
                try:
                    yield self._convert(value)
                except Unfit as problem:
                    text = json.dumps(value, ensure_ascii=False, default=str)
                    yield BadRecord(str(path), row, str(problem), shortened(text, 200))


def row_converter(feed: Feed) -> Callable[[Any], Any]:
    """Build a converter from JSON objects to internal rows, or to the rows of a record; it raises `Unfit`."""
    feed.refuse_weight_column()
    convert = from_object(feed.schema.fields)
    decode = feed.decode
    if decode is not None:
        return lambda value: decode(None if value is None else convert(value))
    if feed.append:
        return convert
    weight_of = from_object([Field(WEIGHT, INT64, nullable=True)])

    def weighted(value: Any) -> tuple[Any, ...]:
        row = convert(value)
        return (*row, checked_weight(weight_of(value)[0]))

    return weighted


def checked_weight(weight: int | None) -> int:
    """Return the weight of a table source's row, 1 by default. Raises `Unfit` for 0."""
    if weight == 0:
        raise Unfit(f"{WEIGHT}: the weight of a row cannot be 0")
    return 1 if weight is None else weight


def holds_decimal(data_type: DataType) -> bool:
    if isinstance(data_type, ListType):
        return holds_decimal(data_type.element)
    if isinstance(data_type, StructType):
        return any(holds_decimal(f.type) for f in data_type.fields)
    return isinstance(data_type, DecimalType)


@open_source.register
def _(source: JsonFiles, feed: Feed) -> Reader:
    refuse_untyped(feed.schema, f"source {feed.name!r}, JSON files")
    return FilesReader(Listing(feed.name, source.path, feed.skip), JsonFormat(feed), feed, source)
