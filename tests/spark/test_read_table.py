"""Files that tasks read as columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark")

from headrace.errors import BadRow, UnreadableSource
from headrace.expr.row_classes import schema_of
from headrace.io import CsvFiles, JsonFiles
from headrace.io.files.file_reader import open_format
from headrace.io.files.file_source import WHOLE, FilePart
from headrace.io.source import Feed
from headrace.spark.sources.arrivals import location_of
from headrace.spark.ticks.intake import Taken, read_table
from headrace.spark.ticks.plan import Input


class Bid(NamedTuple):
    item: int
    price: int
    note: str | None


LINES = {
    JsonFiles: ("", '{{"item": {0}, "price": {0}}}\n'),
    CsvFiles: ("price,item\n", "{0},{0}\n"),
}


def source(path: Path, kind: Any, bad: int | None = None, **options: Any) -> Input:
    header, line = LINES[kind]
    lines = [line.format("1.5" if n == bad else n) for n in range(50_000)]
    path.write_text(header + "".join(lines))
    return Input("bids", schema_of(Bid), append=True, reading=kind(path, **options), live=frozenset({"item"}))


@pytest.mark.parametrize("kind", LINES)
def test_a_bad_row_is_set_aside_and_the_others_are_columns(kind: Any, tmp_path: Path) -> None:
    read = source(tmp_path / "a", kind, 40_000, dead_letter=tmp_path / "dead")
    taken = Taken()
    table = read_table(read.reading, str(tmp_path / "a"), read, taken)
    assert table is not None
    assert table.column_names == ["item"]
    assert table.column("item").to_pylist() == [n for n in range(50_000) if n != 40_000]
    assert [(name, bad.row, bad.reason) for name, bad in taken.bad] == [("bids", 40_001, reason(kind))]


def reason(kind: Any) -> str:
    return "item: expected an int64, found " + ("1.5" if kind is JsonFiles else "'1.5'")


@pytest.mark.parametrize("kind", LINES)
def test_parts_of_a_file_name_the_rows_of_the_whole(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "a"
    read = source(path, kind, 40_000)
    parts = open_format(read.reading, Feed("bids", read.schema)).parts(path, 200_000)
    assert len(parts) > 1
    for part in parts:
        try:
            table = read_table(read.reading, location_of(str(path), part), read, Taken())
        except BadRow as error:
            assert error.facts["row"] == 40_001  # noqa: PT017 - only the last part has it
            return
        assert table is not None
        assert max(table.column("item").to_pylist()) < 40_000
    pytest.fail("no part has the bad row")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    read = source(path, CsvFiles)
    path.write_text("price\n1\n")
    for part in (WHOLE, FilePart(0, 6)):
        with pytest.raises(UnreadableSource, match="no column 'item'"):
            read_table(read.reading, location_of(str(path), part), read, Taken())
