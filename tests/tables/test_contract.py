"""What `VersionedTable` promises, for each format that implements it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import UnreadableSource
from headrace.tables.versioned_table import (
    CHANGE_TYPE,
    CHANGE_WEIGHTS,
    OPERATION,
    TableVersion,
    VersionedTable,
    quote_column,
)

Open: TypeAlias = Callable[[str], VersionedTable]

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])
FEED: dict[str, dict[str, str]] = {"delta": {"delta.enableChangeDataFeed": "true"}}


def error(what: str, why: str, fix: str, cause: Exception) -> UnreadableSource:
    assert str(cause) == why
    return UnreadableSource(f"the table {what}", why=why, fix=fix)


def open_delta(path: str) -> VersionedTable:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    from headrace.tables.delta_table import DeltaLakeTable

    return DeltaLakeTable(path, error)


@pytest.fixture(params=[open_delta])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> VersionedTable:
    return request.param(str(tmp_path / "t"))


def rows(*values: tuple[Any, ...], schema: pa.Schema = SCHEMA) -> pa.RecordBatchReader:
    columns = [list(column) for column in zip(*values)] or [[] for _ in schema]
    made = pa.table(columns, schema=schema)
    return pa.RecordBatchReader.from_batches(schema, made.to_batches())


def read(reader: pa.RecordBatchReader) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for batch in reader for row in batch.to_pylist())


def test_a_table_that_is_missing_does_not_exist(table: VersionedTable) -> None:
    assert not table.exists()
    with pytest.raises(table.errors):
        table.version()


def test_every_version_stays_as_it_was_committed(table: VersionedTable) -> None:
    table.create(SCHEMA)
    table.append(rows((1, "a"), (1, "a")), {})
    table.append(rows((2, None)), {})
    table.replace(rows((3, "c")), {})
    assert table.version().number == 3
    found = [read(table.scan(number)) for number in range(4)]
    before = Counter({(1, "a"): 2})
    assert found == [Counter(), before, before + Counter([(2, None)]), Counter([(3, "c")])]
    assert read(table.scan()) == found[-1]


def test_a_scan_has_the_columns_and_at_least_the_rows_that_are_wanted(table: VersionedTable) -> None:
    table.append(rows((1, "a"), (2, "b")), {})
    found = read(table.scan(columns=["s"], where=f"{quote_column('id')} between 2 and 5"))
    assert Counter([("b",)]) <= found <= Counter([("a",), ("b",)])


def test_a_commit_records_the_transactions_of_applications(table: VersionedTable) -> None:
    table.create(SCHEMA, transactions={"one": 0})
    assert (table.transaction("one"), table.transaction("other")) == (0, None)
    table.append(rows((1, "a")), {"one": 5, "other": 1})
    table.append(rows(), {"one": 6})
    assert (table.transaction("one"), table.transaction("other")) == (6, 1)


def test_a_version_knows_its_table(table: VersionedTable, tmp_path: Path) -> None:
    table.create(SCHEMA)
    first = table.version()
    table.append(rows((1, "a")), {})
    assert table.version(0) == first == TableVersion.parse(str(first))
    assert table.version().follows(first)
    assert not first.follows(table.version())
    os.rename(tmp_path / "t", tmp_path / "old")
    table.create(SCHEMA)
    assert not table.version().follows(first)


def test_columns_and_partitions_are_those_of_the_newest_version(table: VersionedTable) -> None:
    table.create(SCHEMA, partitioned_by=["id"])
    assert table.partition_columns() == ["id"]
    assert table.stored_types(table.schema()) == table.stored_types(SCHEMA)
    assert table.types() == {"id": "long", "s": "string"}
    table.replace(rows((1.5,), schema=pa.schema([("x", pa.float64())])), {})
    assert (table.partition_columns(), table.types(), table.types(0)["id"]) == ([], {"x": "double"}, "long")


def test_files_hold_the_rows_of_a_version(table: VersionedTable) -> None:
    table.create(SCHEMA, partitioned_by=["id"])
    table.append(rows((1, "a"), (2, "b")), {})
    table.append(rows((1, "c")), {})
    files = table.files(1)
    assert files is not None
    found = [(file.partition, pq.ParquetFile(file.path).read()["s"].to_pylist()) for file in files]
    assert sorted(found) == [((("id", "1"),), ["a"]), ((("id", "2"),), ["b"])]
    assert (table.row_count(1), table.row_count(2)) == (2, 3)


def merged(table: VersionedTable, *changes: tuple[Any, ...], key: list[str] | None) -> None:
    schema = SCHEMA.append(pa.field(OPERATION, pa.int64()))
    table.merge(rows(*changes, schema=schema), SCHEMA.names, {"me": 1}, key)


def test_a_merge_by_key_replaces_inserts_and_deletes(table: VersionedTable) -> None:
    table.append(rows((1, "a"), (2, "b"), (3, "c")), {})
    merged(table, (1, "A", 1), (2, "b", -1), (4, "d", 1), (5, "e", -1), key=["id"])
    assert read(table.scan()) == Counter([(1, "A"), (3, "c"), (4, "d")])
    assert table.transaction("me") == 1


def test_a_merge_of_rows_deletes_all_copies_and_inserts_as_many_as_it_has(table: VersionedTable) -> None:
    table.append(rows((1, "a"), (1, "a"), (2, None), (3, "c")), {})
    merged(table, (1, "a", -1), (2, None, -1), (3, "c", 1), (4, "d", 1), (4, "d", 1), key=None)
    assert read(table.scan()) == Counter({(3, "c"): 2, (4, "d"): 2})


def test_a_feed_has_the_changes_of_each_version(table: VersionedTable) -> None:
    table.create(SCHEMA, properties=FEED["delta"])
    table.append(rows((1, "a"), (2, "b")), {})
    merged(table, (1, "A", 1), (2, "b", -1), key=["id"])
    weights = Counter[tuple[Any, ...]]()
    for number in (1, 2):
        feed = table.feed(number)
        assert feed is not None
        for batch in feed:
            for row in batch.to_pylist():
                weights[row["id"], row["s"]] += CHANGE_WEIGHTS[row[CHANGE_TYPE]]
    assert +weights == Counter([(1, "A")])
    assert not -weights


def test_without_a_feed_there_is_none(table: VersionedTable) -> None:
    table.append(rows((1, "a")), {})
    assert table.feed(0) is None


def contents(files: Any) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(row.values()) for file in files for row in pq.ParquetFile(file.path).read().to_pylist()
    )


def test_changed_files_add_up_to_the_difference(table: VersionedTable) -> None:
    table.append(rows((1, "a")), {})
    table.append(rows((2, "b")), {})
    only_added = table.changed_files(0, 1, wider=False)
    assert only_added is not None
    assert only_added.adds_only
    assert contents(only_added.added) == Counter([(2, "b")])
    merged(table, (2, "b", -1), key=["id"])
    table.append(rows((3, "c")), {})
    found = table.changed_files(0, 3, wider=False)
    assert found is not None
    assert not found.whole
    assert not found.feed
    difference = contents(found.added)
    difference.subtract(contents(found.removed))
    assert +difference == Counter([(3, "c")])
    assert not -difference
    nothing = table.changed_files(3, 3, wider=False)
    assert nothing is not None
    assert not (nothing.added)
    assert not (nothing.removed)
    assert not (nothing.feed)


def test_columns_that_changed_leave_the_difference_unknown(table: VersionedTable) -> None:
    table.append(rows((1, "a")), {})
    table.replace(
        rows((1, 2, "a"), schema=pa.schema([("id", pa.int64()), ("n", pa.int64()), ("s", pa.string())])), {}
    )
    assert table.changed_files(0, 1, wider=False) is None
    wider = table.changed_files(0, 1, wider=True)
    assert wider is not None
    assert wider.added


def test_errors_of_the_format_become_those_of_the_user(table: VersionedTable) -> None:
    with pytest.raises(UnreadableSource, match="the table cannot be read"), table.reporting("cannot be read"):
        table.version()
    with pytest.raises(KeyError), table.reporting("cannot be read"):
        raise KeyError
