"""`headrace.run`: from sources to sinks in this process."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

import headrace as hr
from headrace import Change, Flow, col, io
from headrace.engine.run import Progress
from headrace.errors import BadInput, BadRow, EvaluationError, FlowChanged, HeadraceError
from headrace.io import Call, Changelog, JsonFiles, Memory, Rows, TableFiles
from tests.io.feeds import write


class Sale(NamedTuple):
    shop: str
    price: int


class Total(NamedTuple):
    shop: str
    total: int


def totals(name: str = "totals") -> Flow:
    flow = Flow(name)
    sales = flow.source("sales", Sale)
    flow.sink("totals", sales.group_by(col.shop).agg(total=hr.sum(col.price)))
    return flow


SALES = [Sale(shop, price) for price in range(1, 8) for shop in "ab"]
WANTED = [("a", 28), ("b", 28)]


def lines(rows: list[Sale]) -> str:
    return "".join(f'{{"shop": "{r.shop}", "price": {r.price}}}\n' for r in rows)


# --- sources and sinks -----------------------------------------------------------------


def test_lists_functions_and_memory_are_ends_of_a_flow() -> None:
    flow = totals()
    flow.sink("again", flow_source(flow))
    collected: list[Change[Any]] = []
    told: list[tuple[int, int]] = []
    result = hr.run(
        flow,
        {"sales": iter(SALES)},
        {"totals": collected, "again": lambda tick, changes: told.append((tick, len(changes)))},
        tick_rows=4,
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 2)]
    assert (result.ticks, result.last_tick, result.rows_in, result.stopped_by) == (4, 4, 14, None)
    assert result.changes_out == len(collected) + 14
    now: Counter[Any] = Counter()
    for row, weight in collected:
        now[row] += weight
    assert sorted(tuple(row) for row in +now) == WANTED


def flow_source(flow: Flow) -> Any:
    """The stream of the flow's only source."""
    return hr.Stream(flow, 0, flow.node(0).schema)


def test_every_way_to_cut_the_input_gives_the_same_answer() -> None:
    for tick_rows in (1, 3, 100):
        memory = Memory()
        hr.run(totals(), {"sales": SALES}, {"totals": memory}, tick_rows=tick_rows)
        assert sorted(tuple(row) for row in memory.rows()) == WANTED


def test_rows_cut_ticks_by_hand_and_an_empty_one_is_a_tick() -> None:
    seen: list[Progress] = []
    hr.run(totals(), {"sales": Rows([SALES[:1], [], SALES[1:]])}, on_tick=seen.append, tick_rows=1)
    assert [(p.tick, p.rows_in) for p in seen] == [(1, 1), (2, 0), (3, 13)]


def test_a_bounded_source_is_read_whole_in_the_first_tick() -> None:
    flow = Flow("joined")
    sales = flow.source("sales", Sale)
    shops = flow.source("shops", Total, bounded=True)
    flow.sink("known", sales.join(shops, on=hr.left.shop == hr.right.shop, how="semi"))
    seen: list[Progress] = []
    shop_rows = [Total(f"s{n}", n) for n in range(50)]
    hr.run(flow, {"sales": SALES[:4], "shops": shop_rows}, tick_rows=2, on_tick=seen.append)
    assert [p.rows_in for p in seen] == [52, 2]


