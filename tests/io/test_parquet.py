"""Parquet files that others wrote."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import UnreadableSource
from headrace.expr.types import DecimalType
from headrace.io import BadRecord, ParquetFiles
from tests.io.feeds import Alike, Everything, Flat, Point, batches, feed, read, write

MOMENT = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)


class One(NamedTuple):
    v: Any


def one(annotation: Any) -> Any:
    return NamedTuple("One", [("v", annotation)])  # type: ignore[misc]


def write_column(folder: Path, array: pa.Array, name: str = "v") -> None:
    pq.write_table(pa.table({name: array}), folder / "a.parquet")


@pytest.mark.parametrize(
    ("array", "annotation", "value"),
    [
        (pa.array([7], pa.int8()), int, 7),
        (pa.array([7], pa.uint64()), int, 7),
        (pa.array([0.5], pa.float32()), float, 0.5),
        (pa.array(["a"]).dictionary_encode(), str, "a"),
        (pa.array(["a"], pa.large_string()), str, "a"),
        (pa.array([b"ab"], pa.binary(2)), bytes, b"ab"),
        (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), Decimal, Decimal("1.5")),
        (pa.array([date(2001, 2, 3)], pa.date64()), date, date(2001, 2, 3)),
        (pa.array([MOMENT], pa.timestamp("s", "Europe/Berlin")), datetime, MOMENT),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("ms")), datetime, MOMENT),
        (
            pa.array([int(MOMENT.timestamp()) * 10**9 + 999]).cast(pa.timestamp("ns")),
            datetime,
            MOMENT,
        ),
        (pa.array([1999]).cast(pa.duration("ns")), timedelta, timedelta(microseconds=1)),
        (pa.array([-1999]).cast(pa.duration("ns")), timedelta, timedelta(microseconds=-1)),
        (pa.array([-1]).cast(pa.timestamp("ns")), datetime, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (pa.array([None]), int | None, None),
        (pa.array([[1, None]], pa.large_list(pa.int16())), list[int | None], (1, None)),
        (pa.array([[1.5, 2.5]], pa.list_(pa.float32(), 2)), list[float], (1.5, 2.5)),
        (pa.array([{"label": "a", "x": 1, "more": 2}]), Point, (1, "a")),
        (pa.array([[{"x": 1}], None]).slice(0, 1), list[Point] | None, ((1, None),)),
    ],
)
def test_other_writings_of_the_same_value_are_read(
    tmp_path: Path, array: pa.Array, annotation: Any, value: Any
) -> None:
    write_column(tmp_path, array)
    assert read(ParquetFiles(tmp_path), feed(one(annotation))) == [(value,)]


def test_times_of_96_bits_are_read_beyond_the_range_of_nanoseconds(tmp_path: Path) -> None:
    moments = [datetime(year, 12, 31, 23, 59, 59, 999_999, UTC) for year in (1, 1969, 2001, 9999)]
    table = pa.table({"v": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read(ParquetFiles(tmp_path), feed(one(datetime))) == [(moment,) for moment in moments]


def test_narrower_columns_are_widened_and_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Wide(NamedTuple):
        real: float | None
        price: Annotated[Decimal, DecimalType(12, 2)]
        count: int
        parts: list[float]

    def write_wide(name: str, *arrays: pa.Array) -> None:
        pq.write_table(pa.table(dict(zip(Wide._fields, arrays, strict=True))), tmp_path / name)

    write_wide("a.parquet", pa.array([2.5]), pa.array([Decimal("1.50")], pa.decimal128(12, 2)), [1], [[1.5]])
    for name in ("b.parquet", "c.parquet"):
        price = pa.array([Decimal("2.5"), Decimal(3)], pa.decimal128(5, 1))
        write_wide(name, pa.array([2**53, None]), price, pa.array([3, 4], pa.int16()), [[1], []])
    write_wide("d.parquet", pa.array([1.5], pa.float32()), pa.array([7]), [5], [[0.5]])
    rows = read(ParquetFiles(tmp_path), feed(Wide))
    later = [(2.0**53, Decimal("2.5"), 3, (1.0,)), (None, Decimal(3), 4, ())]
    assert rows == [(2.5, Decimal("1.5"), 1, (1.5,)), *later, *later, (1.5, Decimal(7), 5, (0.5,))]
    assert all(type(row[0]) is float for row in rows if row[0] is not None)  # type: ignore[misc]
    assert sorted((r.levelname, r.getMessage().replace(str(tmp_path), "in")) for r in caplog.records) == [
        ("WARNING", told("count", "int16", "int64")),
        ("WARNING", told("parts", "list<element: int64>", "list<float64>")),
        ("WARNING", told("price", "decimal128(5, 1)", "decimal(12,2)")),
        ("WARNING", told("real", "int64", "float64")),
    ]


def test_a_missing_column_with_nearly_the_name_of_another_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"x": [1], "Label": ["one"]}), tmp_path / "a.parquet")
    assert read(ParquetFiles(tmp_path), feed(Point)) == [(1, None)]
    (record,) = caplog.records
    assert "column 'label' is missing in" in record.getMessage()
    assert "the file has 'Label'" in record.getMessage()


@pytest.mark.parametrize("live", [None, {"x", "Label"}])
def test_a_missing_column_is_not_taken_for_another_that_is_declared(
    live: set[str] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"x": [1], "label": ["one"]}), tmp_path / "a.parquet")
    (row,) = read(ParquetFiles(tmp_path), feed(Alike, live=live))
    assert isinstance(row, tuple)
    assert row[::2] == (1, None)
    assert caplog.records == []


def told(column: str, found: str, declared: str) -> str:
    return (
        f"source 'points': column {column!r} is {found} in in/b.parquet, and was widened to {declared}; "
        "later files are not reported"
    )


@pytest.mark.parametrize(
    ("array", "annotation"),
    [
        (pa.array([1.0]), int),
        (pa.array(["1"]), int),
        (pa.array([1]), str),
        (pa.array([1]), bool),
        (pa.array([b"a"]), str),
        (pa.array([MOMENT]), date),
        (pa.array([date(2001, 1, 1)]), datetime),
        (pa.array([[1]]), list[str]),
        (pa.array([{"x": "1"}]), Point),
        (pa.array([{"label": "a"}]), Point),
    ],
)
def test_another_type_is_refused_with_file_and_column(
    tmp_path: Path, array: pa.Array, annotation: Any
) -> None:
    write_column(tmp_path, array)
    with pytest.raises(UnreadableSource, match=r"its column 'v' is .*, but .* is declared"):
        read(ParquetFiles(tmp_path), feed(one(annotation)))


@pytest.mark.parametrize(
    ("array", "annotation", "reason"),
    [
        (pa.array([1, None]), int, "v: it is null, but int64 is declared without null"),
        (pa.array([1, 2**63], pa.uint64()), int, "v: Integer value 9223372036854775808 not in range"),
        (
            pa.array([Decimal("1"), Decimal("1e30")]),
            Decimal,
            "v: 1" + "0" * 30 + " has too many digits",
        ),
        (pa.array([0, 2**62]).cast(pa.timestamp("us")), datetime, "v: date value out of range"),
        (pa.array([0, 2**62]).cast(pa.timestamp("ms")), datetime, "v: Casting from timestamp"),
        (pa.array([1, 2**53 + 1]), float, "v: Integer value 9007199254740993 not in range"),
        (
            pa.array([1, 10**18]),
            Annotated[Decimal, DecimalType(12, 2)],
            "v: 1000000000000000000 has too many",
        ),
        (pa.array([[1], [None]]), list[int], "v: it is null"),
        (pa.array([{"x": 1}, {"x": None}]), Point, "v: x: it is null"),
        (pa.array([{"x": 1}, None]), Point, "v: it is null"),
        (pa.array([b"a", b"\xff"]).view(pa.string()), str, "v: "),
    ],
)
def test_a_value_that_does_not_fit_makes_a_bad_row(
    tmp_path: Path, array: pa.Array, annotation: Any, reason: str
) -> None:
    write_column(tmp_path, array)
    row, bad = read(ParquetFiles(tmp_path, dead_letter=tmp_path / "dead"), feed(one(annotation)))
    assert isinstance(row, tuple)
    assert isinstance(bad, BadRecord)
    assert (Path(bad.file).name, bad.row, bad.line) == ("a.parquet", 2, None)
    assert bad.reason.startswith(reason)


def test_a_missing_column_is_null_or_refused(tmp_path: Path) -> None:
    write_column(tmp_path, pa.array([1]), "x")
    assert read(ParquetFiles(tmp_path), feed(Point)) == [(1, None)]
    write_column(tmp_path, pa.array(["a"]), "label")
    with pytest.raises(UnreadableSource, match="it has no column 'x'; it has label"):
        read(ParquetFiles(tmp_path), feed(Point))


def test_a_table_source_reads_weights(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2, 3, 4], "weight": [1, -1, None, 0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [5]}), tmp_path / "b.parquet")
    source = ParquetFiles(tmp_path, dead_letter=tmp_path / "dead")
    *rows, bad = read(source, feed(Point, append=False))
    assert rows == [(1, None, 1), (2, None, -1), (3, None, 1), (5, None, 1)]
    assert isinstance(bad, BadRecord)
    assert bad.reason == "weight: the weight of a row cannot be 0"


def test_what_is_no_parquet_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", b"PAR1 and nothing more")
    with pytest.raises(UnreadableSource, match="it is not Parquet"):
        read(ParquetFiles(tmp_path), feed(Point))


def test_a_damaged_page_is_told_with_the_rows_before_it(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    labels = [str(n) * 20 for n in range(20_000)]
    pq.write_table(
        pa.table({"x": range(20_000), "label": labels}), file, row_group_size=10_000, use_dictionary=False
    )
    content = bytearray(file.read_bytes())
    middle = len(content) * 9 // 10
    content[middle : middle + 2000] = b"\xff" * 2000
    file.write_bytes(content)
    with pytest.raises(UnreadableSource, match=r"a\.parquet"):
        read(ParquetFiles(tmp_path), feed(Point))


def test_a_changed_bit_is_told_where_pages_have_checksums(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"v": range(100)})
    pq.write_table(table, path, write_page_checksum=True, use_dictionary=False, compression="none")
    content = path.read_bytes()
    at = content.index((50).to_bytes(8, "little"))
    path.write_bytes(content[:at] + b"\x33" + content[at + 1 :])
    with pytest.raises(UnreadableSource, match="CRC"):
        read(ParquetFiles(tmp_path), feed(one(int)))


def test_a_reader_goes_on_within_a_file_of_several_batches(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": range(20_000)}), tmp_path / "a.parquet", row_group_size=3000)
    to = feed(Point)
    assert len(next(iter(batches(ParquetFiles(tmp_path), to, limit=9000)))) == 9000
    assert [x for x, _ in read(ParquetFiles(tmp_path), to)] == list(range(9000, 20_000))  # type: ignore[misc]


def test_no_rows_are_no_rows(tmp_path: Path) -> None:
    for rows in (Everything, Flat):
        to = feed(rows)
        from headrace.io.arrow import write_part

        write_part(tmp_path / "a.parquet", [], to.schema, weighted=False)
        assert read(ParquetFiles(tmp_path), to) == []


def test_columns_that_nobody_reads_are_not_read(tmp_path: Path) -> None:
    """A column of another type, one with nulls and one that is missing: nobody sees them."""
    table = pa.table({"id": [1, 2], "name": [None, "b"], "price": ["dear", "cheap"]})
    pq.write_table(table, tmp_path / "a.parquet")

    class Item(NamedTuple):
        id: int
        name: str
        price: float
        missing: int

    flow = hr.Flow("ids")
    flow.sink("out", flow.source("items", Item).group_by().agg(most=hr.max(col.id)))
    changes: list[Any] = []
    hr.run(flow, {"items": ParquetFiles(tmp_path)}, {"out": changes})
    assert [tuple(change.row) for change in changes] == [(2,)]
