"""The table sink: the rows of now, versions, buckets."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BadInput
from headrace.expr.code_runtime import NAN
from headrace.expr.row_classes import schema_of
from headrace.expr.types import Schema
from headrace.expr.value_keys import with_representatives
from headrace.io import SinkRequest, TableFiles, Writer, open_sink
from headrace.io.arrow import table_to_rows
from headrace.io.files.table_files import bucket_file
from headrace.io.keyed_tables import build_bucketing
from tests.io.feeds import Everything, Point
from tests.io.internal_rows import SCHEMAS, rows
from tests.properties.effort import examples


def writer(target: TableFiles, tick: int = 0, *, spool: Path | None = None, schema: Any = None) -> Writer:
    opened = open_sink(target, SinkRequest("points", schema or schema_of(Point), spool))
    opened.recover(tick)
    return opened


def run_tick(sink: Writer, tick: int, changes: list[tuple[Any, ...]]) -> None:
    sink.prepare(tick, changes)
    sink.publish(tick)


def seen(path: Path) -> list[tuple[Any, ...]]:
    found = duckdb.sql(f"select x, label from read_parquet('{path}/current/*.parquet') order by x, label")
    return found.fetchall()


def test_rows_come_and_go(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, key="x"))
    assert seen(tmp_path) == []
    run_tick(sink, 1, [(1, "a", 1), (2, None, 1)])
    assert seen(tmp_path) == [(1, "a"), (2, None)]
    run_tick(sink, 2, [(1, "a", -1), (1, "b", 1)])
    run_tick(sink, 3, [])
    run_tick(sink, 4, [(2, None, -1), (3, "c", 1)])
    sink.publish(4)
    sink.close()
    assert seen(tmp_path) == [(1, "b"), (3, "c")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["buckets", "current", "versions"]
    assert os.readlink(tmp_path / "current") == "versions/tick=4"
    assert sorted(p.name for p in (tmp_path / "versions").iterdir()) == ["tick=2", "tick=4"]


def test_what_is_prepared_is_not_seen_and_what_a_reader_has_open_stays(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, buckets=1))
    run_tick(sink, 1, [(1, "a", 1)])
    at_work = (tmp_path / "current").resolve()
    sink.prepare(2, [(1, "a", -1), (2, "b", 1)])
    assert seen(tmp_path) == [(1, "a")]
    sink.publish(2)
    assert seen(tmp_path) == [(2, "b")]
    assert len(pq.ParquetFile(at_work / bucket_file(0)).read()) == 1


def test_a_tick_rewrites_the_buckets_it_touches_and_links_the_others(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, key="x", buckets=8))
    run_tick(sink, 1, [(x, "a", 1) for x in range(100)])
    run_tick(sink, 2, [(7, "a", -1), (7, "b", 1)])
    old, new = (tmp_path / "versions" / f"tick={tick}" for tick in (1, 2))
    same = [f.name for f in new.iterdir() if f.samefile(old / f.name)]
    assert len(list(new.iterdir())) == 8
    assert len(same) == 7
    assert len(seen(tmp_path)) == 100


def test_a_tick_that_is_published_late_does_not_bring_back_old_rows(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, key="x"))
    run_tick(sink, 1, [(1, "a", 1)])
    run_tick(sink, 2, [(1, "a", -1), (1, "b", 1)])
    sink.publish(1)
    assert seen(tmp_path) == [(1, "b")]


def test_without_a_key_a_row_may_be_there_several_times(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path))
    run_tick(sink, 1, [(1, "a", 3)])
    run_tick(sink, 2, [(1, "a", -1), (1, "b", 1)])
    assert seen(tmp_path) == [(1, "a"), (1, "a"), (1, "b")]


def test_two_rows_of_one_key_are_refused_and_nothing_changes(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, key=["x"]))
    run_tick(sink, 1, [(1, "a", 1)])
    with pytest.raises(BadInput, match=r"two rows have the same key \(x\)"):
        sink.prepare(2, [(1, "b", 1)])
    assert seen(tmp_path) == [(1, "a")]


def test_a_row_cannot_be_there_twice_where_there_is_a_key(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, key="x"))
    with pytest.raises(BadInput, match="two rows have the same key"):
        sink.prepare(1, [(1, "a", 2)])


def test_what_is_held_back_is_in_no_file_that_readers_of_a_folder_find(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, buckets=4))
    run_tick(sink, 1, [(1, "a", -1), (2, "b", 1)])
    assert seen(tmp_path) == [(2, "b")]
    assert pq.read_table(tmp_path / "current").num_rows == 1
    run_tick(sink, 2, [(1, "a", 1)])
    assert not [file for file in (tmp_path / "current").iterdir() if file.suffix != ".parquet"]


def test_an_unknown_key_and_another_number_of_buckets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="the key has unknown column 'y'"):
        writer(TableFiles(tmp_path, key=("x", "y")))
    writer(TableFiles(tmp_path, buckets=4))
    with pytest.raises(BadInput, match="has 4 buckets, not 8"):
        writer(TableFiles(tmp_path, buckets=8))


def test_output_of_another_run_is_not_mixed_with(tmp_path: Path) -> None:
    run_tick(writer(TableFiles(tmp_path)), 1, [(1, "a", 1)])
    with pytest.raises(BadInput, match="already holds tick 1"):
        writer(TableFiles(tmp_path))


def test_output_of_a_run_that_began_since_is_not_mixed_with(tmp_path: Path) -> None:
    one, other = writer(TableFiles(tmp_path)), writer(TableFiles(tmp_path))
    run_tick(one, 1, [(1, "a", 1)])
    with pytest.raises(BadInput, match="already holds tick 1"):
        other.prepare(1, [(2, "a", 1)])


@pytest.mark.parametrize("committed", [2, 3])
def test_after_a_crash_the_version_of_the_commit_is_the_current_one(tmp_path: Path, committed: int) -> None:
    out, spool = TableFiles(tmp_path / "out", buckets=2), tmp_path / "spool"
    sink = writer(out, spool=spool)
    run_tick(sink, 1, [(x, "a", 1) for x in range(9)])
    run_tick(sink, 2, [])
    sink.prepare(3, [(0, "a", -1)])
    sink.close()
    again = writer(out, committed, spool=spool)
    assert len(seen(Path(out.path))) == (9 if committed == 2 else 8)
    assert (tmp_path / "out" / "versions" / "tick=3").exists() == (committed == 3)
    run_tick(again, committed + 1, [(8, "a", -1)])
    assert len(seen(Path(out.path))) == (8 if committed == 2 else 7)


def test_a_second_attempt_at_a_tick_knows_nothing_of_the_first(tmp_path: Path) -> None:
    sink = writer(TableFiles(tmp_path, buckets=1))
    run_tick(sink, 1, [(1, "a", 1), (2, "b", 1)])
    sink.prepare(2, [(1, "a", -1), (3, "c", 1)])
    run_tick(sink, 2, [(2, "b", -1)])
    assert seen(tmp_path) == [(1, "a")]


@examples(0.1)  # of files written
@given(st.data())
def test_the_table_is_the_sum_of_all_changes(data: st.DataObject) -> None:
    schema: Schema = data.draw(SCHEMAS)
    possible = list(dict.fromkeys(with_representatives(data.draw(rows(schema)), schema)))
    with TemporaryDirectory() as folder:
        sink = writer(TableFiles(folder, buckets=3), schema=schema)
        total: Counter[Any] = Counter()
        for tick in range(1, 4):
            counts = {row: data.draw(st.integers(-1, 2)) for row in possible}
            changes = [(*row, n - total[row]) for row, n in counts.items() if n != total[row]]
            run_tick(sink, tick, changes)
            total = Counter(counts)
        parts = [pq.ParquetFile(file).read() for file in Path(folder, "current").glob("*.parquet")]
        found = Counter(row for part in parts for row in table_to_rows(part, schema))
        assert found == +total


_NUMBERS = [(0.0, Decimal("1.5")), (-0.0, Decimal("1.50")), (NAN, Decimal("1.5"))]


def test_equal_keys_lie_in_one_bucket_in_every_process() -> None:
    by = build_bucketing("s", schema_of(Everything), None, 1 << 30)
    moment = datetime(2001, 1, 1, tzinfo=UTC)
    tail = ("ä", b"", moment.date(), moment, (1, None), ((1, "a"),), (None, 2))
    row, same, other = ((True, 1, f, d, *tail) for f, d in _NUMBERS)
    assert [by.bucket(r) for r in (row, same, other)] == [971992230, 971992230, 418358944]