def test_a_table_source_takes_rows_back() -> None:
    flow = Flow("table")
    flow.sink("totals", flow.table("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price)))
    memory = Memory()
    given = [hr.insert(SALES[0]), Change(SALES[1], 2), SALES[3], hr.delete(SALES[0])]
    hr.run(flow, {"sales": given}, {"totals": memory}, tick_rows=1)
    assert [tuple(row) for row in memory.rows()] == [("b", 4)]


def test_deferred_rows_start_ticks_of_their_own() -> None:
    flow = Flow("later", ticks="given")
    later = flow.source("sales", Sale).defer_tick().defer_tick()
    flow.sink("later", later)
    told: list[int] = []
    result = hr.run(flow, {"sales": SALES[:2]}, {"later": lambda tick, _: told.append(tick)})
    assert result.ticks == 3
    assert told == [3]


@pytest.mark.parametrize(
    ("sources", "sinks", "text"),
    [
        ({}, {}, "nothing is given for source 'sales'"),
        ({"sales": [], "more": []}, {}, "has no source 'more'"),
        ({"sales": []}, {"total": []}, "has no sink 'total'"),
        ({"sales": "sales.json"}, {}, "source 'sales' is given as str"),
        ({"sales": {"a": 1}}, {}, "source 'sales' is given as dict"),
        ({"sales": 7}, {}, "source 'sales' is int, which is not a source"),
        ({"sales": []}, {"totals": 7}, "sink 'totals' is int, which is not a sink"),
    ],
)
def test_ends_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, sources: Any, sinks: Any, text: str
) -> None:
    with pytest.raises(BadInput, match=text):
        hr.run(totals(), sources, sinks)
    assert list(tmp_path.iterdir()) == []


def test_at_least_one_row_per_tick() -> None:
    with pytest.raises(BadInput, match="tick_rows is 0"):
        hr.run(totals(), {"sales": []}, tick_rows=0)


# --- bad input ---------------------------------------------------------------------------


def test_a_bad_row_ends_the_run_and_its_tick_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path / "in/a.json", lines(SALES[:4]) + '{"shop": "a", "price": "free"}\n')
    ends: dict[str, Any] = {
        "sources": {"sales": JsonFiles(tmp_path / "in")},
        "sinks": {"totals": Changelog(tmp_path / "out")},
        "checkpoint": tmp_path / "checkpoint",
    }
    with pytest.raises(BadRow) as raised:
        hr.run(totals(), **ends, tick_rows=2)
    assert (raised.value.facts["row"], raised.value.facts["source"]) == (5, "sales")
    assert [p.name for p in sorted((tmp_path / "out").iterdir())] == ["tick=1", "tick=2"]
    write(tmp_path / "in/a.json", lines(SALES))
    assert hr.run(totals(), **ends).rows_in == len(SALES) - 4
    assert now(tmp_path / "out") == WANTED


def test_bad_rows_are_set_aside_where_a_folder_is_given(tmp_path: Path) -> None:
    write(tmp_path / "in/a.json", lines(SALES) + '{"shop": "a"}\n?\n')
    source = JsonFiles(tmp_path / "in", dead_letter=tmp_path / "dead")
    memory = Memory()
    result = hr.run(totals(), {"sales": source}, {"totals": memory}, tick_rows=5)
    assert sorted(tuple(row) for row in memory.rows()) == WANTED
    assert (result.rows_in, result.set_aside) == (14, 2)
    letters = duckdb.sql(
        f"select source, row, line, reason, text from '{tmp_path}/dead/*.jsonl' order by row"
    )
    assert letters.fetchall() == [
        ("sales", 15, 15, "price: it is missing, but int64 is declared without null", '{"shop": "a"}'),
        ("sales", 16, 16, "the line is not JSON: Expecting value, at character 1", "?"),
    ]
    names = sorted(p.name for p in (tmp_path / "dead").iterdir())
    assert names == ["tick=3-sales.jsonl", "tick=4-sales.jsonl"]


def test_a_row_of_a_list_is_told_by_its_place_in_the_whole_list() -> None:
    with pytest.raises(BadRow) as raised:
        hr.run(totals(), {"sales": [*SALES, ("a", None)]}, tick_rows=4)
    assert (raised.value.facts["row"], raised.value.facts["before"]) == (2, "12 rows")
    assert "12 rows of the source were taken before" in str(raised.value)


def test_a_failing_tick_closes_all_ends_and_is_not_published(tmp_path: Path) -> None:
    flow = Flow("inverse")
    flow.sink("inverse", flow.source("sales", Sale).select(shop=col.shop, inverse=1 / col.price))
    sales = Closing([Sale("a", 1), Sale("a", 0)])
    with pytest.raises(EvaluationError):
        hr.run(flow, {"sales": JsonLike(sales)}, {"inverse": Changelog(tmp_path / "out")}, tick_rows=1)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["tick=1"]
    assert sales.closed == 1


