"""JSON source: files with one object per line, or one array of objects.

The first character of a file decides between the two. Values are converted by
`headrace.io.files.json_values`. Files are UTF-8; `.gz` is decompressed. An array is parsed as a whole, so
prefer lines for large files; these are parsed by `headrace.io.files.text_columns` where that means the same.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cached_property, partial
from itertools import chain, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.expr.types import INT64, DataType, DecimalType, Field, holds_maps, parts_of
from headrace.io.files.file_reader import Block, FileFormat, Record, near_misses, open_format, unreadable
from headrace.io.files.file_source import (
    BLOCK,
    WHOLE,
    BlockPosition,
    FilePart,
    Files,
    line_blocks,
    line_parts,
    open_bytes,
)
from headrace.io.files.json_values import object_decoder, object_of
from headrace.io.files.text_values import UnfitValue, shortened
from headrace.io.source import WEIGHT, BadRecord, Feed, refuse_untyped

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.io.files.text_columns import JsonColumns


@dataclass(frozen=True, init=False)
class JsonFiles(Files):
    __doc__ = "JSON files, one object per line or one array per file. " + (Files.__doc__ or "")


class JsonFormat(FileFormat):
    def __init__(self, feed: Feed, max_value_bytes: int | None = None) -> None:
        super().__init__(feed, max_value_bytes)
        self._convert = row_converter(feed)
        options: dict[str, Any] = {}
        if any(holds_decimal(f.type) for f in feed.schema.fields):
            options["parse_float"] = Decimal
        if any(holds_maps(f.type) for f in feed.schema.fields):
            options["object_pairs_hook"] = object_of
        self._load = partial(json.loads, **options)
        self._decode = json.JSONDecoder(**options).raw_decode

    def blocks(self, path: Path, part: FilePart = WHOLE) -> Iterator[Block]:
        before = BlockPosition(begin=partial(_count, path, part.start) if part.start else None)
        with open_bytes(path) as file:
            blocks = line_blocks(file, part, self.max_value_bytes)
            for lines in blocks:
                if not (part.start or before.row) and lines.lstrip().startswith(b"["):
                    yield self._array(path, self._whole(chain([_from_text(lines)], blocks)))
                    return
                ends = lines.count(b"\n")
                found = self.parsed(lines, partial(self._table, lines, ends))
                if found is None:
                    before.find()
                    yield self._lines(path, before, lines)
                else:
                    block, rows = found
                    self._look_at_first(path, lines)
                    yield block
                    before.row += rows
                    before.line += ends

    def parts(self, path: Path, size: int) -> list[FilePart]:
        with open_bytes(path) as file:
            first = b" "
            while first and not first.strip():
                first = file.read(BLOCK)
        return [WHOLE] if first.lstrip().startswith(b"[") else line_parts(path, size)

    def _whole(self, blocks: Iterable[bytes]) -> bytes:
        """Join the blocks of an array. Raises `OSError` if they have more than `max_value_bytes`."""
        limit, parts, size = self.max_value_bytes, list[bytes](), 0
        for block in blocks:
            parts.append(block)
            size += len(block)
            if limit is not None and size > limit:
                raise OSError(f"an array, which is read as a whole, has more than max_value_bytes={limit:,}")
        return b"".join(parts)

    @cached_property
    def _columns(self) -> JsonColumns:
        # Not at the top, because small files need no Arrow, which is expensive to import.
        from headrace.io.files.text_columns import JsonColumns

        return JsonColumns(self.fields)

    def _table(self, lines: bytes, ends: int) -> pa.Table | None:
        if any(holds_maps(f.type) for f in self.fields):
            return None  # Arrow reads no objects of any names.
        return self._columns.table(lines, ends)

    def _lines(self, path: Path, before: BlockPosition, lines: bytes) -> Iterator[Record]:
        is_first = True
        for line in io.BytesIO(lines):
            before.line += 1
            if line.strip():
                before.row += 1
                yield self._line(path, before.row, before.line, line, is_first=is_first)
                is_first = False

    def _line(self, path: Path, row: int, number: int, line: bytes, *, is_first: bool) -> Record:
        try:
            value = self._value(line.decode())
            if is_first:
                self._look_at(path, value)
            return self._convert(value)
        except UnfitValue as problem:
            reason = str(problem)
        except UnicodeDecodeError:
            reason = "the line is not UTF-8"
        except json.JSONDecodeError as error:
            reason = f"the line is not JSON: {error.msg}, at character {error.colno}"
        except (ValueError, RecursionError) as error:
            reason = f"the line is not JSON: {error}"
        except InvalidOperation:
            reason = "a number in the line has too large an exponent"
        text = line.decode(errors="replace").strip()
        return BadRecord(str(path), row, reason, shortened(text, 200), number)

    def _value(self, text: str) -> Any:
        try:
            value, end = self._decode(text)
        except json.JSONDecodeError:
            # Leading blanks or invalid JSON, where the error must refer to the whole text.
            return self._load(text)
        return value if text[end:] in ("\n", "\r\n", "") else self._load(text)

    def _array(self, path: Path, content: bytes) -> Iterator[Record]:
        try:
            values = self._load(content.decode())
        except (ValueError, RecursionError, InvalidOperation) as error:
            raise unreadable(
                self.feed.name, path, f"not a JSON array, although it begins with [: {error}"
            ) from error
        for row, value in enumerate(values, 1):
            if row == 1:
                self._look_at(path, value)
            try:
                yield self._convert(value)
            except UnfitValue as problem:
                text = json.dumps(value, ensure_ascii=False, default=str)
                yield BadRecord(str(path), row, str(problem), shortened(text, 200))

    def _look_at_first(self, path: Path, lines: bytes) -> None:
        """Check the first object of a block read as columns, since columns do not include all names."""
        with suppress(ValueError, RecursionError, InvalidOperation):
            self._look_at(path, self._value(lines[: lines.find(b"\n") + 1].decode()))

    def _look_at(self, path: Path, value: Any) -> None:
        """Record declared fields that the first object of a block lacks but has under a similar name."""
        for missed in near_misses(self.feed.name, self.fields, self.declared, value, str(path)):
            self.widened.setdefault(missed.column, missed)


def _from_text(lines: bytes) -> bytes:
    """Drop blank lines at the beginning."""
    blank = sum(map(len, takewhile(lambda line: not line.strip(), io.BytesIO(lines))))
    return lines[blank:]


def _count(path: Path, stop: int) -> tuple[int, int]:
    """Count the rows and lines before a part."""
    with open_bytes(path) as file:
        blocks = line_blocks(file, FilePart(0, stop))
        blank = [not line.strip() for block in blocks for line in io.BytesIO(block)]
    return len(blank) - sum(blank), len(blank)


def row_converter(feed: Feed) -> Callable[[Any], Any]:
    """Build a converter from JSON objects to internal rows, or to the rows of a record.

    The converter raises `UnfitValue`.
    """
    convert = object_decoder(feed.schema.fields, {f.name for f in feed.live_fields})
    decode = feed.decode
    if decode is not None:
        return lambda value: decode(None if value is None else convert(value))
    if feed.append:
        return convert
    weight_of = object_decoder([Field(WEIGHT, INT64, nullable=True)])

    def weighted(value: Any) -> tuple[Any, ...]:
        row = convert(value)
        return (*row, checked_weight(weight_of(value)[0]))

    return weighted


def checked_weight(weight: int | None) -> int:
    """Return the weight of a table source's row, 1 by default. Raises `UnfitValue` for 0."""
    if weight == 0:
        raise UnfitValue(f"{WEIGHT}: the weight of a row cannot be 0")
    return 1 if weight is None else weight


def holds_decimal(data_type: DataType) -> bool:
    return isinstance(data_type, DecimalType) or any(map(holds_decimal, parts_of(data_type)))


@open_format.register
def _(source: JsonFiles, feed: Feed) -> FileFormat:
    refuse_untyped(feed.schema, f"source {feed.name!r}, JSON files")
    return JsonFormat(feed, source.max_value_bytes)
