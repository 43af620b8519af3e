"""Parquet source: files with columns matched by name, and the sizes of their pages.

Extra columns are ignored. A column may have any type that converts without loss: narrower or unsigned
integers and floats, integers for floats (up to 2**53) and decimals, other timestamp units and zones (no
zone means UTC; fractions of a microsecond are dropped), other decimal precisions if the digits fit,
dictionaries, large and view types. A log line tells of widened columns (`io.files.file_reader`). Anything
else is an error naming the file and column; as in Spark's own reader, a date is not a timestamp.

A page is decompressed as a whole, and a few bytes of it may become gigabytes. pyarrow tells only the sizes
of columns, so the headers are read here: structs in Thrift's compact protocol, whose third and second
fields are the sizes of the page with and without compression.

This module needs no Arrow, which is expensive to import: tasks that read JSON do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq

from headrace.io.files.file_reader import Block, FileFormat, open_format
from headrace.io.files.file_source import WHOLE, FilePart, Files
from headrace.io.source import Feed, refuse_untyped


@dataclass(frozen=True, init=False)
class ParquetFiles(Files):
    __doc__ = "Parquet files. " + (Files.__doc__ or "")


class ParquetFormat(FileFormat):
    def blocks(self, path: Path, part: FilePart = WHOLE) -> Iterator[Block]:
        # Not at the top, because Arrow is expensive to import, and tasks that read JSON do not need it.
        from headrace.io.files.parquet_rows import blocks

        return blocks(self, path, part)

    def parts(self, path: Path, size: int) -> list[FilePart]:
        from headrace.io.files.parquet_rows import parts

        return parts(path, size)

    def count(self, path: Path, part: FilePart = WHOLE) -> int | None:
        from headrace.io.files.parquet_rows import count

        return count(path, part)


@open_format.register
def _(source: ParquetFiles, feed: Feed) -> FileFormat:
    refuse_untyped(feed.schema, f"source {feed.name!r}, Parquet files")
    return ParquetFormat(feed, source.max_value_bytes)


_HEADER = 1 << 16
"""Bytes that hold any header: writers cut the values of its statistics."""
_BINARY, _LIST, _SET, _STRUCT = 8, 9, 10, 12
_WIDTHS = {1: 0, 2: 0, 3: 1, 7: 8}
"""Bytes of values by type: booleans, which the type itself tells, a byte, a double."""


def large_pages(
    file: pq.ParquetFile, path: Path, groups: range, names: set[str], limit: int
) -> Iterator[tuple[str, int]]:
    """Yield the pages of some columns that have more than `limit` bytes, as column and size.

    Raises `ValueError` for a header that is none.
    """
    with path.open("rb") as content:
        for group in groups:
            chunks = file.metadata.row_group(group)
            for at in range(chunks.num_columns):
                chunk = chunks.column(at)
                name = chunk.path_in_schema.partition(".")[0]
                if name in names:
                    first = [chunk.data_page_offset, chunk.dictionary_page_offset]
                    start = min(offset for offset in first if offset is not None)
                    sizes = _page_sizes(content, start, start + chunk.total_compressed_size)
                    yield from ((name, size) for size in sizes if size > limit)


def _page_sizes(content: BinaryIO, start: int, stop: int) -> Iterator[int]:
    while start < stop:
        content.seek(start)
        header = _Compact(content.read(_HEADER))
        try:
            numbers = header.struct()
            size, compressed = numbers[2], numbers[3]
        except (IndexError, KeyError) as error:
            raise ValueError("a page has no header that can be read") from error
        if size < 0 or compressed < 0:
            raise ValueError("a page has a negative size")
        yield size
        start += header.at + compressed


class _Compact:
    """Reader of a struct in Thrift's compact protocol. at: the next byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Skip a struct, and return its numbers by field."""
        if depth > 8:
            raise ValueError("a page has no header that can be read")
        numbers: dict[int, int] = {}
        field = 0
        while (byte := self._byte()) != 0:
            field = field + (byte >> 4) if byte >> 4 else _signed(self._number())
            kind = byte & 15
            if kind in (4, 5, 6):
                numbers[field] = _signed(self._number())
            else:
                self._skip(kind, depth)
        return numbers

    def _skip(self, kind: int, depth: int) -> None:
        if kind in _WIDTHS:
            self.at += _WIDTHS[kind]
        elif kind in (4, 5, 6):
            self._number()
        elif kind == _BINARY:
            length = self._number()
            self.at += length
        elif kind == _STRUCT:
            self.struct(depth + 1)
        elif kind in (_LIST, _SET):
            byte = self._byte()
            count = byte >> 4 if byte >> 4 < 15 else self._number()
            for _ in range(count):
                # Booleans have a byte each in lists.
                self.at += 1 if byte & 15 in (1, 2) else 0
                self._skip(byte & 15, depth + 1)
        else:
            raise ValueError("a page has no header that can be read")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _number(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
            shift += 7


def _signed(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