class Closing(list[Sale]):
    closed = 0


class JsonLike(hr.io.Source):
    """A source of another kind: readers of strangers are closed too."""

    def __init__(self, rows: Closing) -> None:
        object.__setattr__(self, "rows", rows)


class _ListReader(hr.io.Reader):
    def __init__(self, rows: Closing) -> None:
        self._rows = rows
        self._left = iter(rows)

    def read(self, limit: int | None) -> hr.io.Batch | None:
        row = next(self._left, None)
        return None if row is None else hr.io.Batch([tuple(row)])

    def close(self) -> None:
        super().close()
        self._rows.closed += 1


@hr.io.open_source.register
def _(source: JsonLike, feed: hr.io.Feed) -> hr.io.Reader:
    return _ListReader(source.rows)  # type: ignore[attr-defined]


# --- checkpoints -------------------------------------------------------------------------


def now(path: Path) -> list[tuple[Any, ...]]:
    """The current rows of a changelog."""
    query = f"select shop, total from '{path}/*/*.parquet' group by all having sum(weight) > 0 order by all"
    return duckdb.sql(query).fetchall()


def test_a_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    for start, end in ((0, 3), (3, 3), (3, 9), (9, 14)):
        write(tmp_path / f"in/{end}-{start}.json", lines(SALES[start:end]))
        hr.run(
            totals(),
            {"sales": JsonFiles(tmp_path / "in")},
            {"totals": TableFiles(tmp_path / "table", key="shop")},
            checkpoint=tmp_path / "checkpoint",
            tick_rows=2,
        )
    found = duckdb.sql(f"select * from '{tmp_path}/table/current/*.parquet' order by shop").fetchall()
    assert found == WANTED


def test_iterables_bring_the_same_rows_again_and_those_taken_are_skipped(tmp_path: Path) -> None:
    for source in (SALES[:5], SALES):
        changes: list[Change[Any]] = []
        result = hr.run(
            totals(), {"sales": source}, {"totals": changes}, checkpoint=tmp_path / "c", tick_rows=3
        )
    assert result.rows_in == 9
    assert sorted(tuple(row) for row, weight in changes[-4:] if weight > 0) == [("a", 28), ("b", 28)]


def test_another_flow_on_a_checkpoint_is_refused(tmp_path: Path) -> None:
    hr.run(totals(), {"sales": SALES}, checkpoint=tmp_path / "c")
    other = Flow("totals")
    other.sink("totals", other.source("sales", Sale).group_by(col.shop).agg(total=hr.max(col.price)))
    with pytest.raises(FlowChanged):
        hr.run(other, {"sales": SALES}, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("sink", [Changelog, TableFiles])
def test_output_that_would_begin_in_the_middle_is_refused(tmp_path: Path, sink: Any) -> None:
    hr.run(totals(), {"sales": SALES[:5]}, checkpoint=tmp_path / "c")
    with pytest.raises(FlowChanged, match="'totals' has missed 1 tick of this checkpoint"):
        hr.run(totals(), {"sales": SALES}, {"totals": sink(tmp_path / "out")}, checkpoint=tmp_path / "c")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sink", [Changelog, TableFiles])
def test_output_whose_place_is_another_is_refused(tmp_path: Path, sink: Any) -> None:
    first = sink(tmp_path / "out")
    hr.run(totals(), {"sales": SALES[:5]}, {"totals": first}, checkpoint=tmp_path / "c")
    with pytest.raises(BadInput, match="is new, and the checkpoint ends with tick 1"):
        hr.run(totals(), {"sales": SALES}, {"totals": sink(tmp_path / "other")}, checkpoint=tmp_path / "c")
    assert not (tmp_path / "other").exists()


def test_json_and_lists_without_a_checkpoint_import_no_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write(tmp_path / "in/a.json", lines(SALES))
    memory = Memory()
    hr.run(totals(), {"sales": JsonFiles("in")}, {"totals": memory})
    assert len(memory.rows()) == 2


class Stop(Exception):
    pass


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_function_that_fails_hears_the_committed_tick_again(tmp_path: Path, fails_at: int) -> None:
    heard: list[int] = []

    def hear(tick: int, changes: Any) -> None:
        if tick == fails_at and "failed" not in memory:
            memory.add("failed")
            raise Stop
        heard.append(tick)

    memory: set[str] = set()
    ends: dict[str, Any] = {"sources": {"sales": SALES[:9]}, "sinks": {"totals": Call(hear)}}
    with pytest.raises(Stop):
        hr.run(totals(), **ends, checkpoint=tmp_path / "c", tick_rows=3)
    hr.run(totals(), **ends, checkpoint=tmp_path / "c", tick_rows=3)
    assert heard == [1, 2, 3]


# --- the end -----------------------------------------------------------------------------


def endless() -> Iterator[Sale]:
    while True:
        yield from SALES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_after_its_tick(tmp_path: Path, number: signal.Signals) -> None:
    def stop(progress: Progress) -> None:
        if progress.tick == 3:
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    result = hr.run(totals(), {"sales": endless()}, on_tick=stop, checkpoint=tmp_path / "c", tick_rows=5)
    assert (result.last_tick, result.stopped_by) == (3, number)
    assert signal.getsignal(number) is before


def test_a_second_ctrl_c_acts_at_once() -> None:
    def stop(progress: Progress) -> None:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        hr.run(totals(), {"sales": endless()}, on_tick=stop)


def test_a_run_may_be_in_another_thread() -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(hr.run(totals(), {"sales": SALES})))
    thread.start()
    thread.join()
    assert results[0].rows_in == 14


