"""Delta tables: written once per tick whatever happens, read back by others, followed version by version."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pytest

import headrace as hr
from headrace import Flow, col, io
from headrace.errors import BadInput, UnreadableSource, UnwritableSink
from headrace.expr.code_runtime import NAN
from headrace.expr.row_classes import schema_of
from headrace.io import DeltaChangelog, DeltaRows, DeltaTable
from headrace.io.sink import SinkRequest, Writer, open_sink
from tests.golden import MESSAGES, assert_golden

deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")


class Total(NamedTuple):
    shop: str
    total: int | None


class Inner(NamedTuple):
    x: int
    label: str | None


class Everything(NamedTuple):
    id: int
    flag: bool | None
    real: float | None
    price: Decimal | None
    text: str | None
    octets: bytes | None
    day: date | None
    moment: datetime | None
    inner: Inner | None
    numbers: list[int | None] | None


EVERYTHING = (
    1, True, 0.1, Decimal("1.500000000000000000"), "a\tb\\n", b"\x00\xff", date(1970, 2, 3),
    datetime(2020, 12, 31, 23, 59, 59, 999999, UTC), (2, None), (1, None, 3),
)  # fmt: skip
NOTHING = (2, *[None] * 9)


def writer(sink: Any, rows: Any, spool: Path | None = None, tick: int = 0) -> Writer:
    opened = open_sink(sink, SinkRequest("totals", schema_of(rows), spool))
    opened.recover(tick)
    return opened


def write(to: Writer, tick: int, *changes: tuple[Any, ...]) -> None:
    to.prepare(tick, list(changes))
    to.publish(tick)


def rows(path: Path) -> Counter[Any]:
    """The rows of a table, as Polars reads them."""
    return Counter(pl.read_delta(str(path)).rows())


def read(source: Any, row: Any = Total, **options: Any) -> Counter[Any]:
    """What a flow makes of a table source."""
    flow = Flow("read")
    flow.sink("rows", flow.table("rows", row))
    memory = io.Memory()
    hr.run(flow, {"rows": source}, {"rows": memory}, **options)
    return Counter(tuple(r) for r in memory.rows())


def test_a_table_holds_the_rows_of_now(tmp_path: Path) -> None:
    out = writer(DeltaTable(tmp_path / "t", "shop"), Total)
    write(out, 1, ("a", 1, 1), ("b", 2, 1), ("c", None, 1))
    assert rows(tmp_path / "t") == Counter([("a", 1), ("b", 2), ("c", None)])
    write(out, 2, ("a", 1, -1), ("a", 5, 1), ("b", 2, -1), ("d", 7, 1), ("e", 1, 1), ("e", 1, -1))
    assert rows(tmp_path / "t") == Counter([("a", 5), ("c", None), ("d", 7)])


def test_a_changelog_holds_every_change_and_duckdb_can_add_them_up(tmp_path: Path) -> None:
    out = writer(DeltaChangelog(tmp_path / "t"), Total)
    write(out, 1, ("a", 1, 1), ("a", 1, 1), ("b", 3, 1))
    write(out, 4, ("a", 1, -2))
    found = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table()
    assert found.num_rows == 4
    assert duckdb.sql("select shop, total from found group by all having sum(weight) > 0").fetchall() == [
        ("b", 3)
    ]
    assert duckdb.sql("select max(tick) from found").fetchall() == [(4,)]


def test_values_of_all_types_come_back_as_they_were(tmp_path: Path) -> None:
    for sink in (DeltaTable(tmp_path / "t", "id"), DeltaChangelog(tmp_path / "c")):
        write(writer(sink, Everything), 1, (*EVERYTHING, 1), (*NOTHING, 1))
    flow = Flow("read")
    flow.sink("rows", flow.table("rows", Everything))
    found: list[Any] = []
    hr.run(
        flow,
        {"rows": DeltaRows(tmp_path / "t")},
        {"rows": lambda _tick, c: found.extend(sorted(c.raw, key=str))},
    )
    assert found == [(*EVERYTHING, 1), (*NOTHING, 1)]


def test_a_tick_that_comes_again_makes_no_version(tmp_path: Path) -> None:
    out = writer(DeltaChangelog(tmp_path / "t"), Total, tmp_path / "spool")
    write(out, 1, ("a", 1, 1))
    version = deltalake.DeltaTable(str(tmp_path / "t")).version()
    out.publish(1)
    write(out, 1, ("a", 1, 1))
    assert deltalake.DeltaTable(str(tmp_path / "t")).version() == version
    assert rows(tmp_path / "t") == Counter([("a", 1, 1, 1)])


@pytest.mark.parametrize("sink", [DeltaTable, DeltaChangelog])
def test_what_was_committed_is_written_by_the_next_run_and_what_was_not_is_gone(
    sink: Any, tmp_path: Path
) -> None:
    target = DeltaTable(tmp_path / "t", "shop") if sink is DeltaTable else DeltaChangelog(tmp_path / "t")
    write(writer(target, Total, tmp_path / "spool"), 1, ("a", 1, 1))
    writer(target, Total, tmp_path / "spool", 1).prepare(2, [("b", 1, 1)])
    writer(target, Total, tmp_path / "spool", 1).prepare(2, [("c", 1, 1)])  # as it was not committed
    out = writer(target, Total, tmp_path / "spool", 2)
    assert {r[:2] for r in rows(tmp_path / "t")} == {("a", 1), ("c", 1)}
    out.publish(2)
    writer(target, Total, tmp_path / "spool", 2).close()
    assert sum(rows(tmp_path / "t").values()) == 2


def test_a_table_of_another_run_or_form_is_refused(tmp_path: Path) -> None:
    write(writer(DeltaTable(tmp_path / "t", "shop"), Total), 3, ("a", 1, 1))
    with pytest.raises(BadInput, match="already holds tick 3"):
        writer(DeltaTable(tmp_path / "t", "shop"), Total)
    with pytest.raises(UnwritableSink) as error:
        writer(DeltaChangelog(tmp_path / "t", app="other"), Total)
    assert_golden(MESSAGES / "unwritable_sink.txt", f"{error.value}\n".replace(f"{tmp_path}", "out"))
    with pytest.raises(BadInput, match="is new, and the checkpoint ends with tick 2"):
        writer(DeltaTable(tmp_path / "new", "shop"), Total, tick=2)
    out = writer(DeltaTable(tmp_path / "t", "shop", app="other"), Total)
    write(out, 1, ("b", 1, 1))
    assert rows(tmp_path / "t") == Counter([("a", 1), ("b", 1)])
    writer(DeltaTable(tmp_path / "t", "shop", app="third"), Total)  # it begins, and has no changes
    writer(DeltaTable(tmp_path / "t", "shop", app="third"), Total, tick=4)


def test_rows_that_others_put_into_a_table_before_give_way_and_those_of_the_run_do_not(
    tmp_path: Path,
) -> None:
    data = pa.table({"shop": ["a", "b"], "total": pa.array([1, 2])})
    deltalake.write_deltalake(tmp_path / "t", data)
    out = writer(DeltaTable(tmp_path / "t", "shop"), Total)
    write(out, 1, ("a", 5, 1), ("c", 3, 1))
    assert rows(tmp_path / "t") == Counter([("a", 5), ("b", 2), ("c", 3)])
    out = writer(DeltaTable(tmp_path / "own", "shop"), Total)
    write(out, 1, ("a", 1, 1))
    with pytest.raises(BadInput, match="two rows have the same key"):
        out.prepare(2, [("a", 5, 1)])


def test_rows_of_all_types_go_again(tmp_path: Path) -> None:
    out = writer(DeltaTable(tmp_path / "t", "id"), Everything)
    write(out, 1, (*EVERYTHING, 1), (*NOTHING, 1), (3, True, float("nan"), *[None] * 7, 1))
    write(out, 2, (*EVERYTHING, -1), (*NOTHING, -1), (3, True, NAN, *[None] * 7, -1))
    assert (rows(tmp_path / "t"), out.held_back()) == (Counter(), None)


@pytest.mark.parametrize("name", ['a"b', "select", "a.b", "ünï", "a'b", "t.shop", "a b;"])
def test_names_of_columns_are_names_whatever_they_hold(name: str, tmp_path: Path) -> None:
    flow = Flow("hostile")
    flow.sink("out", flow.source("words", Total).select(total=col.total, **{name: col.shop}))
    for path, sink in (
        (tmp_path / "t", DeltaTable(tmp_path / "t", name)),
        (tmp_path / "c", DeltaChangelog(tmp_path / "c")),
    ):
        hr.run(flow, {"words": [Total("a", 1), Total("b", 2)]}, {"out": sink}, tick_rows=1)
        assert {r[:2] for r in rows(path)} == {(1, "a"), (2, "b")}


@pytest.mark.parametrize("key", ["real", "inner", "numbers"])
def test_a_key_that_delta_cannot_search_is_refused(key: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="which Delta tables cannot have in a key"):
        writer(DeltaTable(tmp_path / "t", key), Everything)


def test_storage_options_are_shown_nowhere() -> None:
    for end in (DeltaTable("t", "k", options={"secret": "x1y2"}), DeltaRows("t", options={"secret": "x1y2"})):
        assert "x1y2" not in repr(end)


# --- as a source --------------------------------------------------------------------------


def table_with_history(path: Path) -> None:
    out = writer(DeltaTable(path, "shop"), Total)
    write(out, 1, ("a", 1, 1), ("b", 2, 1))
    write(out, 2, ("a", 1, -1), ("a", 5, 1), ("c", 3, 1))
    write(out, 3, ("b", 2, -1))


def test_a_table_is_read_as_it_is_or_as_it_was(tmp_path: Path) -> None:
    table_with_history(tmp_path / "t")
    now = Counter([("a", 5), ("c", 3)])
    assert read(DeltaRows(tmp_path / "t")) == now
    assert read(DeltaRows(tmp_path / "t", version=1)) == now  # with the changes since
    flow = Flow("bounded")
    flow.sink("rows", flow.source("rows", Total, bounded=True))
    memory = io.Memory()
    hr.run(flow, {"rows": DeltaRows(tmp_path / "t", version=1)}, {"rows": memory})
    assert Counter(map(tuple, memory.rows())) == Counter([("a", 1), ("b", 2)])


def test_each_version_is_taken_once_and_a_run_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    out = writer(DeltaTable(tmp_path / "t", "shop"), Total)
    flow = Flow("copy")
    flow.sink("rows", flow.table("rows", Total))
    seen: list[Any] = []
    for tick in range(1, 5):
        write(out, tick, (f"s{tick}", tick, 1), *([("s1", 1, -1)] if tick == 3 else []))
        hr.run(
            flow,
            {"rows": DeltaRows(tmp_path / "t", versions_per_tick=1)},
            {"rows": lambda tick, changes: seen.append(sorted(changes.raw))},
            checkpoint=tmp_path / "checkpoint",
        )
    assert seen == [[("s1", 1, 1)], [("s2", 2, 1)], [("s1", 1, -1), ("s3", 3, 1)], [("s4", 4, 1)]]


def test_versions_are_one_tick_each_where_that_is_said(tmp_path: Path) -> None:
    table_with_history(tmp_path / "t")
    flow = Flow("copy")
    flow.sink("rows", flow.table("rows", Total))
    ticks: list[int] = []
    hr.run(
        flow,
        {"rows": DeltaRows(tmp_path / "t", version=0, versions_per_tick=1)},
        {"rows": lambda tick, changes: ticks.append(len(changes))},
    )
    assert ticks == [2, 3, 1]


def test_a_source_that_takes_no_row_back_reads_a_table_that_only_grows(tmp_path: Path) -> None:
    flow = Flow("copy")
    flow.sink("rows", flow.source("rows", Total))
    table_with_history(tmp_path / "t")
    memory = io.Memory()
    with pytest.raises(UnreadableSource, match="retracts rows in version 2"):
        hr.run(flow, {"rows": DeltaRows(tmp_path / "t", version=1)}, {"rows": memory})
    data = pa.table({"shop": ["x"], "total": pa.array([1])})
    for _ in range(2):
        deltalake.write_deltalake(
            tmp_path / "g", data, mode="append", configuration={"delta.enableChangeDataFeed": "true"}
        )
    hr.run(flow, {"rows": DeltaRows(tmp_path / "g", version=0)}, {"rows": memory})
    assert memory.rows() == [Total("x", 1)] * 2


def test_what_cannot_be_followed_or_read_is_named(tmp_path: Path) -> None:
    data = pa.table({"shop": ["x"], "total": ["no number"]})
    deltalake.write_deltalake(tmp_path / "t", data)
    with pytest.raises(UnreadableSource, match="column 'total' is"):
        read(DeltaRows(tmp_path / "t"))
    right = pa.table({"shop": ["x"], "total": [1]})
    for _ in range(2):
        deltalake.write_deltalake(tmp_path / "u", right, mode="append")
    assert read(DeltaRows(tmp_path / "u")) == Counter([("x", 1)] * 2)
    with pytest.raises(UnreadableSource, match="has no change data feed"):
        read(DeltaRows(tmp_path / "u", version=0))
    with pytest.raises(UnreadableSource, match="has no readable version 9"):
        read(DeltaRows(tmp_path / "u", version=9))
    with pytest.raises(UnreadableSource, match="cannot be read"):
        read(DeltaRows(tmp_path / "nothing"))
