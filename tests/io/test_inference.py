"""A row class inferred from files reads these files, all of them."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput, UnreadableSource
from headrace.expr.row_classes import schema_of
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT64,
    INTEGERS,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
    Field,
    ListType,
    MapType,
    StructType,
)
from headrace.io import CsvFiles, parse_source
from headrace.io.inference import infer, row_class_text
from tests.golden import assert_golden
from tests.io.feeds import feed, read, write

GOLDEN = Path(__file__).parent / "golden"
ROWS = 100_000


def rows_by(text: str, folder: Path) -> list[Any]:
    """Paste what was printed, and read the files with it."""
    module = runpy.run_path(str(write(folder / "pasted.py", text)))
    (source,) = (shlex.split(line)[2] for line in text.splitlines() if line.startswith("# --source"))
    name, _, uri = source.partition("=")
    return read(parse_source(uri), feed(module[name.capitalize()]))


def test_csv_as_offices_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        "id;Käufer;price;when;note;order id;zip;paid",
        '1;Bö;1.50;2024-01-02;a;x;00123;true\n2;"c;d";2.25;2024-02-03 10:00;NA;y;12345;',
        "3;e;NA;2024-01-02;;z;1;False",
    ]
    write(tmp_path / "orders" / "a.csv", "\r\n".join([*lines, ""]).encode("cp1252"))
    write(
        tmp_path / "orders" / "b.csv",
        "id;Käufer;price;when;note;zip\n4;f;-1.00;2024-01-02;a;3\n".encode("cp1252"),
    )
    text = str(infer("orders", ROWS))
    assert_golden(GOLDEN / "infer_csv.txt", text)
    moment = datetime(2024, 1, 2, tzinfo=UTC)
    assert rows_by(text, tmp_path) == [
        (1, "Bö", Decimal("1.5"), moment, "a", "00123", True),
        (2, "c;d", Decimal("2.25"), datetime(2024, 2, 3, 10, tzinfo=UTC), None, "12345", None),
        (3, "e", None, moment, None, "1", False),
        (4, "f", Decimal(-1), moment, "a", "3", None),
    ]


def test_json_with_nested_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(
        tmp_path / "events.json",
        '{"id": 1, "x": 1.5, "tags": ["a"], "by": {"name": "n", "at": "2024-01-01T00:00:00Z"}, "v": 1,'
        ' "e": []}\n'
        '{"id": 2, "x": 1, "tags": [], "by": {"name": null, "at": "2024-01-01"}, "v": "a",'
        ' "day": "2024-01-01"}\n',
    )
    text = str(infer("events.json", ROWS))
    assert_golden(GOLDEN / "infer_json.txt", text)
    assert rows_by(text, tmp_path) == [
        (1, 1.5, ("a",), ("n", datetime(2024, 1, 1, tzinfo=UTC)), None),
        (2, 1.0, (), (None, datetime(2024, 1, 1, tzinfo=UTC)), date(2024, 1, 1)),
    ]


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    columns = {
        "n": pa.array([1, None], pa.int16()),
        "price": [Decimal("1.50"), Decimal(2)],
        "place": [{"x": 1, "near": [1.5, None]}, {"x": 2, "near": None}],
        "counts": pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())),
        "at": pa.array([1, 2], pa.time32("s")),
        "when": pa.array([1, 2], pa.timestamp("ms")),
        "none": pa.nulls(2),
    }
    pq.write_table(pa.table(columns), tmp_path / "trips.parquet")
    text = str(infer("trips.parquet", ROWS))
    assert_golden(GOLDEN / "infer_parquet.txt", text)
    assert [row[:3] for row in rows_by(text, tmp_path)] == [
        (1, Decimal("1.50"), (1, (1.5, None))),
        (None, Decimal("2.00"), (2, None)),
    ]


def types(path: Path, content: str, rows: int = ROWS) -> dict[str, str]:
    found = infer(str(write(path, content)), rows)
    return {f.name: f"{f.type}{'?' * f.nullable}" for f in found.columns.fields}


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (["1", "-20"], "int64"),
        (["1", ""], "int64?"),
        (["1", "NULL"], "int64?"),
        (["1", "2.5"], "float64"),
        (["1.50", "2.25"], "decimal(18,2)"),
        (["1.5", "2.5"], "float64"),
        (["1.50", "2.5"], "float64"),
        (["1e3", "2.0"], "float64"),
        (["007", "8"], "str"),
        (["9223372036854775808"], "str"),
        (["true", "FALSE"], "bool"),
        (["true", "1"], "str"),
        (["2024-02-29"], "date"),
        (["2024-02-30"], "str"),
        (["2024-02-29", "2024-02-29T10:00:00Z"], "timestamp"),
        (["2024-03-31 02:30:00+00", "2024-03-31 02:30:00.5-03", "2024-03-31T02:30:00z"], "timestamp"),
        (["2024-03-31 02:30:00+0"], "str"),
        (["a", "NA"], "str"),
        (["a", ""], "str?"),
        (["NA", "NA"], "str?"),
        (["1_000", " 1"], "str"),
    ],
)
def test_a_type_is_recognised_conservatively(tmp_path: Path, values: list[str], type: str) -> None:
    assert types(tmp_path / "a.csv", "v,w\n" + "".join(f"{v},x\n" for v in values)) == {"v": type, "w": "str"}


@pytest.mark.parametrize(
    ("content", "uri"),
    [
        ("a,b\n1,2\n", "csv:{}"),
        ("a\tb\n1\t2\n", r"csv:{}?sep=\t"),
        ("a|b\n1,2|2\n3,4|5\n", "csv:{}?sep=|"),
        ("1,2\n3,4\n", "csv:{}?header=false"),
        ('a;b\n"x;y";2\n', "csv:{}?sep=;"),
        ("a\n1\n", "csv:{}"),
    ],
)
def test_the_form_of_csv_is_found_out(tmp_path: Path, content: str, uri: str) -> None:
    path = write(tmp_path / "a.csv", content)
    assert infer(str(path), ROWS).uri == uri.format(path)


def test_utf_16_is_found_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "ä,b\n1,ö\n".encode("utf-16"))
    assert infer(str(path), ROWS).uri == f"csv:{path}?encoding=utf-16"


def test_no_more_rows_are_read_than_asked_for(tmp_path: Path) -> None:
    assert types(tmp_path / "a.json", '{"x": 1}\n{"x": null}\n', rows=1) == {"x": "int64"}
    assert types(tmp_path / "b.csv", "x,y\n1,2\n3,\n", rows=1) == {"x": "int64", "y": "int64"}
    assert str(infer(str(tmp_path / "b.csv"), 1)).startswith("# Read: the first 1 row of 1 file.\n")


def test_what_cannot_be_inferred_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "mixed" / "a.csv", "x\n1\n")
    write(tmp_path / "mixed" / "a.json", '{"x": 1}\n')
    write(tmp_path / "bare" / "a.csv", "x\n1\n")
    write(tmp_path / "bare" / "afile", "x\n1\n")
    write(tmp_path / "names.csv", "order id,class,_x\n1,2,3\n")
    for path, text in (
        ("mixed", "mixed has files that end in .csv, .json$"),
        ("bare", "bare has files that end in .csv and a file without an ending, 'afile'$"),
        ("bare/afile", "afile has a file without an ending, 'afile'$"),
        ("names.csv", "no column that a row class"),
    ):
        with pytest.raises(BadInput) as refused:
            infer(str(tmp_path / path), ROWS)
        assert re.search(text, refused.value.what)
        assert refused.value.fix
    for name, content in (
        ("a.json", '{"x": 1}\n{"x'),
        ("b.json", "[1]"),
        ("a.parquet", "x"),
        ("c.csv", 'a,b\n"1'),
    ):
        with pytest.raises(UnreadableSource):
            infer(str(write(tmp_path / name, content)), ROWS)


NAMES = st.sampled_from(["a", "b", "item", "order_lines"])
PLAIN = st.one_of(
    st.sampled_from([BOOL, *INTEGERS, FLOAT32, FLOAT64, STR, BYTES, DATE, TIMESTAMP]),
    st.builds(DecimalType, st.integers(5, 38), st.integers(0, 5)),
)


def fields(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[tuple[Field, ...]]:
    made = st.lists(st.builds(Field, NAMES, types, st.booleans()), min_size=1, unique_by=lambda f: f.name)
    return made.map(tuple)


TYPES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.builds(ListType, inner, st.booleans()),
        st.builds(MapType, st.sampled_from([STR, INT64]), inner, st.booleans()),
        fields(inner).map(StructType),
    ),
    max_leaves=5,
)


@given(fields(TYPES))
def test_the_text_of_a_row_class_has_its_columns(
    tmp_path_factory: pytest.TempPathFactory, columns: tuple[Field, ...]
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "text" / "row.py", row_class_text("Row", columns))
    assert schema_of(runpy.run_path(str(path))["Row"]).fields == columns


@pytest.mark.parametrize("blank", ["", "\r\n\n"])
def test_files_with_different_separators_are_told_apart(tmp_path: Path, blank: str) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text(f"{blank}a;b\n1;2\n")
    with pytest.raises(BadInput, match="different separators"):
        infer(str(tmp_path), 100)


def test_a_first_row_that_is_no_header_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,id\n1,2\n")
    assert "# The first row is read as data." in str(infer(str(tmp_path), 100))


@pytest.mark.parametrize(("name", "content"), [("a.csv", b"\xff\xfea"), ("a.json", b"[" * 20_000)])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableSource, match=name):
        infer(str(tmp_path), 100)


def test_the_uri_of_a_file_with_a_question_mark_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "x?y.csv").write_text("a|b\n1|2\n")
    assert parse_source(infer(str(tmp_path / "x?y.csv"), 100).uri) == CsvFiles(tmp_path / "x?y.csv", sep="|")


@pytest.mark.parametrize("name", ["none", "true", "named_tuple", "decimal", "annotated", "int32"])
def test_a_class_is_not_called_like_a_keyword_or_an_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.json").write_text('{"price": 1.5, "none": {"a": 1}}\n')
    tree = ast.parse(str(infer(f"{name}.json", ROWS)))
    classes = [each.name for each in tree.body if isinstance(each, ast.ClassDef)]
    imported = {alias.name for each in tree.body if isinstance(each, ast.ImportFrom) for alias in each.names}
    assert not imported & {*classes}
    assert len(classes) == 2
