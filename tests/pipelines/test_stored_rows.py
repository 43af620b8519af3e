"""Rows of versions as they are shown: pages, searches, huge and hostile values, and changes between two."""

from __future__ import annotations

import datetime
import json
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UnreadableSource
from headrace.pipelines import stored_rows
from headrace.pipelines.catalog import PipelineCatalog, TableEntry
from headrace.pipelines.definitions import SHARED, TableName
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.stored_rows import MAX_TEXT, StoredVersion, page_of
from headrace.pipelines.table_files import ReadLimit, partition_columns
from headrace.pipelines.weighted_rows import WEIGHT
from tests.pipelines.stored_pipeline import StoredPipeline, name_of


def numbers(first: int, count: int, text: str = "row") -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"{text} {at}" for at in ids]})


@pytest.fixture
def pipeline(tmp_path: Path) -> StoredPipeline:
    return StoredPipeline(tmp_path)


def stored(pipeline: StoredPipeline, table: str = "t") -> StoredVersion:
    return StoredVersion(pipeline.storage, name_of(table), pipeline.entries[name_of(table)])


def texts(version: StoredVersion, search: str = "", offset: int = 0) -> list[tuple[str | None, ...]]:
    return [row.values for row in version.page(search, offset).rows]


def test_pages_follow_one_another_over_files_and_row_groups(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [numbers(0, 2_500), numbers(2_500, 77)]})
    version = stored(pipeline)
    seen: list[str | None] = []
    offset, more = 0, True
    while more:
        page = version.page("", offset)
        seen += [row.values[0] for row in page.rows]
        offset, more = page.following, page.more
    assert sorted(map(int, filter(None, seen))) == list(range(2_577))
    assert version.page("", 2_570).more is False
    assert len(version.page("", 2_570).rows) == 7
    assert version.page("", 10**9).rows == []


def test_a_search_finds_what_is_shown_in_any_column_and_case(pipeline: StoredPipeline) -> None:
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "price": pa.array([Decimal("1.50"), None, Decimal("20.00")], pa.decimal128(10, 2)),
            "day": [datetime.date(2026, 1, 31), None, datetime.date(2026, 2, 1)],
            "name": ["Ä.*(", "<b>", None],
            "tags": [["x", "Why"], [], None],
            "raw": [b"\xff\x00", None, b""],
            "at": pa.array([None, 0, None], pa.timestamp("us", "UTC")),
            "rate": [1e300, float("inf"), None],
        }
    )
    pipeline.run({"t": [rows]})
    version = stored(pipeline)
    assert texts(version)[0][:6] == ("1", "1.50", "2026-01-31", "Ä.*(", '["x", "Why"]', '"ff00"')

    def ids(search: str) -> list[str | None]:
        return [row[0] for row in texts(version, search)]

    found = {
        "1.5": "1",
        "2026-02": "3",
        "ä.*(": "1",
        "<B>": "2",
        "why": "1",
        "FF00": "1",
        "1E+": "1",
        "INF": "2",
    }
    assert {search: ids(search) for search in found} == {search: [row] for search, row in found.items()}
    assert [ids("00Z"), ids("null"), ids("\x00")] == [["2"], [], []]
    assert version.numbers == [True, True, False, False, False, False, False, True]


def test_a_search_is_paged_like_all_rows(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [numbers(0, 3_000)]})
    version = stored(pipeline)
    first = version.page("ROW 2", 0)  # 2, 20 to 29, 200 to 299, and 2000 to 2999
    assert (len(first.rows), first.more, first.following) == (100, True, 100)
    assert texts(version, "ROW 2", 1_110) == [("2999", "row 2999")]
    assert version.page("ROW 2", 1_111).rows == []


def test_a_search_ends_after_its_time(pipeline: StoredPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "SEARCH_SECONDS", -1.0)
    pipeline.run({"t": [numbers(0, 3_000)]})
    page = stored(pipeline).page("nowhere", 0)
    assert (page.rows, page.more, page.searched) == ([], True, 0)


def test_huge_values_are_cut_and_a_page_is_limited(
    pipeline: StoredPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_rows, "MAX_ANSWER", 10 * MAX_TEXT)
    long = "é" * 1_000_000
    pipeline.run({"t": [pa.table({"id": range(40), "text": [long] * 40})]})
    page = stored(pipeline).page("", 0)
    assert len(page.rows) == 10
    assert {len(row.values[1] or "") for row in page.rows} == {MAX_TEXT + 1}
    assert (page.more, page.following, page.rows[0].whole) == (True, 10, False)
    assert texts(stored(pipeline), "É", 39)[0][0] == "39"


def test_partitions_are_columns(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [pa.table({"id": [1], "city": ["a/b"], "day": [datetime.date(2026, 1, 1)]})]})
    version = stored(pipeline)
    (file,) = version.folder().iterdir()
    part = version.folder() / "city=a%2Fb" / "day=2026-01-01"
    part.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), part / "p.parquet")
    file.unlink()
    entry = TableEntry(1, 1, version.entry.schema, "parquet `city` `day`", "")
    version = StoredVersion(pipeline.storage, version.name, entry)
    assert texts(version) == [("1", "a/b", "2026-01-01")]
    found = version.find({"city": "a/b", "day": "2026-01-01"})
    assert found is not None
    assert found.to_pylist() == [{"id": 1, "city": "a/b", "day": datetime.date(2026, 1, 1)}]


