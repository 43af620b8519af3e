"""The changelog sink: what lies on disk at each step, and who can read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.dataset
import pytest

from headrace.errors import BadInput
from headrace.expr.row_classes import schema_of
from headrace.io import Changelog, SinkRequest, Writer, open_sink
from headrace.io.files.changelog import assemble, publish, recover, stage_part
from tests.io.feeds import Everything, Point

ONE = [(1, "a", 1), (2, None, 1)]
TWO = [(1, "a", -1)]


def writer(path: Path, tick: int = 0, *, spool: Path | None = None, rows: Any = Point) -> Writer:
    opened = open_sink(Changelog(path), SinkRequest("points", schema_of(rows), spool))
    opened.recover(tick)
    return opened


def seen(path: Path) -> list[tuple[Any, ...]]:
    """All rows with weight and tick, as DuckDB reads them."""
    if not list(path.glob("tick=*")):
        return []
    query = (
        f"select x, label, weight, tick from read_parquet('{path}/tick=*/*.parquet', hive_partitioning=true)"
    )
    return sorted(duckdb.sql(query).fetchall(), key=lambda row: (row[3], row[0]))


def test_a_tick_is_seen_when_it_is_published_and_once(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.prepare(1, ONE)
    assert seen(tmp_path) == []
    sink.publish(1)
    sink.publish(1)
    assert seen(tmp_path) == [(1, "a", 1, 1), (2, None, 1, 1)]
    sink.prepare(2, [])
    sink.publish(2)
    sink.prepare(3, TWO)
    sink.publish(3)
    sink.close()
    assert seen(tmp_path) == [(1, "a", 1, 1), (2, None, 1, 1), (1, "a", -1, 3)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tick=1", "tick=3"]


def test_polars_and_arrow_read_it_with_the_tick_as_a_number(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    for tick, rows in ((9, ONE), (10, TWO)):
        sink.prepare(tick, rows)
        sink.publish(tick)
    frame = polars.read_parquet(tmp_path / "tick=*/*.parquet", hive_partitioning=True)
    assert sorted(frame["tick"].to_list()) == [9, 9, 10]
    assert frame["tick"].dtype.is_integer()
    table = pyarrow.dataset.dataset(tmp_path, partitioning="hive").to_table()
    assert sorted(table["tick"].to_pylist()) == [9, 9, 10]


@pytest.mark.parametrize("committed", [1, 2])
def test_after_a_crash_what_was_committed_is_published_and_the_rest_dropped(
    tmp_path: Path, committed: int
) -> None:
    spool = tmp_path / "spool"
    out = tmp_path / "out"
    sink = writer(out, spool=spool)
    sink.prepare(1, ONE)
    sink.publish(1)
    sink.prepare(2, TWO)
    sink.close()
    again = writer(out, committed, spool=spool)
    assert len(seen(out)) == (2 if committed == 1 else 3)
    assert not (out / "_staging").exists()
    again.prepare(committed + 1, TWO)
    again.publish(committed + 1)
    assert len(seen(out)) == committed + 2


def test_an_unfinished_attempt_of_tasks_leaves_nothing_in_the_tick(tmp_path: Path) -> None:
    schema = schema_of(Point)
    stage_part(tmp_path, 1, "shard0-attempt0.parquet", ONE, schema)
    lost = [stage_part(tmp_path, 1, "shard1-attempt0.parquet", ONE, schema)]
    assemble(tmp_path, 1, lost)
    names = [stage_part(tmp_path, 1, f"shard{s}-attempt1.parquet", TWO, schema) for s in range(2)]
    assemble(tmp_path, 1, names)
    assemble(tmp_path, 1, names)
    publish(tmp_path, 1)
    recover(tmp_path, 1)
    assert seen(tmp_path) == [(1, "a", -1, 1), (1, "a", -1, 1)]


def test_an_attempt_whose_parts_are_gone_takes_nothing_from_the_one_that_replaced_it(tmp_path: Path) -> None:
    schema = schema_of(Point)
    assemble(tmp_path, 1, [stage_part(tmp_path, 1, "of-the-new-driver.parquet", ONE, schema)])
    with pytest.raises(FileNotFoundError):
        assemble(tmp_path, 1, ["part-1-of-the-old-driver.parquet"])
    publish(tmp_path, 1)
    assert len(seen(tmp_path)) == len(ONE)


def test_output_of_another_run_is_not_mixed_with(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.prepare(1, ONE)
    sink.publish(1)
    with pytest.raises(BadInput, match="already holds tick 1"):
        writer(tmp_path)
    with pytest.raises(BadInput, match="already holds tick 1"):
        writer(tmp_path, 0, spool=tmp_path / "spool")


def test_output_of_a_run_that_began_since_is_not_mixed_with(tmp_path: Path) -> None:
    one, other = writer(tmp_path), writer(tmp_path)
    one.prepare(1, ONE)
    one.publish(1)
    with pytest.raises(BadInput, match="already holds tick 1"):
        other.prepare(1, ONE)


def test_columns_of_the_changelog_itself_are_refused(tmp_path: Path) -> None:
    from typing import NamedTuple

    for name in ("weight", "tick"):
        with pytest.raises(BadInput, match=f"column '{name}' is reserved"):
            writer(tmp_path / "out", rows=NamedTuple("Row", [(name, int)]))  # type: ignore[misc]
    assert not (tmp_path / "out").exists()


def test_nested_rows_are_read_by_others(tmp_path: Path) -> None:
    sink = writer(tmp_path, rows=Everything)
    sink.prepare(1, [(*(None,) * 8, (1, "a"), ((2, None),), (3, None), 1)])
    sink.publish(1)
    found = duckdb.sql(
        f"select point.label, points[1].x, numbers from read_parquet('{tmp_path}/*/*.parquet')"
    )
    assert found.fetchall() == [("a", 2, [3, None])]
