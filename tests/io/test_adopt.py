"""`headrace run --adopt`: a new checkpoint for sinks that stay, which get only what differs."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Flow, col
from headrace.engine import rebuild as rebuilding
from headrace.engine.rebuild import adopt
from headrace.errors import BadInput, CheckpointInUse, DuplicateKey, HeadraceError
from headrace.expr.row_classes import from_user, schema_of
from headrace.file_system import FolderLock
from headrace.io import (
    Changelog,
    CsvChangelog,
    DeltaChangelog,
    DeltaTable,
    PostgresChangelog,
    PostgresTable,
    TableFiles,
    WallClock,
)
from headrace.io.files import compaction
from headrace.io.files.changelog import ChangelogWriter
from headrace.io.files.table_files import TableWriter
from headrace.io.kafka import KafkaTopic
from headrace.io.sink import ReadableWriter, SinkRequest, open_sink
from headrace.state.commit import CommitLog, Lease
from headrace.state.rewind import rewind
from tests.golden import assert_golden
from tests.postgres_server import Postgres
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick, cases, cuts

GOLDEN = Path(__file__).parent / "golden"


class Sale(NamedTuple):
    shop: str
    price: int | None


OLD = [Sale("a", 1), Sale("b", 2), Sale("a", 3), Sale("", None)]
NEW = [*OLD[1:], Sale("c", 7)]


def totals(least: int = 0) -> Flow:
    flow = Flow("totals")
    sales = flow.table("sales", Sale).filter((col.price >= least) | col.price.is_null())
    found = sales.group_by(col.shop).agg(total=hr.sum(col.price), n=hr.count())
    for name in ("log", "text", "table", "bag"):
        flow.sink(name, found)
    return flow


def sinks() -> dict[str, Any]:
    return {
        "log": Changelog("log"),
        "text": CsvChangelog("text"),
        "table": TableFiles("table", key="shop", buckets=3),
        "bag": TableFiles("bag"),
    }


def run(rows: Any, flow: Flow | None = None, checkpoint: Any = "state", to: Any = None) -> Any:
    return hr.run(flow or totals(), {"sales": list(rows)}, to or sinks(), checkpoint=checkpoint, tick_rows=2)


def adopted(rows: Any, flow: Flow | None = None, to: Any = None) -> Any:
    flow, to = flow or totals(), to or sinks()
    return adopt(flow, "state", {}, to, lambda checkpoint, aside: run(rows, flow, checkpoint, aside))


def held(sink: Any, schema: Any) -> Counter[Any]:
    """What a sink holds, held-back rows included."""
    rows: Counter[Any] = Counter()
    # Without a spool, it would remove what a killed run has prepared.
    with closing(open_sink(sink, SinkRequest("x", schema, Path("none")))) as writer:
        assert isinstance(writer, ReadableWriter)
        contents = writer.contents()
        assert contents is not None
        for *row, weight in contents.rows:
            rows[tuple(row)] += weight
    return Counter({row: weight for row, weight in rows.items() if weight})


def all_held(flow: Flow | None = None) -> list[Counter[Any]]:
    graph = (flow or totals()).graph()
    return [held(sink, graph.nodes[graph.sinks[name]].schema) for name, sink in sinks().items()]


def expected(rows: Any, least: int = 0) -> list[Counter[Any]]:
    answer: Counter[Any] = Counter()
    for shop in {row.shop for row in rows}:
        prices = [r.price for r in rows if r.shop == shop and (r.price is None or r.price >= least)]
        if prices:
            known = [price for price in prices if price is not None]
            answer[(shop, sum(known) if known else None, len(prices))] += 1
    return [answer] * 4


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files() -> dict[str, int]:
    """All files of the sinks, with the time of their last change."""
    found = (f for folder in ("log", "text", "table", "bag") for f in Path(folder).rglob("*"))
    return {str(f): f.lstat().st_mtime_ns for f in found if not f.is_dir()}


def test_only_what_differs_is_written_as_one_tick_after_the_last_one() -> None:
    run(OLD)
    last = run([*OLD, Sale("d", 4)]).last_tick
    before = set(files())
    shutil.rmtree("state")
    done = adopted([*NEW, Sale("d", 4)])
    # a: 4 -> 3; c: new
    assert (done.last_tick, done.changes_out) == (last + 1, 4 * 3)
    assert all_held() == expected([*NEW, Sale("d", 4)])
    new = {file.partition("/")[2] for file in set(files()) - before if not file.startswith(("table", "bag"))}
    assert new == {f"tick={last + 1}/part-{last + 1}-0.{ending}" for ending in ("parquet", "csv")}
    run([*NEW, Sale("d", 4), Sale("d", 1)])
    assert all_held() == expected([*NEW, Sale("d", 4), Sale("d", 1)])
    assert {p.name for p in Path().iterdir()} == {"state", "log", "text", "table", "bag"}


def test_nothing_is_written_if_nothing_differs() -> None:
    run(OLD)
    before = files()
    shutil.rmtree("state")
    assert adopted(reversed(OLD)).changes_out == 0
    assert files() == before
    assert run(OLD).ticks == 0
    run([*OLD, Sale("c", 1)])
    assert all_held() == expected([*OLD, Sale("c", 1)])


def test_a_run_over_all_input_may_have_more_ticks_than_the_sinks() -> None:
    run(OLD[:2])
    shutil.rmtree("state")
    assert adopted([*OLD, *NEW]).last_tick == 4
    assert all_held() == expected([*OLD, *NEW])
    run([*OLD, *NEW, Sale("e", 1)])
    assert all_held() == expected([*OLD, *NEW, Sale("e", 1)])


def test_one_cannot_go_back_to_ticks_before_the_adopted_one() -> None:
    run(OLD[:1])
    shutil.rmtree("state")
    # Ticks 1 and 2 of this run are none of those that the sinks have.
    assert adopted([*OLD, *NEW]).last_tick == 4
    for tick in (1, 2, 3):
        with pytest.raises(BadInput, match="cannot go back"):
            rewind("state", tick)
    assert rewind("state", 4).forgotten == 0
    run([*OLD, *NEW, Sale("e", 1)])
    assert rewind("state", 4).forgotten == 1
    with pytest.raises(BadInput, match="already holds tick 5"):
        run([*OLD, *NEW])
    adopted([*OLD, *NEW])
    assert all_held() == expected([*OLD, *NEW])


def test_a_changed_flow_takes_over_the_sinks_of_the_old_one() -> None:
    run(OLD)
    changed = totals(least=2)
    with pytest.raises(HeadraceError, match="--adopt"):
        run(OLD, changed)
    adopted(OLD, changed)
    assert all_held() == expected(OLD, least=2)
    run([*OLD, Sale("a", 1), Sale("a", 9)], changed)
    assert all_held() == expected([*OLD, Sale("a", 9)], least=2)


def test_sinks_without_any_row_are_adopted_if_there_was_a_checkpoint() -> None:
    run([Sale("a", 1)], totals(least=2))
    assert adopted(OLD, totals(least=1)).last_tick == 2
    run([*OLD, Sale("e", 1)], totals(least=1))
    assert all_held() == expected([*OLD, Sale("e", 1)], least=1)


def test_a_changelog_that_is_compacted_is_adopted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(compaction, "LISTING_SECONDS", 0.0)
    to = {"log": Changelog("log", compact_after=3)}
    rows = [Sale("a", n) for n in range(50)]
    run(rows, to=to)
    assert len(list(Path("log").iterdir())) < 25
    shutil.rmtree("state")
    assert adopted([*rows, Sale("b", 1)], to=to).changes_out == 1
    run([*rows, Sale("b", 1), Sale("b", 1)], to=to)
    assert held(to["log"], totals().graph().nodes[-1].schema) == {("a", 1225, 50): 1, ("b", 2, 2): 1}


def test_columns_that_a_changelog_reserves_may_be_in_a_table() -> None:
    flow = Flow("renamed")
    flow.sink("table", flow.table("sales", Sale).select(tick=col.shop, weight=col.price))
    sink, schema = {"table": TableFiles("table", key="tick")}, flow.graph().nodes[-1].schema
    run(OLD[1:], flow, to=sink)
    shutil.rmtree("state")
    assert adopted(OLD[1:2], flow, sink).changes_out == 2
    assert held(sink["table"], schema) == {("b", 2): 1}
    with pytest.raises(DuplicateKey):
        adopted([Sale("b", 1), Sale("b", 2)], flow, sink)
    run(OLD[1:2], flow, to=sink)
    assert held(sink["table"], schema) == {("b", 2): 1}


def test_rows_that_a_table_holds_back_are_not_held_back_twice() -> None:
    flow = Flow("stock")
    flow.sink("table", flow.table("sales", Sale))
    sink = {"table": TableFiles("table", key="shop")}
    changes = [hr.Change(Sale("a", 1), -1), hr.Change(Sale("b", 2), 1)]
    run(changes, flow, to=sink)
    shutil.rmtree("state")
    done = adopted(changes, flow, sink)
    assert (done.changes_out, done.held_back["table"].rows) == (0, 1)
    run([*changes, hr.Change(Sale("a", 1), 1)], flow, to=sink)
    assert held(sink["table"], schema_of(Sale)) == {("b", 2): 1}


def committed_but_not_published(rows: Any) -> None:
    def fails(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patched:
        for writer in (ChangelogWriter, TableWriter):
            patched.setattr(writer, "publish", fails)
        with pytest.raises(KeyboardInterrupt):
            run(rows)


@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_tick_that_the_old_checkpoint_has_committed_is_not_lost_when_an_adoption_fails(
    monkeypatch: pytest.MonkeyPatch, meanwhile: bool
) -> None:
    run(OLD[:2])
    take = Lease.take

    def overtaken(folder: Path) -> Lease:
        monkeypatch.setattr(Lease, "take", take)
        committed_but_not_published(OLD)
        return take(folder)

    if meanwhile:
        monkeypatch.setattr(Lease, "take", overtaken)
    else:
        committed_but_not_published(OLD)
        assert all_held() == expected(OLD[:2])
    with pytest.raises(BadInput, match="no source has a row"):
        adopted([])
    assert all_held() == expected(OLD)
    run(OLD)
    assert all_held() == expected(OLD)
    assert CommitLog(Path("state")).last_tick() == 2


def test_a_run_that_begins_before_the_checkpoint_is_held_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    run(OLD)
    take, locks = Lease.take, list[FolderLock | None]()

    def overtaken(folder: Path) -> Lease:
        locks.append(FolderLock.take(Path("log")))
        return take(folder)

    monkeypatch.setattr(Lease, "take", overtaken)
    with pytest.raises(BadInput, match="log is in use"):
        adopted(NEW)
    assert locks[0] is not None
    locks[0].release()


def test_a_stopped_adoption_changes_nothing() -> None:
    run(OLD)

    def stopped(checkpoint: str, to: Any) -> Any:
        return replace(run(NEW, None, checkpoint, to), stopped_by=2)

    adopt(totals(), "state", {}, sinks(), stopped)
    assert all_held() == expected(OLD)
    run([*OLD, Sale("d", 4)])
    assert all_held() == expected([*OLD, Sale("d", 4)])


def test_what_is_in_use_is_not_adopted() -> None:
    run(OLD)
    lease = Lease.take(Path("state"))
    with pytest.raises(CheckpointInUse):
        adopted(NEW)
    lease.release()
    shutil.rmtree("state")
    lock = FolderLock.take(Path("log"))
    assert lock is not None
    with lock, pytest.raises(BadInput, match="log is in use"):
        adopted(NEW)

    def overtaken(checkpoint: str, to: Any) -> Any:
        shutil.copytree("log/tick=1", "log/tick=7")
        return run(NEW, None, checkpoint, to)

    with pytest.raises(BadInput, match="written by another run meanwhile"):
        adopt(totals(), "state", {}, sinks(), overtaken)


def test_another_run_that_writes_to_a_sink_at_the_last_moment_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(OLD)
    shutil.rmtree("state")
    commit = rebuilding._commit

    def overtaken(*given: Any) -> None:
        commit(*given)
        shutil.copytree("log/tick=1", "log/tick=3")  # the number of the adoption's tick

    with monkeypatch.context() as patched:
        patched.setattr(rebuilding, "_commit", overtaken)
        with pytest.raises(BadInput, match="'log' was written by another run meanwhile"):
            adopted(NEW)
    adopted(NEW)
    assert all_held() == expected(NEW)


# --- tables of other systems -----------------------------------------------------------------


class Inner(NamedTuple):
    x: float | None
    label: str | None


class Everything(NamedTuple):
    id: int
    flag: bool | None
    real: float | None
    small: hr.Float32 | None
    local: hr.TimestampNtz | None
    price: Decimal | None
    text: str | None
    octets: bytes | None
    day: date | None
    moment: datetime | None
    inner: Inner | None
    numbers: list[int | None] | None
    prices: dict[str, Decimal] | None


ODD = [
    Everything(1, *[None] * 12),
    Everything(
        2, True, 0.1, 0.5, datetime(2020, 1, 2, 3), Decimal("1.5"), "a\tb\\n\"", b"\x00\xff",
        date(1970, 2, 3), datetime(2020, 12, 31, 23, 59, 59, 999999, UTC), Inner(float("nan"), None),
        [1, None, 3], {"b": Decimal("0.1"), "a": Decimal("123456789012345678.5")},
    ),
    Everything(
        3, False, float("-inf"), float("nan"), None, Decimal(0), "", b"", date(9999, 12, 31),
        datetime(1, 1, 1, tzinfo=UTC), Inner(1e300, "é"), [], {},
    ),
]  # fmt: skip


def others(postgres: Postgres, schema: str) -> dict[str, Any]:
    return {
        "now": DeltaTable("now", "id"),
        "log": DeltaChangelog("deltalog"),
        "pg_now": PostgresTable(postgres.url, "now", "id", schema),
        "pg_log": PostgresChangelog(postgres.url, "log", schema),
    }


def copied(names: Any) -> Flow:
    flow = Flow("copies")
    rows = flow.table("sales", Everything)
    for name in names:
        flow.sink(name, rows)
    return flow


def test_delta_and_postgresql_get_what_differs_too(postgres: Postgres) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    postgres.query("create schema adopted")
    to = others(postgres, "adopted")
    flow = copied(to)
    schema = schema_of(Everything)
    run(ODD, flow, to=to)
    shutil.rmtree("state")
    versions = len(list(Path("now/_delta_log").glob("*.json")))
    assert adopted(ODD, flow, to).changes_out == 0
    assert len(list(Path("now/_delta_log").glob("*.json"))) == versions
    shutil.rmtree("state")
    new = [ODD[0], ODD[1]._replace(text="other"), ODD[2]._replace(id=4)]
    done = adopted(new, flow, to)
    assert done.changes_out == 4 * 4
    later = [hr.insert(row) for row in new] + [hr.delete(new[1])]
    run(later, flow, to=to)
    graph = flow.graph()
    expected = Counter(from_user(schema, what="row")([new[0], new[2]]))
    for name, sink in to.items():
        assert held(sink, graph.nodes[graph.sinks[name]].schema) == expected, name
    postgres.query("drop schema adopted cascade")


class Lasting(NamedTuple):
    id: int
    span: timedelta | None
    spans: list[timedelta] | None


def test_intervals_in_postgresql_are_known_again(postgres: Postgres) -> None:
    postgres.query("create schema lasting")
    to: dict[str, Any] = {
        "pg_now": PostgresTable(postgres.url, "now", "id", "lasting"),
        "pg_log": PostgresChangelog(postgres.url, "log", "lasting"),
    }
    flow = Flow("copies")
    rows = flow.table("sales", Lasting)
    for name in to:
        flow.sink(name, rows)
    longest, shortest = timedelta(days=106_751_991), timedelta(days=-400, microseconds=1)
    given = [Lasting(1, None, None), Lasting(2, longest, [shortest]), Lasting(3, shortest, [])]
    run(given, flow, to=to)
    shutil.rmtree("state")
    assert adopted(given, flow, to).changes_out == 0
    shutil.rmtree("state")
    assert adopted(given[1:], flow, to).changes_out == 2
    postgres.query("drop schema lasting cascade")


@pytest.mark.parametrize(
    ("module", "step"),
    [
        (rebuilding, "_prepare_differences"), (rebuilding, "_commit"), (rebuilding, "_exchange"),
        (rebuilding, "held_back_by"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lost", [True, False])
def test_broken_off_after_any_step_delta_and_postgresql_get_it_once_or_not_at_all(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, module: Any, step: str, lost: bool
) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed")
    postgres.query("create schema broken")
    to = others(postgres, "broken")
    flow = Flow("totals")
    found = flow.table("sales", Sale).group_by(id=col.shop).agg(total=hr.sum(col.price))
    for name in to:
        flow.sink(name, found)
    run(OLD, flow, to=to)
    if lost:
        shutil.rmtree("state")
    then = getattr(module, step)

    def broken(*given: Any) -> Any:
        then(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, step, broken)
        with pytest.raises(KeyboardInterrupt):
            adopted(NEW, flow, to)
    if step == "_prepare_differences":
        assert lost or run(OLD, flow, to=to).ticks == 0
        adopted(NEW, flow, to)
    run([*NEW, Sale("a", 5)], flow, to=to)
    schema = flow.graph().nodes[flow.graph().sinks["now"]].schema
    for name, sink in to.items():
        assert held(sink, schema) == {("a", 8): 1, ("b", 2): 1, ("", None): 1, ("c", 7): 1}, name
    log = postgres.query("select id, total, weight from broken.log where tick > 2 and id = 'c'")
    assert log == [["c", 7, 1]]
    postgres.query("drop schema broken cascade")


def test_rows_that_were_in_a_delta_table_before_are_not_taken_for_the_flows() -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
    flow = Flow("copies")
    flow.sink("now", flow.table("sales", Sale))
    to = {"now": DeltaTable("now", "shop")}
    run(OLD[:1], flow, None, {"now": DeltaTable("now", "shop", app="another")})
    run(OLD[1:2], flow, to=to)
    shutil.rmtree("state")
    with pytest.raises(BadInput, match="now holds other rows"):
        adopted(OLD[1:2], flow, to)
    assert len(deltalake.DeltaTable("now").to_pyarrow_table()) == 2


def test_what_does_not_fit_in_postgresql_is_not_adopted(postgres: Postgres) -> None:
    postgres.query("create schema misfits")
    flow = Flow("copies")
    flow.sink("now", flow.table("sales", Sale))
    to = {"now": PostgresTable(postgres.url, "now", "shop", "misfits")}
    run(OLD[:1], flow, to=to)
    shutil.rmtree("state")
    postgres.query("alter table misfits.now alter price type numeric; update misfits.now set price = 1.5")
    with pytest.raises(BadInput, match="column 'price': expected an int64"):
        adopted(OLD[:1], flow, to)
    postgres.query("drop schema misfits cascade")


# --- errors ----------------------------------------------------------------------------------


def of_another_type() -> None:
    class Old(NamedTuple):
        shop: str
        total: str

    flow = Flow("old")
    flow.sink("log", flow.source("sales", Old))
    run([Old("a", "1")], flow, to={"log": Changelog("log")})
    adopted(OLD, to={"log": Changelog("log")})


def of_another_type_in_csv() -> None:
    flow = Flow("old")
    flow.sink("text", flow.source("sales", Sale).select("shop", total=col.shop, n=hr.lit(1)))
    run(OLD, flow, to={"text": CsvChangelog("text")})
    adopted(OLD, to={"text": CsvChangelog("text")})


def of_another_form() -> None:
    run(OLD, to={"text": CsvChangelog("text")})
    adopted(OLD, to={"log": Changelog("text")})


def of_another_key() -> None:
    run(OLD, to={"table": TableFiles("table", key="shop")})
    adopted(OLD, to={"table": TableFiles("table", key="n")})


def never_written() -> None:
    adopted(OLD)


def one_never_written() -> None:
    run(OLD, to={"log": Changelog("log")})
    adopted(OLD)


def without_sinks() -> None:
    adopt(totals(), "state", {}, {}, lambda *_: pytest.fail("it runs"))


def no_rows() -> None:
    run(OLD)
    adopted([])


def not_readable() -> None:
    adopted(OLD, to={"log": KafkaTopic("localhost:1", "t")})


def of_ticks() -> None:
    flow = Flow("news")
    news = flow.source("sales", Sale).multiset_delta(nondet="a tick is a look around")
    flow.sink("log", news.filter(col.price > 1))
    run(OLD, flow, to={"log": Changelog("log")})
    adopted(OLD, flow, {"log": Changelog("log")})


def of_the_time() -> None:
    flow = Flow("clock")
    flow.sink("log", flow.source("tick_time", datetime))
    adopted([], flow, {"log": Changelog("log")})


def of_a_clock() -> None:
    flow = Flow("clock")
    flow.sink("log", flow.source("seconds", datetime))
    adopt(
        flow,
        "state",
        {"seconds": WallClock("1s")},
        {"log": Changelog("log")},
        lambda *_: pytest.fail("it runs"),
    )


def of_given_ticks() -> None:
    flow = Flow("letters", ticks="given")
    flow.sink("log", flow.source("sales", Sale).sort(col.price, lifetime="tick"))
    adopted([], flow, {"log": Changelog("log")})


def inside_the_checkpoint() -> None:
    to = {"log": Changelog("state/log")}
    run(OLD, to=to)
    adopted(OLD, to=to)


CASES: list[Callable[[], None]] = [
    of_another_type, of_another_type_in_csv, of_another_form, of_another_key, never_written,
    one_never_written, without_sinks, no_rows, not_readable, of_ticks, of_the_time, of_a_clock,
    of_given_ticks, inside_the_checkpoint,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_cannot_be_adopted_is_refused_and_left_as_it_is(case: Callable[[], None]) -> None:
    with pytest.raises(BadInput) as raised:
        case()
    text = re.sub(r"(test_adopt.py):\d+", r"\1:N", str(raised.value).replace(str(Path.cwd()), "."))
    assert_golden(GOLDEN / f"adopt_{case.__name__}.txt", f"{text}\n")
    assert not [p for p in Path().iterdir() if p.name.startswith(".")]


# --- any flow --------------------------------------------------------------------------------


def parts(case: Case, ticks: list[Tick]) -> dict[str, list[Any]]:
    return {name: [row for tick in ticks for row in tick.get(name, ())] for name in case.inputs}


@examples(0.3)
@given(st.data())
def test_an_adopted_sink_holds_what_that_of_an_undisturbed_run_does(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    case = data.draw(cases(settled=False))
    ticks = data.draw(cuts(case, least=2))
    graph, folder = case.graph, tmp_path_factory.mktemp("adopt")
    keeps_all = data.draw(st.booleans())  # else the rows of the first tick are gone
    first = parts(case, ticks[:1])
    between = parts(case, ticks[0 if keeps_all else 1 : len(ticks) - 1])
    whole = parts(case, ticks[0 if keeps_all else 1 :])
    sinks: dict[str, Any] = {}
    for name in graph.sinks:
        kind = data.draw(st.sampled_from([Changelog, TableFiles]))
        sinks[name] = kind(folder / name)

    def run(rows: Any, to: Any, checkpoint: Any) -> Any:
        return hr.run(case.flow, rows, to, checkpoint=checkpoint, tick_rows=data.draw(st.integers(1, 5)))

    run(first, sinks, folder / "state")
    shutil.rmtree(folder / "state", ignore_errors=True)
    adoption = partial(adopt, case.flow, folder / "state", {}, sinks, lambda at, to: run(between, to, at))
    was_written = any(any((folder / name).rglob("tick=[1-9]")) for name in graph.sinks)
    if not (was_written and any(between.values())):
        with pytest.raises(BadInput, match=r"nothing to adopt|no source has a row"):
            adoption()
        return
    adoption()
    shutil.rmtree(folder / "state")
    assert adoption().changes_out == 0
    bounded = any(case.source(name).bounded for name in case.inputs)
    if not bounded:
        run(whole, sinks, folder / "state")
    undisturbed = {name: Changelog(folder / "undisturbed" / name) for name in graph.sinks}
    run(between if bounded else whole, undisturbed, None)
    for name, node in graph.sinks.items():
        schema = graph.nodes[node].schema
        assert held(sinks[name], schema) == held(undisturbed[name], schema), name
