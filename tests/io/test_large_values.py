"""A limit on the size of values: small files that would take gigabytes are refused before."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import BadInput, UnreadableSource
from headrace.io import CsvFiles, JsonFiles, ParquetFiles, parse_source
from headrace.io.files.parquet_rows import large_pages
from tests.io.feeds import feed, read

MIB = 1 << 20


class Note(NamedTuple):
    n: int
    text: str | None = None
    parts: list[str] | None = None


class Line(NamedTuple):
    n: int
    text: str | None = None


def compressed(path: Path, text: str) -> None:
    with gzip.open(path, "wt") as file:
        file.write(text)


LONG = "x" * (3 * MIB)
FILES: dict[str, Any] = {
    "line": (JsonFiles, "a.json.gz", f'{{"n": 1}}\n{{"n": 2, "text": "{LONG}"}}\n'),
    "last line": (JsonFiles, "a.json.gz", f'{{"n": 1}}\n{{"n": 2, "text": "{LONG}"}}'),
    "array": (JsonFiles, "a.json.gz", "[" + ",\n".join(['{"n": 1}'] * 300_000) + "]"),
    "one line": (JsonFiles, "a.json.gz", f'[{{"n": 2, "text": "{LONG}"}}]'),
    "field": (CsvFiles, "a.csv.gz", f"n,text\n1,one\n2,{LONG}\n"),
    "header": (CsvFiles, "a.csv.gz", f"n,{LONG}\n1,one\n"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_line_above_the_limit_is_unreadable(case: str, tmp_path: Path) -> None:
    kind, name, text = FILES[case]
    compressed(tmp_path / name, text)
    with pytest.raises(UnreadableSource) as error:
        read(kind(tmp_path, max_value_bytes=MIB), feed(Line))
    assert "more than max_value_bytes=1,048,576" in (error.value.why or "")
    if kind is JsonFiles:
        assert len(read(kind(tmp_path, max_value_bytes=64 * MIB), feed(Line))) > 0


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("column", ["text", "parts"])
def test_a_page_of_parquet_above_the_limit_is_unreadable(
    column: str, dictionary: bool, version: Any, compression: str, tmp_path: Path
) -> None:
    large: Any = LONG if column == "text" else ["a", LONG]
    small: Any = "a" if column == "text" else ["a"]
    values = [small, None] * 50_000
    table = pa.table({"n": pa.array(range(100_001)), column: [*values, large]})
    pq.write_table(
        table, tmp_path / "a.parquet",
        compression=compression, data_page_version=version, use_dictionary=dictionary, row_group_size=40_000,
    )  # fmt: skip
    with pytest.raises(UnreadableSource) as error:
        read(ParquetFiles(tmp_path, max_value_bytes=2 * MIB), feed(Note))
    assert f"a page of its column {column!r} has 3," in (error.value.why or "")
    assert len(read(ParquetFiles(tmp_path, max_value_bytes=8 * MIB), feed(Note))) == 100_001


def test_the_sizes_of_all_pages_add_up_to_that_of_the_column(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"n": range(300_000), "text": [f"text {n}" for n in range(300_000)]})
    pq.write_table(table, path, compression="none", data_page_size=10_000)
    with pq.ParquetFile(path) as file:
        groups = range(file.num_row_groups)
        sizes = [size for _, size in large_pages(file, path, groups, {"n", "text"}, -1)]
        columns = [file.metadata.row_group(g).column(c) for g in groups for c in (0, 1)]
    whole = sum(column.total_uncompressed_size for column in columns)
    assert len(sizes) > 100
    assert 0 < whole - sum(sizes) < 100 * len(sizes)  # the headers


def test_columns_that_are_not_read_may_have_large_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "other": [LONG]}), tmp_path / "a.parquet")
    assert read(ParquetFiles(tmp_path, max_value_bytes=MIB), feed(Note)) == [(1, None, None)]


def test_a_damaged_header_of_a_page_is_found(tmp_path: Path) -> None:
    made = io.BytesIO()
    pq.write_table(pa.table({"n": range(1000)}), made, compression="none", use_dictionary=False)
    content = bytearray(made.getvalue())
    content[4:40] = b"\xff" * 36
    (tmp_path / "a.parquet").write_bytes(bytes(content))
    with pytest.raises(UnreadableSource):
        read(ParquetFiles(tmp_path, max_value_bytes=MIB), feed(Note))


def test_the_limit_is_an_option_of_addresses() -> None:
    assert parse_source("parquet:in?max_value_bytes=2000000") == ParquetFiles("in", max_value_bytes=2_000_000)
    with pytest.raises(BadInput, match="max_value_bytes is 5"):
        ParquetFiles("in", max_value_bytes=5)
