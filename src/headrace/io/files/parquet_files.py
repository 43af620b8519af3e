"""Parquet source: files with columns matched by name.

Extra columns are ignored. A column may have any type that converts without loss: narrower or unsigned
integers and floats, integers for floats (up to 2**53) and decimals, other timestamp units and zones (no zone
means UTC; fractions of a microsecond are dropped), other decimal precisions if the digits fit, dictionaries,
large and view types. A log line tells of widened columns (`io.files.file_reader`). Anything else is an
error naming the file and column; as in Spark's own reader, a date is not a timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
