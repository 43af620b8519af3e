"""Files read as columns mean what they mean read row by row, or are refused."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import HeadraceError, UnreadableSource
from headrace.expr.types import Int32
from headrace.io import CsvFiles, Feed, JsonFiles, ParquetFiles
from headrace.io.files import file_source
from headrace.io.files.file_reader import FileFormat, open_format, read_columns, read_rows, rows_of
from headrace.io.files.file_source import WHOLE, FilePart, Files
from headrace.io.source import open_source
from tests.io.feeds import Everything, Flat, Point, feed, read, write
from tests.io.odd_files import csv_records, json_lines

pa = pytest.importorskip("pyarrow")


class Needed(NamedTuple):
    flag: bool
    number: int
    real: float
    price: Decimal
    text: str
    day: date
    moment: datetime


class Plain(NamedTuple):
    number: int
    real: float | None
    text: str


class Nested(NamedTuple):
    point: Point
    points: list[Point | None] | None
    reals: list[float]
    texts: list[str | None]
    number: int | None


class Few(NamedTuple):
    x: Int32


class Bytes(NamedTuple):
    octets: bytes
    text: str | None


CLASSES = (Everything, Flat, Needed, Plain, Nested, Point, Bytes)
FLAT = (Flat, Needed, Plain, Point, Bytes)


@contextmanager
def reading(*, columns: bool, block: int = 1 << 18) -> Iterator[None]:
    """Text is parsed as columns wherever possible, or nowhere. block: the size of a block."""
    with (
        mock.patch.object(FileFormat, "worth_columns", return_value=columns),
        mock.patch.object(file_source, "BLOCK", block),
    ):
        yield


def outcome(source: Files, to: Feed, parts: Sequence[FilePart] = (WHOLE,)) -> Any:
    """Every record of a file, or the error."""
    rows, bad = [], []
    try:
        for part in parts:
            batch = read_rows(open_format(source, to), Path(source.path), part, set_aside=True)
            rows += [spelled(row) for row in batch.rows]
            bad += batch.bad
    except HeadraceError as error:
        return str(error)
    return rows, bad


def outcome_in_columns(source: Files, to: Feed) -> Any:
    """The same by way of a table of the whole file."""
    try:
        table, bad = read_columns(open_format(source, to), Path(source.path), set_aside=True)
    except HeadraceError as error:
        return str(error)
    return [spelled(row) for row in rows_of(table, to)], bad


def spelled(value: Any) -> Any:
    """A form that tells apart what == does not: types, and -0.0. NaN is like itself."""
    return (type(value), [*map(spelled, value)] if isinstance(value, tuple) else repr(value))


def check(source: Files, to: Feed, block: int) -> None:
    with reading(columns=False):
        exact = outcome(source, to)
    with reading(columns=True):
        assert outcome(source, to) == exact
        assert outcome_in_columns(source, to) == exact
    with reading(columns=True, block=block):
        assert outcome(source, to) == exact
        if not isinstance(exact, str):
            parts = open_format(source, to).parts(Path(source.path), block)
            assert outcome(source, to, parts) == exact


def tables(source: Files, to: Feed) -> list[bool]:
    """Of the blocks of a file, which are tables."""
    found: list[bool] = []
    for block in open_format(source, to).blocks(Path(source.path)):
        found.append(not isinstance(block, Iterator))
        if isinstance(block, Iterator):
            list(block)
    return found


@st.composite
def feeds(draw: st.DrawFn, classes: tuple[Any, ...]) -> Feed:
    rows = draw(st.sampled_from(classes))
    to = feed(rows, append=draw(st.integers(0, 3)) > 0)
    if draw(st.booleans()):
        to = replace(to, live=frozenset(draw(st.sets(st.sampled_from(rows._fields)))))
    return to


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@given(st.data())
def test_columns_of_json_are_its_rows(folder: Path, data: st.DataObject) -> None:
    to = data.draw(feeds(CLASSES))
    path = write(folder / "a.json", data.draw(json_lines(to.schema)))
    check(JsonFiles(path), to, data.draw(st.integers(1, 300)))


@given(st.data())
def test_columns_of_csv_are_its_rows(folder: Path, data: st.DataObject) -> None:
    to = data.draw(feeds(FLAT))
    path = write(folder / "a.csv", data.draw(csv_records(to.schema)))
    check(CsvFiles(path), to, data.draw(st.integers(1, 300)))


DIALECTS = (
    {"sep": ";"},
    {"sep": r"\t", "quote": "'"},
    {"escape": "\\"},
    {"quote": ""},
    {"null": ["NA", "0", "a"]},
    {"header": False},
    {"encoding": "utf-16"},
    {"sep": "|", "encoding": "cp1252", "header": False, "null": "true"},
)


@given(st.data())
def test_columns_of_csv_with_options_are_its_rows(folder: Path, data: st.DataObject) -> None:
    to = data.draw(feeds(FLAT))
    options: Any = data.draw(st.sampled_from(DIALECTS))
    text = data.draw(csv_records(to.schema)).decode(errors="replace")
    for other, usual in ((options.get("sep", ","), ","), (options.get("quote", '"'), '"')):
        text = text.replace(usual, "\t" if other == r"\t" else other)
    content = text.encode(options.get("encoding", "utf-8"), errors="replace")
    check(CsvFiles(write(folder / "a.csv", content), **options), to, data.draw(st.integers(1, 300)))


# --- what is read as columns --------------------------------------------------------------------


def one(annotation: Any) -> Any:
    return NamedTuple("One", [("v", annotation)])  # type: ignore[misc]


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (int, ["1", "-7", "0", "9223372036854775807"]),
        (float, ["1", "2.5", "-1e-3", "NaN"]),
        (bool, ["true", "false"]),
        (str, ['"a"', '"ä\\u20ac\\ud83d\\ude00"', '"Information, NaN"', '""']),
        (Decimal, ['"1"', '"0.10"', '"-12.500000000000000000"', '".5"']),
        (Decimal, ['"1e2"', '"-1e-18"', '"1e19"', f'"{"0" * 60}1"']),
        (list[Decimal], ['["0.10"]']),
        (bytes, ['"AAH/"', '""']),
        (date, ['"2001-02-03"', '"0001-01-01"', '"9999-12-31"']),
        (
            datetime,
            ['"2001-02-03"', '"2001-02-03 04:05"', '"2001-02-03T04:05:06"', '"2001-02-03T04:05:06.123456"'],
        ),
        (datetime, ['"2001-02-03T04:05Z"', '"2001-02-03T04:05:06+01:00"', '"2001-02-03 04:05:06.5-0130"']),
        (datetime, ['"2001-02-03 04:05:06+00"', '"2001-02-03 04:05:06.5-03"', '"2001-02-03T04:05:06z"']),
        (datetime, ['"2001-02-03T04:05:06Z"', '"2001-02-03T04:05:06.123456789"', '"2001-02-03"']),
        (int | None, ["1", "null"]),
        (list[int | None], ["[1, null]", "[]"]),
        (list[date] | None, ['["2001-02-03"]', "null"]),
        (Point, ['{"x": 1}', '{"label": "a", "x": 2, "more": {"x": []}}']),
        (list[Point | None], ["[null]", '[{"x": 1}, null]']),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n \n"])
def test_plain_json_is_read_as_columns(tmp_path: Path, annotation: Any, values: list[str], end: str) -> None:
    path = write(tmp_path / "a.json", "".join(f'{{"v": {value}}}{end}' for value in values * 3))
    source, to = JsonFiles(path), feed(one(annotation))
    with reading(columns=True):
        assert tables(source, to) == [True]
    check(source, to, 100)


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (int, ["1", "-7", "007", "+1"]),
        (float, ["1", "2.5", "-1e-3", ".5", "-0", "NaN", "Inf"]),
        (bool, ["true", "FALSE"]),
        (str, ["a", "ä", "", '"a, ""b""\n"', '""', " "]),
        (str | None, ["a", "", '""', '"a"']),
        (Decimal, ["1", "0.10", "-12.500000000000000000", "+.5"]),
        (Decimal, ["1e2", "-1e-18", "1e19", "0" * 60 + "1"]),
        (bytes, ["a", "ä", '"\r\n"']),
        (date | None, ["2001-02-03", '"2001-02-03"', ""]),
        (datetime, ["2001-02-03 04:05", "2001-02-03T04:05:06.123456"]),
        (datetime, ["2001-02-03T04:05Z", "2001-02-03T04:05:06+01:00"]),
        (datetime, ["2001-02-03 04:05:06+00", "2001-02-03 04:05:06.5-03"]),
        (datetime, ["2001-02-03 04:05:06+00", "2001-02-03 04:05:06z"]),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_plain_csv_is_read_as_columns(tmp_path: Path, annotation: Any, values: list[str], end: str) -> None:
    path = write(tmp_path / "a.csv", end.join(["n,v", *(f"1,{value}" for value in values * 3), ""]))
    source, to = CsvFiles(path), feed(one(annotation))
    with reading(columns=True):
        assert tables(source, to) == [end != "\r"]
    check(source, to, 100)


BAD = {"a.json": ('{"x": %d}\n', '{"x": 1.0}\n'), "a.csv": ("%d,a\r\n", "1.0,a\r\n")}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_bad_row_leaves_the_other_blocks_columns(tmp_path: Path, name: str, compressed: bool) -> None:
    good, bad = BAD[name]
    lines = [good % n for n in range(1000)]
    lines[300], lines[700] = bad, "\r\n" + bad
    content = "".join((["x,label\r\n"] if name == "a.csv" else []) + lines).encode()
    path = (
        write(tmp_path / (name + ".gz"), gzip.compress(content))
        if compressed
        else write(tmp_path / name, content)
    )
    source = (CsvFiles if name == "a.csv" else JsonFiles)(path)
    header = name == "a.csv"
    with reading(columns=True, block=1000):
        blocks = tables(source, feed(Point))
        assert (blocks.count(False), len(blocks) > 6) == (2, True)
        rows, found = outcome(source, feed(Point))
        assert len(rows) == 998
        assert [(b.row, b.line) for b in found] == [(301, 301 + header), (701, 702 + header)]
        parts = open_format(source, feed(Point)).parts(path, 3000)
        assert (len(parts) > 2) == (not compressed)
        assert outcome(source, feed(Point), parts) == (rows, found)


def test_a_quoted_field_may_end_in_a_later_block(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'x,label\n1,"a\n\nb ""c"", d"\n2,e\n' + "3,f\n" * 5)
    with reading(columns=True, block=14):
        assert tables(CsvFiles(path), feed(Point)) == [True, True]
        assert open_format(CsvFiles(path), feed(Point)).parts(path, 5) == [WHOLE]
    check(CsvFiles(path), feed(Point), 14)


@pytest.mark.parametrize("field", ["b" * 140_000, "b\n" * 70_000])
def test_a_field_beyond_the_limit_of_csv_is_an_error(tmp_path: Path, field: str) -> None:
    path = write(tmp_path / "a.csv", f'x,label,n\n1,a,"{field}"\n')
    with reading(columns=True):
        assert "field larger than field limit" in str(outcome(CsvFiles(path), feed(Point)))
    check(CsvFiles(path), feed(Point), 1000)


def test_a_malformed_line_leaves_the_other_blocks_and_parts_alone(tmp_path: Path) -> None:
    lines = ["x,label", *(f"{n},a" for n in range(1000))]
    lines[301], lines[701] = "1," + "a" * 140_000, "\nx,b"
    path = write(tmp_path / "a.csv", "\n".join([*lines, ""]))
    with reading(columns=True, block=1000):
        rows, found = outcome(CsvFiles(path), feed(Point))
        assert tables(CsvFiles(path), feed(Point)).count(False) == 2
    assert len(rows) == 998
    assert [(b.row, b.line) for b in found] == [(301, 302), (701, 703)]
    check(CsvFiles(path), feed(Point), 1000)


@pytest.mark.parametrize("name", BAD)
def test_a_truncated_file_gives_the_rows_before_the_cut(tmp_path: Path, name: str) -> None:
    good, _ = BAD[name]
    content = gzip.compress(
        ("x,label\n" * (name == "a.csv") + "".join(good % (n * n) for n in range(9000))).encode()
    )
    path = write(tmp_path / (name + ".gz"), content[: len(content) // 2])
    source = (CsvFiles if name == "a.csv" else JsonFiles)(path)
    to = feed(Point)
    with reading(columns=True):
        reader = open_source(source, to)
        batch = reader.read(1000)
        assert batch is not None
        assert batch.rows[-1][0] == 999 * 999
        with pytest.raises(UnreadableSource):
            reader.read(None)
        reader.close()
    assert to.taken[path.name][0] == 1000


def test_row_groups_are_parts(tmp_path: Path) -> None:
    table = pa.table({"x": [*range(99), 2**40], "label": ["a"] * 100})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    source, to = ParquetFiles(tmp_path / "a.parquet"), feed(Few)
    path = Path(source.path)
    parts = open_format(source, to).parts(path, 1000)
    assert 1 < len(parts) < 10
    rows, bad = outcome(source, to)
    assert outcome(source, to, parts) == (rows, bad)
    assert outcome_in_columns(source, to) == (rows, bad)
    assert [b.row for b in bad] == [100]


def test_columns_that_nobody_reads_are_not_looked_at(tmp_path: Path) -> None:
    json = write(tmp_path / "a.json", '{"x": 1, "label": 7}\n{"x": 2}\n')
    csv = write(tmp_path / "a.csv", b"x,label\n1,\xff\n2,a\n")
    for columns in (True, False):
        with reading(columns=columns):
            for source in (JsonFiles(json), CsvFiles(csv)):
                assert read(source, feed(Point, live=frozenset({"x"}))) == [(1, None), (2, None)]
                assert len(read(source, feed(Point, live=frozenset()))) == 2


def test_numbers_with_huge_exponents_make_bad_rows(tmp_path: Path) -> None:
    number = "1e99999999999999999999"
    path = write(tmp_path / "a.json", f'{{"v": {number}}}\n{{"v": "{number}"}}\n{{"v": 1}}\n')
    _, bad = outcome(JsonFiles(path), feed(one(Decimal)))
    reasons = [
        "a number in the line has too large an exponent",
        f"v: expected decimal(38,18), found '{number}'",
    ]
    assert [(b.row, b.reason) for b in bad] == [*enumerate(reasons, 1)]
    check(JsonFiles(path), feed(one(Decimal)), 10)
    check(CsvFiles(write(tmp_path / "a.csv", f"v\n{number}\n1\n")), feed(one(Decimal)), 10)