def test_a_row_is_found_by_what_is_shown_of_it(pipeline: StoredPipeline) -> None:
    odd = pa.table({"id": [1, 2, 3], "x": [0.1 + 0.2, float("nan"), None], "t": [[1], [2], None]})
    pipeline.run({"t": [numbers(0, 3).append_column("x", pa.nulls(3, pa.float64()))], "odd": [odd]})
    version = stored(pipeline, "odd")
    for at, row in enumerate(version.page("", 0).rows):
        found = version.find(dict(zip(version.columns, row.values, strict=True)))
        assert found is not None
        assert found["id"].to_pylist() == [at + 1]
    assert version.find({"id": "4"}) is None
    assert version.find({"x": None, "id": "1"}) is None


def test_kept_changes_are_found_until_a_folder_is_gone(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [numbers(0, 1)]})
    pipeline.run({"t": [numbers(0, 2)]})
    assert stored(pipeline).kept_changes(1) is None
    kept = PipelineCatalog.changes_in(pipeline.storage, name_of("t")).folder(2)
    kept.mkdir(parents=True)
    pq.write_table(numbers(7, 1).append_column(WEIGHT, pa.array([-1])), kept / "1.parquet")
    pq.write_table(numbers(6, 1), kept / "2.parquet")
    page = page_of(stored(pipeline).kept_changes(1), "", 0)
    assert [(row.values, row.weight) for row in page.rows] == [(("6", "row 6"), 1), (("7", "row 7"), -1)]
    assert stored(pipeline).kept_changes(0) is None


def test_of_a_part_only_rows_that_others_take_back_are_read_as_a_whole(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [numbers(0, 250)]})
    name = TableName(SHARED, "part")
    folder = PipelineCatalog.rows_in(pipeline.storage, name).folder(1)
    shutil.copytree(stored(pipeline).folder(), folder)
    limit = ReadLimit(rows=251)
    part = StoredVersion(pipeline.storage, name, pipeline.entries[name_of("t")], ReadLimit(rows=1))
    assert len(texts(part, offset=200)) == 50
    back = numbers(3, 1).append_column(WEIGHT, pa.array([-1]))
    pq.write_table(back, folder / "zz.parquet")
    with pytest.raises(PipelineError, match="251 rows"):
        part.page("", 0)
    page = replace(part, limit=limit).page("", 200)
    assert (len(page.rows), page.more) == (49, False)
    assert texts(replace(part, limit=limit), "row 3") == [
        (str(at), f"row {at}") for at in range(250) if at != 3 and str(at)[0] == "3"
    ]


def test_changes_beyond_the_limit_are_not_read(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [numbers(0, 1)]})
    pipeline.run({"t": [numbers(0, 2)]})
    kept = PipelineCatalog.changes_in(pipeline.storage, name_of("t")).folder(2)
    kept.mkdir(parents=True)
    pq.write_table(numbers(6, 4), kept / "1.parquet")
    with pytest.raises(PipelineError, match=r"the changes of the run take .* with 4 rows") as refused:
        replace(stored(pipeline), limit=ReadLimit(rows=3)).kept_changes(1)
    assert "headrace pipeline diff" in refused.value.fix


def test_versions_that_are_gone_or_damaged_are_told(pipeline: StoredPipeline) -> None:
    pipeline.run({"t": [numbers(0, 1)]})
    for file in stored(pipeline).folder().iterdir():
        file.write_bytes(b"PAR1 no more")
    with pytest.raises(UnreadableSource, match="cannot be read"):
        stored(pipeline).page("", 0)
    entry = TableEntry(9, 3, stored(pipeline).entry.schema, "parquet", "")
    with pytest.raises(UnreadableSource, match="version 9"):
        StoredVersion(pipeline.storage, name_of("t"), entry).page("", 0)
    orc = TableEntry(1, 3, stored(pipeline).entry.schema, "orc", "")
    with pytest.raises(UnreadableSource, match="stored as orc"):
        StoredVersion(pipeline.storage, name_of("t"), orc).page("", 0)


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=3))
def test_partition_columns_are_read_back_from_a_layout(names: list[str]) -> None:
    from headrace.expr.spark_columns import quoted

    assert partition_columns(" ".join(("parquet", *map(quoted, names)))) == names


def test_a_row_as_json_is_a_question_about_it(pipeline: StoredPipeline) -> None:
    from headrace.cli.inspection import parse_texts
    from headrace.ui.pipeline_page import row_json

    columns = pa.schema([("a", pa.decimal128(38, 0)), ("b", pa.string()), ("c", pa.float64())])
    rows = pa.table(
        {"a": [12345678901234567890123, -1], "b": ['"', None], "c": [1e300, float("inf")]}, columns
    )
    pipeline.run({"t": [rows]})
    version = stored(pipeline)
    for row in version.page("", 0).rows:
        text = row_json(version.columns, version.numbers, row.values)
        assert isinstance(json.loads(text)["a"], int)
        found = version.find(parse_texts(text))
        assert found is not None
        assert found.num_rows == 1