def test_a_run_that_follows_sees_files_that_come_later(tmp_path: Path) -> None:
    write(tmp_path / "in/b.json", lines(SALES[:7]))

    def more(progress: Progress) -> None:
        if progress.tick == 1:
            write(tmp_path / "in/.a.json", lines(SALES[7:])).rename(tmp_path / "in/a.json")
        else:
            signal.raise_signal(signal.SIGINT)

    memory = Memory()
    result = hr.run(
        totals(), {"sales": JsonFiles(tmp_path / "in")}, {"totals": memory}, follow=True, on_tick=more
    )
    assert result.ticks == 2
    assert sorted(tuple(row) for row in memory.rows()) == WANTED


def test_errors_of_the_flow_come_before_anything_is_made(tmp_path: Path) -> None:
    flow = Flow("open")
    flow.feedback(int)
    with pytest.raises(HeadraceError):
        hr.run(flow, {}, {}, checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (io.Changelog("out"), io.TableFiles("./out")),
        (io.DeltaTable("t", "shop"), io.DeltaChangelog("t")),
        (
            io.PostgresTable("postgresql://u@h/d", "t", "shop"),
            io.PostgresChangelog("postgresql://u@h/d", "t"),
        ),
    ],
)
def test_two_sinks_cannot_go_to_one_place(one: Any, other: Any) -> None:
    flow = Flow("two")
    rows = flow.source("rows", int)
    flow.sink("one", rows)
    flow.sink("other", rows)
    with pytest.raises(BadInput, match="sinks 'one' and 'other' go to the same place"):
        hr.run(flow, {"rows": [1]}, {"one": one, "other": other})
    memory = io.Memory()
    hr.run(flow, {"rows": [1]}, {"one": memory, "other": memory})


def test_a_sink_of_any_name_keeps_its_ticks_within_the_checkpoint(tmp_path: Path) -> None:
    flow = Flow("names")
    names = ["a", "a/b", "..", "../../b", "ä b"]
    rows = flow.source("rows", int)
    for name in names:
        flow.sink(name, rows)
    got: dict[str, list[int]] = {name: [] for name in names}
    sinks: dict[str, Any] = {
        name: lambda _tick, changes, name=name: got[name].extend(c.row for c in changes) for name in names
    }
    hr.run(flow, {"rows": [1, 2]}, sinks, checkpoint=tmp_path / "in" / "c")
    assert list(got.values()) == [[1, 2]] * len(names)
    assert [path.name for path in tmp_path.rglob("b")] == []
    assert len(list((tmp_path / "in" / "c" / "outbox").iterdir())) == len(names)
