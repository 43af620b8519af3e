"""Views and subscriptions begin in columns with what they begin with in rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.compute.errors import ResultTooLarge
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import DataflowLimits, Parameters, UpdateConfiguration
from headrace.compute.protocol.responses import (
    BatchResponse,
    EncodedUpdates,
    Problem,
    SubscribeResponse,
    Update,
)
from headrace.compute.protocol.row_batch import decode_batch
from headrace.compute.replica.in_process import arrangement, ticking
from headrace.engine.spilling import StateInMemory
from headrace.expr.row_classes import schema_of
from headrace.flow.flow import Flow
from tests.compute.replica.rig import Rig, bag


class Sale(NamedTuple):
    shop: str
    price: float


class Tagged(NamedTuple):
    shop: str
    price: float
    tags: list[str]


SALES = [((f"shop {n % 7}", n / 4 - 5), 1 + (n % 5 == 0)) for n in range(60)]
TAGGED = [((*row, ("new", f"{n}")[: n % 3]), count) for n, (row, count) in enumerate(SALES)]
ROWS: dict[type[Any], list[tuple[Any, int]]] = {Sale: SALES, Tagged: TAGGED}
Make = Callable[[Any, Any], Any]


def flow(make: Make, *, table: bool = True, of: type[Any] = Sale) -> Flow:
    made = Flow("sales")
    one, two = ((made.table if table else made.source)(name, of) for name in ("s1", "s2"))
    made.sink("out", make(one, two))
    return made


FLOWS: dict[str, Make] = {
    "as it is": lambda one, two: one,
    "a filter": lambda one, two: one.filter(col.price > 0),
    "columns": lambda one, two: one.select(col.shop, twice=col.price * 2),
    "zeros of both signs": lambda one, two: one.select(zero=col.price * 0),
    "a union": lambda one, two: one.union(two.filter(col.shop == "shop 1")),
    "a join": lambda one, two: one.join(two, on="shop", suffix="_2"),
    "a left join": lambda one, two: one.join(two.filter(col.price > 5), on="price", how="left", suffix="_2"),
    "an anti join": lambda one, two: one.join(two.filter(col.shop == "shop 1"), on="shop", how="anti"),
    "groups": lambda one, two: one.group_by("shop").agg(n=hr.count(), total=hr.sum(col.price)),
    "groups of a join": lambda one, two: (
        one.join(two, on="shop", suffix="_2").group_by("price").agg(n=hr.count())
    ),
    "distinct rows": lambda one, two: one.select("shop").distinct(),
    "the first of each group": lambda one, two: one.top_k(3, by=[col.price.desc()], per="shop"),
    "the largest of each group": lambda one, two: one.group_by("shop").agg(most=hr.max(col.price)),
    "a function": lambda one, two: one.map(lambda sale: len(sale.shop), returns=int),
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few rows be enough for columns."""
    monkeypatch.setattr(ticking, "COLUMNS", 2)
    monkeypatch.setattr(arrangement, "LARGE", 10)
    monkeypatch.setattr(arrangement, "SCANNED", 16)


def hydrated(made: Flow, of: type[Any] = Sale) -> Rig:
    rig = Rig().connect()
    for name in ("s1", "s2"):
        rig.collection(name, schema_of(of), *((row, 3, count) for row, count in ROWS[of]), upper=10)
    return rig.index("u1", made, as_of=5)


