"""Several workers: their shares of a flow are together the flow; each dataflow is where it can be right."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.compute.frontier import Frontier
from headrace.compute.plans import encode, identity_flow
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    CopyToExport,
    Dataflow,
    Export,
    IndexExport,
    IndexImport,
    SubscribeExport,
)
from headrace.compute.replica.feeds import weighted_rows
from headrace.compute.replica.in_process.ticking import (
    COLUMNS,
    TickExecutor,
    Ticking,
    create_undivided_engine,
)
from headrace.compute.replica.workers.shard import HostedDataflow, WorkerShard, choose_workers, divide_flow
from headrace.expr.typing_rules import bounded_code
from tests.compute.replica import flows
from tests.compute.replica.test_promise import Truth, served
from tests.properties.effort import examples
from tests.random_flows.cases import Case, Tick

Bag = Counter[tuple[Any, ...]]
WORKERS = 3
NO_DATAFLOW = Dataflow(encode(flows.all_bids()), (), (), (), Frontier(0))


def ticked(engine: TickExecutor, tick: dict[str, list[tuple[Any, int, int]]], answer: dict[str, Bag]) -> None:
    """Run a tick and add to the answer what it makes."""
    changes = {name: [(row, weight) for row, _, weight in updates] for name, updates in tick.items()}
    program = engine.program
    rows = {name: weighted_rows(c, program.source_append[name], name) for name, c in changes.items()}
    for sink, made in engine.tick_rows(rows).items():
        append = program.sink_append[sink]
        for row, weight in [(tuple(row), 1) if append else (row[:-1], row[-1]) for row in made]:
            answer.setdefault(sink, Counter())[row] += weight


def there(answer: dict[str, Bag]) -> dict[str, dict[Any, int]]:
    return {sink: held for sink, rows in answer.items() if (held := {row: n for row, n in rows.items() if n})}


@examples(0.5)
@given(served(), st.integers(1, WORKERS))
def test_the_shares_of_all_workers_are_the_flow(drawn: tuple[Case, list[Tick]], workers: int) -> None:
    case, ticks = drawn
    division = divide_flow(case.flow, workers)
    assume(division is not None)
    assert division is not None
    one, several = (
        create_undivided_engine(NO_DATAFLOW, case.flow),
        [WorkerShard(division, n) for n in range(workers)],
    )
    answer: dict[str, Bag] = {}
    together: dict[str, Bag] = {}
    for tick in [{}, *Truth(case, ticks).updates]:
        ticked(one, tick, answer)
        for share in several:
            ticked(share, tick, together)
        assert there(together) == there(answer)


@pytest.mark.parametrize("count", [10, 2 * COLUMNS])
def test_rows_that_a_view_hands_on_are_divided_however_many_they_are(count: int) -> None:
    flow = hr.Flow("numbers")
    flow.sink("out", flow.table("numbers", int))
    division = divide_flow(flow, WORKERS)
    assert division is not None
    given = [((number,), 1) for number in range(count)]
    together: Bag = Counter()
    for number in range(WORKERS):
        ticking = Ticking(WorkerShard(division, number), flow, lambda: 0.0, {"out"})
        together.update(row for row, _ in ticking.tick({"numbers": given})["out"])
    assert together == Counter(row for row, _ in given)


def test_bounded_code_divides_rows_by_keys_that_are_computed() -> None:
    flow = hr.Flow("by upper case")
    bids = flow.table("s1", flows.Bid)
    flow.sink("out", bids.group_by(item=hr.concat(col.item.upper(), "!")).agg(n=hr.count()))
    division = divide_flow(flow, WORKERS)
    assert division is not None
    answer: dict[str, Bag] = {}
    with bounded_code():
        shards = [WorkerShard(division, number) for number in range(WORKERS)]
    for shard in shards:
        ticked(shard, {"s1": [((item, 1), 3, 1) for item in ("a", "A", "b")]}, answer)
    assert answer["out"] == {("A!", 2): 1, ("B!", 1): 1}


@pytest.mark.parametrize(
    ("flow", "keeps_nothing"),
    [
        (flows.all_bids(), True),
        (flows.shares(), True),
        (flows.cheap(), True),
        (flows.totals(), False),
        (flows.both(), False),
        (identity_flow(flows.BID), True),
    ],
)
def test_what_can_be_divided_is(flow: hr.Flow, keeps_nothing: bool) -> None:
    division = divide_flow(flow, 2)
    assert division is not None
    assert division.is_stateless == keeps_nothing


def largest_total() -> hr.Flow:
    """Rows would have to travel twice."""
    flow = hr.Flow("largest")
    totals = flow.table("s1", flows.Bid).group_by(col.item).agg(total=hr.sum(col.price))
    flow.sink("out", totals.group_by(col.total).agg(n=hr.count()))
    return flow


def test_what_needs_two_cuts_runs_on_one_worker() -> None:
    assert divide_flow(largest_total(), 2) is None
    hosted = choose_workers(reading(largest_total(), u("u1"), "s1"), largest_total(), 2, {})
    assert (len(hosted.workers), hosted.divided, hosted.copies) == (1, False, ())


def test_rows_that_are_there_already_stay_where_they_are() -> None:
    division = divide_flow(flows.cheap(), 2)
    assert division is not None
    for number in range(2):
        answer: dict[str, Bag] = {}
        ticked(WorkerShard(division, number, frozenset({"input"})), {"input": [(("a", 5), 1, 1)]}, answer)
        assert there(answer) == {"out": {("a", 5): 1}}


# -- where dataflows run ------------------------------------------------------------------------


def u(id: str) -> IndexExport:
    return IndexExport(id, "out")


def reading(flow: hr.Flow, export: Export, *ids: str, as_of: int = 5) -> Dataflow:
    collections = tuple(CollectionImport(id, id) for id in ids if id.startswith("s"))
    indexes = tuple(IndexImport("input", id) for id in ids if not id.startswith("s"))
    return Dataflow(encode(flow), collections, indexes, (export,), Frontier(as_of))


def hosted_by(dataflow: Dataflow, flow: hr.Flow, known: dict[str, HostedDataflow]) -> HostedDataflow:
    found = choose_workers(dataflow, flow, WORKERS, known)
    known.update(dict.fromkeys(dataflow.export_ids, found))
    return found


def test_a_subscription_to_a_divided_index_is_divided_as_it_is() -> None:
    known: dict[str, HostedDataflow] = {}
    assert hosted_by(reading(flows.totals(), u("u1"), "s1"), flows.totals(), known).divided
    subscription = hosted_by(reading(flows.cheap(), SubscribeExport("t1", "out"), "u1"), flows.cheap(), known)
    assert subscription.divided
    assert subscription.workers == (0, 1, 2)
    assert subscription.copies == ()


@pytest.mark.parametrize(
    "export", [CollectionExport("u2", "out", "s9"), CopyToExport("t1", "out", "rows.jsonl")]
)
def test_what_writes_runs_on_one_worker_with_a_copy_of_the_divided_index_that_it_reads(
    export: Export,
) -> None:
    known: dict[str, HostedDataflow] = {}
    index = reading(flows.totals(), u("u1"), "s1")
    hosted_by(index, flows.totals(), known)
    writer = hosted_by(reading(flows.cheap(), export, "u1", as_of=9), flows.cheap(), known)
    assert len(writer.workers) == 1
    (copy,) = writer.copies
    assert copy == replace(index, exports=(u(f"u1 for {export.id}"),), as_of=Frontier(9))
    assert [i.id for i in writer.built.indexes] == [f"u1 for {export.id}"]
    assert [i.id for i in writer.dataflow.indexes] == ["u1"]


def test_what_reads_an_index_of_one_worker_is_there_too_and_reads_it_in_place() -> None:
    known: dict[str, HostedDataflow] = {}
    first = hosted_by(reading(largest_total(), u("u1"), "s1"), largest_total(), known)
    second = hosted_by(reading(flows.cheap(), u("u2"), "u1"), flows.cheap(), known)
    assert second.workers == first.workers
    assert second.copies == ()
    assert second.built == second.dataflow


def test_copies_of_what_reads_copies_come_in_order() -> None:
    known: dict[str, HostedDataflow] = {}
    hosted_by(reading(flows.totals(), u("u1"), "s1"), flows.totals(), known)
    hosted_by(reading(flows.cheap(), u("u2"), "u1"), flows.cheap(), known)
    third = hosted_by(reading(flows.totals(), u("u3"), "u2"), flows.totals(), known)
    assert [sorted(copy.export_ids) for copy in third.copies] == [["u1 for u3"], ["u2 for u3"]]
    assert [i.id for i in third.copies[1].indexes] == ["u1 for u3"]
    assert [i.id for i in third.built.indexes] == ["u2 for u3"]


def test_a_plan_that_cannot_be_read_and_an_index_that_is_not_there_fail_where_they_are_built() -> None:
    unread = choose_workers(reading(flows.cheap(), u("u1"), "s1"), None, WORKERS, {})
    assert (len(unread.workers), unread.built) == (1, unread.dataflow)
    missing = choose_workers(reading(flows.cheap(), u("u2"), "u9"), flows.cheap(), WORKERS, {})
    assert (len(missing.workers), missing.built) == (1, missing.dataflow)
