"""CSV files."""

from __future__ import annotations

import codecs
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.errors import BadInput, UnreadableSource, UnwritableSink
from headrace.expr.row_classes import schema_of
from headrace.io import BadRecord, CsvChangelog, CsvDialect, CsvFiles, SinkRequest, open_sink
from headrace.io.files.compaction import compact
from tests.io.feeds import Alike, Everything, Flat, Point, batches, feed, read, write


class Name(NamedTuple):
    text: str


def test_columns_are_found_by_name_and_others_ignored(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "label,other,x\none,,1\n,2,2\n")
    write(tmp_path / "b.csv", "x\r\n3\r\n")
    assert read(CsvFiles(tmp_path), feed(Point)) == [(1, "one"), (2, None), (3, None)]


@pytest.mark.parametrize("header", ["x,Label", "x, label", "x,LABEL,labels", "x,l abel"])
def test_a_missing_column_with_nearly_the_name_of_another_is_told_once(
    header: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "a.csv", "b.csv":
        write(tmp_path / name, f"{header}\n1,one{',' * (header.count(',') - 1)}\n")
    assert read(CsvFiles(tmp_path), feed(Point)) == [(1, None), (1, None)]
    near = header.split(",")[1]
    (record,) = caplog.records
    assert record.getMessage().replace(str(tmp_path), "in") == (
        f"source 'points': column 'label' is missing in in/a.csv, and null; the file has {near!r}; "
        "later files are not reported"
    )


def test_a_missing_column_with_another_name_is_null_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.csv", "x,labels\n1,one\n")
    assert read(CsvFiles(tmp_path), feed(Point)) == [(1, None)]
    assert caplog.records == []


@pytest.mark.parametrize("live", [None, {"x", "Label"}])
def test_a_missing_column_is_not_taken_for_another_that_is_declared(
    live: set[str] | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.csv", "x,label\n1,one\n")
    (row,) = read(CsvFiles(tmp_path), feed(Alike, live=live))
    assert isinstance(row, tuple)
    assert row[::2] == (1, None)
    assert caplog.records == []


def test_quotes_hold_commas_quotes_and_line_breaks(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", '\ufefftext\n"a, ""b""\nc"\n\n"\\"\nd\n')
    assert read(CsvFiles(tmp_path), feed(Name)) == [('a, "b"\nc',), ("\\",), ("d",)]


def test_an_empty_field_is_null_or_the_empty_text(tmp_path: Path) -> None:
    class Both(NamedTuple):
        must: str
        may: str | None

    write(tmp_path / "a.csv", 'must,may\n,\n"",""\n')
    assert read(CsvFiles(tmp_path), feed(Both)) == [("", None), ("", None)]


def test_every_flat_type_has_its_form(tmp_path: Path) -> None:
    header = "flag,number,real,price,text,day,moment\n"
    write(
        tmp_path / "a.csv",
        header + "TRUE,-7,1.5e3,2.50,ä,2001-01-02,2001-01-02 03:04\nfalse,+7,-Inf,-1,b,,2001-01-02\n",
    )
    assert read(CsvFiles(tmp_path), feed(Flat)) == [
        (True, -7, 1500.0, Decimal("2.5"), "ä", date(2001, 1, 2), datetime(2001, 1, 2, 3, 4, tzinfo=UTC)),
        (False, 7, float("-inf"), Decimal(-1), "b", None, datetime(2001, 1, 2, tzinfo=UTC)),
    ]


def test_a_table_source_reads_weights_where_there_are_some(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "x,weight\n1,-1\n2,\n")
    write(tmp_path / "b.csv", "x\n3\n")
    assert read(CsvFiles(tmp_path), feed(Point, append=False)) == [(1, None, -1), (2, None, 1), (3, None, 1)]


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "x\n" + "".join(f"{x}\n" for x in range(5)))
    to = feed(Point)
    next(iter(batches(CsvFiles(tmp_path), to, limit=2)))
    assert read(CsvFiles(tmp_path), to) == [(2, None), (3, None), (4, None)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1", "the header has 2 columns, the row 1"),
        ("1,a,b", "the header has 2 columns, the row 3"),
        (",a", "x: it is empty, but int64 is declared without null"),
        ("1_000,a", "x: expected an int64, found '1_000'"),
        (" 1,a", "x: expected an int64, found ' 1'"),
        ("1.0,a", "x: expected an int64, found '1.0'"),
        ("٣,a", "x: expected an int64, found '٣'"),
        ("9223372036854775808,a", "x: 9223372036854775808 is out of the range of int64"),
    ],
)
def test_a_bad_row_says_what_is_wrong(tmp_path: Path, line: str, reason: str) -> None:
    write(tmp_path / "a.csv", f'x,label\n1,"two\nlines"\n{line}\n3,c\n')
    *rows, bad = read(CsvFiles(tmp_path, dead_letter=tmp_path / "dead"), feed(Point))
    assert rows == [(1, "two\nlines"), (3, "c")]
    assert bad == BadRecord(str(tmp_path / "a.csv"), 2, reason, line, 4)


def test_bytes_that_are_no_text_make_a_bad_row(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", b"text\n\xff\nb\n")
    row, bad = read(CsvFiles(tmp_path, dead_letter=tmp_path / "dead"), feed(Name))
    assert row == ("b",)
    assert bad == BadRecord(str(tmp_path / "a.csv"), 1, "text: the text is not valid Unicode", "�", 2)


@pytest.mark.parametrize("content", ["", "label\na\n", "x,x\n1,2\n", 'x\n1\n"2"" 3\n', 'x\n"1\n'])
def test_a_file_that_does_not_fit_as_a_whole_is_refused(tmp_path: Path, content: str) -> None:
    write(tmp_path / "a.csv", content)
    with pytest.raises(UnreadableSource) as raised:
        read(CsvFiles(tmp_path, dead_letter=tmp_path / "dead"), feed(Point))
    assert raised.value.facts["path"] == str(tmp_path / "a.csv")


@pytest.mark.parametrize(
    "line",
    ['"2" 3', '"2"3,"a, b"', "2," + "a" * 140_000, '2,"' + "a" * 140_000 + '"'],
    ids=["quote", "quotes", "long", "long in quotes"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_malformed_line_is_a_bad_row(tmp_path: Path, line: str, end: str) -> None:
    path = write(tmp_path / "a.csv", end.join(["x,label", '1,"a', 'b"', "", line, "3,c", "x,", ""]))
    first, last, malformed, bad = read(CsvFiles(path, dead_letter=tmp_path / "dead"), feed(Point))
    assert (first[0], last[0]) == (1, 3)
    assert isinstance(malformed, BadRecord)
    assert isinstance(bad, BadRecord)
    assert (malformed.row, malformed.line, malformed.text[:8]) == (2, 5, line[:8])
    assert malformed.reason.startswith("it is not CSV: ")
    assert (bad.row, bad.line) == (4, 7)


@pytest.mark.parametrize(
    "lines",
    ['"2"3,"a\nb"', '"2,' + "a" * 140_000 + '\n",b', '"2"3",a', '"2\n"3,a', '"2" \\"3,a'],
    ids=["goes on", "long goes on", "odd", "second line", "escape"],
)
@pytest.mark.parametrize("escape", [None, "\\"])
def test_no_row_is_read_after_one_whose_end_is_unknown(
    tmp_path: Path, lines: str, escape: str | None
) -> None:
    path = write(tmp_path / "a.csv", f"x,label\n1,a\n{lines}\n3,c\n")
    source = CsvFiles(path, escape=escape, dead_letter=tmp_path / "dead")
    with pytest.raises(UnreadableSource, match="where the next row begins"):
        read(source, feed(Point))


def test_ascii_is_not_utf_8(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "text\né\nb\n")
    row, bad = read(CsvFiles(tmp_path, encoding="ascii", dead_letter=tmp_path / "dead"), feed(Name))
    assert row == ("b",)
    assert isinstance(bad, BadRecord)
    assert bad.reason == "text: the text is not valid Unicode"


@pytest.mark.parametrize(
    ("encoding", "bad_text"),
    [
        ("utf-16", "\ud800".encode("utf-16-le", "surrogatepass")),
        ("utf-16-be", "\udc00".encode("utf-16-be", "surrogatepass")),
        ("utf-32-le", b"\x00\x00\x11\x00"),
        ("shift_jis", b"\xff"),
        ("unicode_escape", rb"\udce9"),
    ],
)
def test_text_that_is_not_in_the_encoding_makes_a_bad_row(
    encoding: str, bad_text: bytes, tmp_path: Path
) -> None:
    before, after = "text\na\n".encode(encoding), "\nb\n".encode(encoding)
    write(tmp_path / "a.csv", before + bad_text + after.removeprefix(codecs.BOM_UTF16))
    *found, bad = read(CsvFiles(tmp_path, encoding=encoding, dead_letter=tmp_path / "dead"), feed(Name))
    assert found == [("a",), ("b",)]
    assert (bad.row, bad.reason, bad.text) == (2, "text: the text is not valid Unicode", "\ufffd")


def test_structs_and_lists_are_refused_before_a_file_is_opened(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="which a CSV file cannot hold"):
        read(CsvFiles(tmp_path), feed(Everything))


# --- options --------------------------------------------------------------------------------


class Item(NamedTuple):
    name: str | None
    price: Decimal | None


ITEMS = [("Käse; alt", Decimal("1.5")), (None, None), ('a "b"\nc', Decimal(2))]


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ({"sep": ";"}, 'name;price\r\n"Käse; alt";1.5\r\n;\r\n"a ""b""\nc";2\r\n'),
        ({"sep": r"\t"}, 'name\tprice\nKäse; alt\t1.5\n\t\n"a ""b""\nc"\t2\n'),
        ({"quote": "'"}, "name,price\nKäse; alt,1.5\n'',\n'a \"b\"\nc',2\n"),
        ({"escape": "\\"}, 'name,price\nKäse; alt,1.5\n,\n"a \\"b\\"\nc",2\n'),
        ({"escape": '"'}, 'name,price\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'),
        ({"null": ["NA", "-"]}, 'price,name\n1.5,Käse; alt\nNA,-\n2,"a ""b""\nc"\n'),
        ({"header": False}, 'Käse; alt,1.5\n,\n"a ""b""\nc",2\n'),
        ({"encoding": "latin-1"}, 'name,price\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'.encode("latin-1")),
        ({"encoding": "utf-16"}, 'name,price\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'.encode("utf-16")),
        (
            {"encoding": "utf-16-le"},
            '\ufeffname,price\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'.encode("utf-16-le"),
        ),
        ({"encoding": "gb18030"}, '\ufeffname,price\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'.encode("gb18030")),
        ({}, '\r\n\nname,price\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'),
        ({"header": False}, '\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'),
        ({}, '\ufeffname,price\nKäse; alt,1.5\n,\n"a ""b""\nc",2\n'),
    ],
)
def test_options_say_how_a_file_is_written(tmp_path: Path, options: Any, content: str | bytes) -> None:
    write(tmp_path / "a.csv", content)
    assert read(CsvFiles(tmp_path, **options), feed(Item)) == ITEMS


def test_a_file_in_another_encoding_than_was_said_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "name,price\ntea,1\n")
    with pytest.raises(UnreadableSource, match=r"cannot read .*a\.csv"):
        read(CsvFiles(tmp_path, encoding="utf-16"), feed(Item))


def test_lines_are_counted_after_blank_ones(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "\n\nname,price\ntea,x\n")
    (bad,) = read(CsvFiles(tmp_path, dead_letter=tmp_path / "dead"), feed(Item))
    assert (bad.row, bad.line) == (1, 4)


def test_without_quotes_they_are_text(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 'name,price\n"a,1\n')
    assert read(CsvFiles(tmp_path, quote=""), feed(Item)) == [('"a', Decimal(1))]


def test_a_null_word_is_refused_where_null_is_not_declared(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", 'text\nNA\n""\n-\n')
    bad, *rows = read(CsvFiles(tmp_path, null="NA", dead_letter=tmp_path / "dead"), feed(Name))[::-1]
    assert rows[::-1] == [("",), ("-",)]
    assert isinstance(bad, BadRecord)
    assert bad.reason == "text: 'NA' is null, but str is declared without null"


def test_a_file_without_header_may_have_weights_and_be_empty(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "")
    write(tmp_path / "b.csv", "1,a,-1\n")
    write(tmp_path / "c.csv", "2,\n")
    source = CsvFiles(tmp_path, header=False)
    assert read(source, feed(Point, append=False)) == [(1, "a", -1), (2, None, 1)]


@pytest.mark.parametrize(
    ("options", "content", "fix"),
    [
        ({}, "x;label\n1;a\n", "fields seem to end with ';': CsvFiles(..., sep=';'), or csv:PATH?sep=;"),
        ({"header": False}, "1\ta\n", r"CsvFiles(..., sep='\t'), or csv:PATH?sep=\t"),
        ({"header": False}, "1,a,b\n", "declare all of them, in order"),
        ({}, "X,label\n1,a\n", "correct the header"),
        ({}, "label,xx\na,1\n", "rename 'xx' to 'x' in the header"),
    ],
)
def test_a_file_of_another_form_is_refused_with_a_way_out(
    tmp_path: Path, options: Any, content: str, fix: str
) -> None:
    write(tmp_path / "a.csv", content)
    with pytest.raises(UnreadableSource) as raised:
        read(CsvFiles(tmp_path, **options), feed(Point))
    assert fix in raised.value.fix


@pytest.mark.parametrize(
    "options",
    [
        {"sep": ";;"},
        {"sep": ""},
        {"sep": "\n"},
        {"sep": "§"},
        {"quote": ","},
        {"escape": ","},
        {"encoding": "klingon"},
        {"encoding": "base64"},
        {"encoding": "punycode"},
        {"encoding": None},
        {"header": "no"},
        {"null": 5},
        {"null": [5]},
    ],
)
def test_options_that_no_file_can_have_are_refused(options: Any) -> None:
    with pytest.raises(BadInput, match="options of CSV files") as raised:
        CsvFiles("in", **options)
    assert raised.value.where[0].location.file == __file__


# --- the sink -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sep": ";", "quote": "'", "null": ("NA",)},
        {"escape": "\\", "encoding": "utf-16"},
        {"sep": "\t", "header": False},
        {"quote": "", "escape": "\\"},
    ],
)
def test_a_changelog_of_csv_files_reads_back(tmp_path: Path, options: Any) -> None:
    dialect = CsvDialect(**options)
    moment = datetime(2001, 1, 2, 3, 4, 5, 600, tzinfo=UTC)
    rows = [
        (True, 7, 1.5, Decimal("2.50"), "a;\t\"b\", 'c' \\", date(2001, 1, 2), moment),
        (False, -7, float("-inf"), Decimal("0.000000000000000001"), "ä", date(1, 1, 1), moment),
        (None, None, None, None, None, None, None),
    ]
    write_rows(CsvChangelog(tmp_path, dialect), Flat, [(*row, at - 1) for at, row in enumerate(rows, 2)])
    source = CsvFiles(tmp_path / "tick=*/*.csv", **options)
    assert read(source, feed(Flat, append=False)) == [(*row, at - 1) for at, row in enumerate(rows, 2)]


def test_a_row_that_csv_cannot_hold_fails_its_tick(tmp_path: Path) -> None:
    for dialect, text in ((CsvDialect(encoding="latin-1"), "€"), (CsvDialect(quote=""), "a,b")):
        with pytest.raises(UnwritableSink, match="cannot hold a row as CSV"):
            write_rows(CsvChangelog(tmp_path, dialect), Name, [(text, 1)])
    with pytest.raises(BadInput, match="column 'point' is a struct"):
        write_rows(CsvChangelog(tmp_path), Everything, [])


def test_a_changelog_of_csv_files_is_not_compacted(tmp_path: Path) -> None:
    write_rows(CsvChangelog(tmp_path), Name, [("a", 1)])
    with pytest.raises(BadInput, match="a changelog of CSV files"):
        compact(tmp_path)


def write_rows(sink: CsvChangelog, rows: type[Any], changes: list[tuple[Any, ...]]) -> None:
    writer = open_sink(sink, SinkRequest("out", schema_of(rows)))
    try:
        writer.recover(0)
        writer.prepare(1, changes)
        writer.publish(1)
    finally:
        writer.close()