def write(rig: Rig, *updates: Update, upper: int) -> Rig:
    return rig.write("s1", *updates, upper=upper).write("s2", upper=upper)


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("of", [Sale, Tagged])
@pytest.mark.parametrize("make", FLOWS.values(), ids=FLOWS)
def test_a_view_hydrates_in_columns_as_in_rows(
    make: Make, of: type[Any], table: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = flow(make, table=table, of=of)
    rows = followed(hydrated(made, of), of, table=table)
    for name, value in (("LARGE", 10), ("SCANNED", 16)):
        monkeypatch.setattr(arrangement, name, value)
    monkeypatch.setattr(ticking, "COLUMNS", 2)
    columns = followed(hydrated(made, of), of, table=table)
    for time in (5, 12, 15, *((17, 18) if table else ())):
        assert columns.rows("u1", time) == rows.rows("u1", time) != bag(())


def followed(rig: Rig, of: type[Any], *, table: bool) -> Rig:
    """Let a view hydrate, and then follow small and large changes."""
    rig.run()
    many = [(row, 15, count) for row, count in ROWS[of][:30]]
    write(rig, (ROWS[of][50][0], 12, 1), upper=13).run()
    write(rig, *many, upper=16).run()
    if table:
        gone = [(row, 18, -count) for row, _, count in many]
        write(rig, (ROWS[of][50][0], 17, -1), *gone, upper=20).run()
    return rig


@pytest.mark.usefixtures("few")
def test_a_row_that_fails_is_told_as_in_rows() -> None:
    rig = hydrated(flow(lambda one, two: one.select(share=100 // (col.price * 4 + 20).floor())))
    rig.run()
    answer = rig.peek("u1", 7)
    assert isinstance(answer, Problem)
    assert "shop 0" in answer.message + answer.why


@pytest.mark.usefixtures("few")
def test_pairs_are_limited_in_columns_as_in_rows() -> None:
    made = flow(lambda one, two: one.join(two, on="shop", suffix="_2"))
    for most, fails in ((100, True), (10_000, False)):
        rig = Rig().connect()
        for name in ("s1", "s2"):
            rig.collection(name, schema_of(Sale), *((row, 3, count) for row, count in SALES), upper=10)
        rig.index("u1", made, as_of=5, limits=DataflowLimits(tick_rows=most))
        rig.run()
        answer = rig.peek("u1", 5)
        assert isinstance(answer, Problem) == fails
        if fails:
            assert f"rows, and {most} is the limit" in answer.message


@pytest.mark.usefixtures("few")
def test_state_lies_in_arrangements_after_a_hydration(monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[str] = []
    release = StateInMemory.release
    monkeypatch.setattr(
        StateInMemory, "release", lambda self, name: released.append(name) or release(self, name)
    )
    hydrated(flow(FLOWS["groups of a join"])).run()
    assert len(released) == 3, "two sides, and groups"


def begun(rig: Rig, of: type[Any] = Sale) -> tuple[EncodedUpdates | tuple[Any, ...] | Problem, Frontier]:
    """What a subscription to an index begins with."""
    rig.run()
    rig.subscribe("t1", "u1", schema_of(of), as_of=7)
    first = next(said for said in rig.run() if isinstance(said, SubscribeResponse))
    assert isinstance(first.event, BatchResponse)
    return first.event.updates, first.event.upper


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("of", [Sale, Tagged])
def test_a_subscription_begins_with_columns_of_one_time(of: type[Any]) -> None:
    rig = hydrated(flow(FLOWS["as it is"], of=of), of)
    updates, upper = begun(rig, of)
    assert isinstance(updates, EncodedUpdates)
    assert (updates.time, upper) == (7, Frontier(8))
    found = [counted for chunk in updates.chunks for counted in decode_batch(chunk, schema_of(of), "updates")]
    assert bag(found) == bag(ROWS[of])
    assert len(found) == len(SALES), "each row once"
    write(rig, (ROWS[of][0][0], 12, -1), upper=20)
    later = [said.event for said in rig.run() if isinstance(said, SubscribeResponse)]
    assert [update for batch in later for update in batch.updates] == [(ROWS[of][0][0], 12, -1)]  # type: ignore[union-attr]


@pytest.mark.usefixtures("few")
def test_what_earlier_times_changed_is_sent_before_columns_of_a_later_one() -> None:
    rig = hydrated(flow(FLOWS["as it is"]))
    begun(rig)
    upper: Frontier | None = None
    write(rig, (SALES[0][0], 12, -1), *((row, 15, count) for row, count in SALES[:30]), upper=20)
    found: dict[int, list[Any]] = {}
    for said in rig.run():
        if isinstance(said, SubscribeResponse):
            assert isinstance(said.event, BatchResponse)
            lower, upper = said.event.lower, said.event.upper if upper in (None, said.event.lower) else None
            assert upper is not None, "batches follow each other"
            for time, counted in changes_of(said.event):
                assert lower <= Frontier(time) < upper
                found.setdefault(time, []).append(counted)
    assert {time: bag(rows) for time, rows in found.items()} == {
        12: bag([(SALES[0][0], -1)]),
        15: bag(SALES[:30]),
    }


def changes_of(batch: BatchResponse) -> list[tuple[int, Any]]:
    updates = batch.updates
    assert not isinstance(updates, Problem)
    if not isinstance(updates, EncodedUpdates):
        return [(time, (row, weight)) for row, time, weight in updates]
    chunks = (decode_batch(chunk, schema_of(Sale), "updates") for chunk in updates.chunks)
    return [(updates.time, counted) for chunk in chunks for counted in chunk]


@pytest.mark.usefixtures("few")
def test_a_row_that_columns_cannot_hold_makes_a_subscription_begin_in_rows() -> None:
    odd = (("\udc80", 1.0), 1)
    rig = write(hydrated(flow(FLOWS["as it is"])), (odd[0], 11, 1), upper=12)
    rig.run()
    rig.subscribe("t1", "u1", schema_of(Sale), as_of=11)
    (updates, *_) = [said.event.updates for said in rig.run() if isinstance(said, SubscribeResponse)]  # type: ignore[union-attr]
    assert isinstance(updates, tuple)
    assert bag((row, weight) for row, _, weight in updates) == bag([*SALES, odd])


@pytest.mark.usefixtures("few")
def test_a_snapshot_above_the_limit_is_a_problem() -> None:
    rig = hydrated(flow(FLOWS["as it is"]))
    rig.tell(UpdateConfiguration(Parameters(max_result_size=500)))
    updates, _ = begun(rig)
    assert isinstance(updates, Problem)
    assert updates.code == ResultTooLarge.code
