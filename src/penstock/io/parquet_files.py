"""Parquet files: columns are found by name, others are ignored.

A column may be written in any type that means the same without loss: narrower
integers and floats, unsigned ones as far as the values fit, other units and
zones of timestamps (no zone means UTC; below a microsecond is dropped), other
precisions of decimals as far as the digits fit, dictionaries, large and view
forms. Everything else is an error that names file and column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.io.arrow_needed import need_arrow
from penstock.io.file_reader import FileFormat, FilesReader, Record
from penstock.io.files import Files
from penstock.io.listing import Listing
from penstock.io.source import Feed, Reader, open_source
from penstock.io.untyped import refuse_untyped


@dataclass(frozen=True, init=False)
class ParquetFiles(Files):
    __doc__ = "Parquet files. " + (Files.__doc__ or "")


class ParquetFormat(FileFormat):
    def __init__(self, feed: Feed) -> None:
        need_arrow(f"source {feed.name!r}")
        feed.reserved()
        self._feed = feed

    def records(self, path: Path, skip: int) -> Iterator[Record]:
        # Only here: Arrow costs more to import than all else, and tasks that read JSON do without.
        from penstock.io.parquet_rows import records

        return records(self._feed, path, skip)


@open_source.register
def _(source: ParquetFiles, feed: Feed) -> Reader:
    refuse_untyped(feed.schema, f"source {feed.name!r}, Parquet files")
    return FilesReader(Listing(feed.name, source.path, feed.skip), ParquetFormat(feed), feed, source)
