"""JSON files."""

from __future__ import annotations

import gzip
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest

import headrace as hr
from headrace.errors import BadRow, UnreadableSource
from headrace.expr.code_runtime import NAN
from headrace.io import BadRecord, CsvFiles, JsonFiles, Memory
from tests.io.feeds import Alike, Everything, Point, batches, feed, read, write


def test_lines_and_an_array_mean_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path / "a.json", '{"x": 1, "label": "one"}\n\n{"label": null, "x": 2, "other": [1, {}]}\n')
    write(tmp_path / "b.json", '\n [{"x": 3},\n  {"x": 4, "label": "four"}]\n')
    assert read(JsonFiles(tmp_path), feed(Point)) == [(1, "one"), (2, None), (3, None), (4, "four")]


POINTS = "".join(f'{{"x": {n}, "Label": "one"}}\n' for n in range(5_000))


@pytest.mark.parametrize(
    "text",
    ['{"x": 1, " label": "one"}\n{"x": 1, "label": "two"}\n', '[{"x": 1, "lab el": "one"}]', POINTS],
    ids=["lines", "array", "columns"],
)
def test_a_missing_field_with_nearly_the_name_of_another_is_told_once(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("pyarrow")  # with it, so many lines are read as columns
    for name in "a.json", "b.json":
        write(tmp_path / name, text)
    assert (0 if text is POINTS else 1, None) in read(JsonFiles(tmp_path), feed(Point))
    (record,) = caplog.records
    near = next(each for each in (" label", "lab el", "Label") if f'"{each}"' in text)
    assert record.getMessage().replace(str(tmp_path), "in") == (
        f"source 'points': column 'label' is missing in in/a.json, and null; the file has {near!r}; "
        "later files are not reported"
    )


def test_a_field_of_an_object_is_told_by_its_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a.json", '{"point": {"x": 1, "LABEL": "one"}, "Number": 1, "points": null}')
    read(JsonFiles(tmp_path), feed(Everything))
    assert [record.getMessage().split(" is missing")[0] for record in caplog.records] == [
        "source 'points': column 'number'",
        "source 'points': column 'point.label'",
    ]


@pytest.mark.parametrize("text", ['{"x": 1, "labels": "one"}', '{"x": 1, "label": null, "Label": "one"}'])
def test_a_missing_field_with_another_name_is_null_without_a_word(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.json", text)
    read(JsonFiles(tmp_path), feed(Point))
    assert caplog.records == []


class Within(NamedTuple):
    alike: Alike


@pytest.mark.parametrize("live", [None, {"x", "Label"}])
def test_a_missing_field_is_not_taken_for_another_that_is_declared(
    live: set[str] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "flat" / "a.json", '{"x": 1, "label": "one"}')
    (row,) = read(JsonFiles(tmp_path / "flat"), feed(Alike, live=live))
    assert isinstance(row, tuple)
    assert row[::2] == (1, None)
    write(tmp_path / "deep" / "a.json", '{"alike": {"x": 1, "label": "one"}}')
    assert read(JsonFiles(tmp_path / "deep"), feed(Within)) == [((1, "one", None),)]
    assert caplog.records == []


def test_every_type_has_its_form(tmp_path: Path) -> None:
    write(
        tmp_path / "a.json",
        '{"flag": true, "number": -9223372036854775808, "real": 7, "price": 1.10, "text": "ä\\u20ac😀",'
        ' "octets": "AAH/", "day": "2001-02-28", "moment": "2001-02-28T23:59:59.123456789+01:00",'
        ' "point": {"x": 1}, "points": [{"x": 2, "label": "b"}], "numbers": [1, null]}\n{}\n',
    )
    full, empty = read(JsonFiles(tmp_path), feed(Everything))
    assert full == (
        True, -(2**63), 7.0, Decimal("1.1"), "ä€😀", b"\0\1\xff", date(2001, 2, 28),
        datetime(2001, 2, 28, 22, 59, 59, 123456, UTC), (1, None), ((2, "b"),), (1, None),
    )  # fmt: skip
    assert type(full[2]) is float  # type: ignore[index]
    assert empty == (None,) * 11


@pytest.mark.parametrize(
    "text",
    [
        "2001-12-31T01:02:03Z",
        "2001-12-31 01:02:03",
        "2001-12-31T02:02:03+0100",
        "2001-12-31 01:02:03.000",
        "2001-12-31 01:02:03+00",
        "2001-12-30 23:02:03-02",
        "2001-12-31T01:02:03z",
        "2001-12-31 02:02:03.0+01",
    ],
)
def test_timestamps_are_in_utc_unless_they_have_a_zone(tmp_path: Path, text: str) -> None:
    class Moment(NamedTuple):
        at: datetime

    write(tmp_path / "a.json", f'{{"at": "{text}"}}')
    ((at,),) = read(JsonFiles(tmp_path), feed(Moment))  # type: ignore[misc]
    assert at == datetime(2001, 12, 31, 1, 2, 3, tzinfo=UTC)
    assert at.tzinfo is UTC


@pytest.mark.parametrize("array", [False, True])
def test_an_object_of_a_dict_with_a_key_twice_is_unreadable(tmp_path: Path, array: bool) -> None:
    class Counted(NamedTuple):
        n: int
        counts: dict[str, int]

    text = '{"n": 1, "n": 2, "counts": {"a": 1}, "other": {"x": 1, "x": 2}}'
    write(tmp_path / "a.json", f"[{text}]" if array else text)
    assert read(JsonFiles(tmp_path), feed(Counted)) == [(2, (("a", 1),))]
    text = '{"n": 1, "counts": {"a": 1, "b": 2, "a": 1}}'
    write(tmp_path / "a.json", f"[{text}]" if array else text)
    with pytest.raises(BadRow, match="counts: expected an object with different keys, found 'a' twice"):
        read(JsonFiles(tmp_path), feed(Counted))


@pytest.mark.parametrize("name", ["a.json.gz", "a.csv.gz", "b.json"])
def test_an_empty_file_is_truncated_if_it_is_compressed(tmp_path: Path, name: str) -> None:
    class Counted(NamedTuple):
        n: int

    write(tmp_path / name, "")
    source = (JsonFiles if "json" in name else CsvFiles)(tmp_path)
    if name.endswith(".gz"):
        with pytest.raises(UnreadableSource, match=f"cannot read .*{name}") as error:
            read(source, feed(Counted))
        assert "truncated" in (error.value.why or "")
        with gzip.open(tmp_path / name, "wb"):
            pass
        if "json" in name:
            assert read(source, feed(Counted)) == []
    else:
        assert read(source, feed(Counted)) == []


def test_numbers_that_are_none_are_read_as_words_and_as_literals(tmp_path: Path) -> None:
    class Real(NamedTuple):
        v: float

    write(tmp_path / "a.json", '{"v": "NaN"}\n{"v": NaN}\n{"v": "-Infinity"}\n{"v": Infinity}\n{"v": 1e999}')
    rows = [row[0] for row in read(JsonFiles(tmp_path), feed(Real))]  # type: ignore[index]
    assert rows[0] is NAN
    assert rows[1] is NAN
    assert rows[2:] == [-math.inf, math.inf, math.inf]


def test_decimals_are_exact_beyond_a_float(tmp_path: Path) -> None:
    class Price(NamedTuple):
        p: Decimal
        f: float

    write(tmp_path / "a.json", '{"p": 0.123456789012345678, "f": 0.1}\n{"p": "1e2", "f": 1}')
    assert read(JsonFiles(tmp_path), feed(Price)) == [
        (Decimal("0.123456789012345678"), 0.1),
        (Decimal(100), 1.0),
    ]


def test_a_table_source_reads_weights(tmp_path: Path) -> None:
    write(
        tmp_path / "a.json",
        '{"x": 1}\n{"x": 1, "weight": -1}\n{"x": 2, "weight": null}\n{"x": 3, "weight": 2}',
    )
    rows = read(JsonFiles(tmp_path), feed(Point, append=False))
    assert rows == [(1, None, 1), (1, None, -1), (2, None, 1), (3, None, 2)]


def test_compressed_files_and_byte_order_marks_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.json.gz", gzip.compress(b'{"x": 1}\n{"x": 2}'))
    write(tmp_path / "b.json", b'\xef\xbb\xbf{"x": 3}')
    assert read(JsonFiles(tmp_path), feed(Point)) == [(1, None), (2, None), (3, None)]


def test_a_tick_may_end_within_a_file_and_a_reader_goes_on_there(tmp_path: Path) -> None:
    write(tmp_path / "a.json", "".join(f'{{"x": {x}}}\n\n' for x in range(5)))
    write(tmp_path / "b.json", '[{"x": 5}, {"x": 6}, {"x": 7}]')
    to = feed(Point)
    first = next(iter(batches(JsonFiles(tmp_path), to, limit=3)))
    assert first == [(0, None), (1, None), (2, None)]
    assert {name: rows for name, (rows, *_) in to.taken.items()} == {"a.json": 3}
    again = list(batches(JsonFiles(tmp_path), to, limit=3))
    assert [x for batch in again for x, _ in batch] == [3, 4, 5, 6, 7]
    assert [len(batch) for batch in again] == [3, 2]
    assert {name: rows for name, (rows, *_) in to.taken.items()} == {"a.json": -1, "b.json": -1}


BAD = {
    "not JSON": b'{"x": 1',
    "cut off": b'{"x": ',
    "not an object": b"7",
    "not UTF-8": b'{"x": 1, "label": "\xff"}',
    "half a surrogate": b'{"x": 1, "label": "\\ud800"}',
    "a missing column": b'{"label": "a"}',
    "null": b'{"x": null}',
    "a string for an int": b'{"x": "1"}',
    "a float for an int": b'{"x": 1.0}',
    "a bool for an int": b'{"x": true}',
    "an int out of range": b'{"x": 9223372036854775808}',
    "an int without end": b'{"x": ' + b"9" * 5000 + b"}",
    "an int for a string": b'{"x": 1, "label": 1}',
    "deep nesting": b'{"x": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_line_is_told_with_its_place_and_the_others_are_kept(tmp_path: Path, what: str) -> None:
    write(tmp_path / "a.json", b'{"x": 1}\n\n' + BAD[what] + b'\n{"x": 2}\n')
    source = JsonFiles(tmp_path, dead_letter=tmp_path / "dead")
    one, two, bad = read(source, feed(Point))
    assert (one, two) == ((1, None), (2, None))
    assert isinstance(bad, BadRecord)
    assert (Path(bad.file).name, bad.row, bad.line) == ("a.json", 2, 3)
    assert bad.reason
    assert len(bad.text) <= 200


def test_bad_records_in_arrays_have_a_number_and_no_line(tmp_path: Path) -> None:
    write(tmp_path / "a.json", '[{"x": 1}, {"x": "ä"}, 3]')
    source = JsonFiles(tmp_path, dead_letter=tmp_path / "dead")
    row, *bad = read(source, feed(Point))
    assert row == (1, None)
    assert [(b.row, b.line, b.text) for b in bad] == [(2, None, '{"x": "ä"}'), (3, None, "3")]  # type: ignore[union-attr]


class Counts(NamedTuple):
    counts: dict[int, int]


@pytest.mark.parametrize("lines", [False, True])
def test_a_key_of_a_map_that_does_not_fit_is_told(tmp_path: Path, lines: bool) -> None:
    record = f'{{"counts": {{"{"9" * 5_000}": 2}}}}'
    (tmp_path / "a.json").write_text(record if lines else f"[{record}]")
    flow = hr.Flow("counts")
    flow.sink("out", flow.source("counts", Counts))
    with pytest.raises(BadRow):
        hr.run(flow, {"counts": JsonFiles(tmp_path)}, {"out": Memory()})
