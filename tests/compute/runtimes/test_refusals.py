"""Every runtime refuses the same orders of a controller: never wrong rows, never the end of the replica."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.compute.errors import (
    BadMessage,
    BadPlan,
    DataflowBroken,
    DataflowFailed,
    SinceViolation,
    UnknownName,
)
from headrace.compute.frontier import END, Frontier
from headrace.compute.plans import INPUT, encode, encode_expr, identity_flow
from headrace.compute.protocol.commands import (
    CollectionExport,
    CollectionImport,
    CopyToExport,
    Dataflow,
    Export,
    Finishing,
    IndexExport,
    IndexImport,
    SubscribeExport,
)
from headrace.compute.protocol.responses import BatchResponse, CopyToResponse, Problem
from headrace.expr.row_classes import schema_of
from tests.compute.runtimes.stage import BEST, SAME, Best, Bid, Stage


class Turned(NamedTuple):
    """The columns of a bid, the other way round."""

    price: int
    auction: int


class Wider(NamedTuple):
    auction: int
    price: float


class Longer(NamedTuple):
    auction: int
    price: int
    more: int


OTHERS: dict[type, tuple[Any, ...]] = {Turned: (5, 1), Wider: (1, 5.0), Longer: (1, 5, 7)}


def misfit(stage: Stage, id: str, at: int, cause: str = BadPlan.code) -> None:
    found = stage.problem(id, at)
    assert found.code in (DataflowFailed.code, DataflowBroken.code)
    assert dict(found.facts)["cause"] == cause


def bids(*collections: str) -> tuple[CollectionImport, ...]:
    return tuple(CollectionImport("bids", id) for id in collections)


def index(stage: Stage, *imports: CollectionImport, export: Export | None = None) -> None:
    stage.create(Dataflow(BEST, imports, (), (export or IndexExport("u1", "best"),), Frontier(5)))


@pytest.mark.parametrize("rows", OTHERS)
def test_a_collection_of_other_rows_is_not_read(stage: Stage, rows: type) -> None:
    stage.collection("s1", rows)
    stage.write("s1", (OTHERS[rows], 3, 1), upper=10)
    stage.view("u1", "s1", 5)
    misfit(stage, "u1", 7)


@pytest.mark.parametrize("rows", OTHERS)
def test_an_index_of_other_rows_is_not_read(stage: Stage, rows: type) -> None:
    stage.collection("s1", rows)
    stage.write("s1", (OTHERS[rows], 3, 1), upper=10)
    same = encode(identity_flow(schema_of(rows)))
    stage.create(
        Dataflow(same, (CollectionImport(INPUT, "s1"),), (), (IndexExport("u1", "output"),), Frontier(5))
    )
    read = (IndexImport("bids", "u1"),)
    stage.create(Dataflow(BEST, (), read, (IndexExport("u2", "best"),), Frontier(5)))
    misfit(stage, "u2", 7)


@pytest.mark.parametrize("imports", [bids(), bids("s1", "s2"), (CollectionImport("other", "s1"),)])
def test_each_source_reads_one_thing(stage: Stage, imports: tuple[CollectionImport, ...]) -> None:
    for id in ("s1", "s2"):
        stage.collection(id, upper=10)
    index(stage, *imports)
    misfit(stage, "u1", 7)


def test_what_is_not_there_is_not_read(stage: Stage) -> None:
    index(stage, *bids("s9"))
    misfit(stage, "u1", 7, UnknownName.code)
    read = (IndexImport(INPUT, "u9"),)
    stage.create(Dataflow(SAME, (), read, (IndexExport("u2", "output"),), Frontier(5)))
    misfit(stage, "u2", 7, UnknownName.code)


def test_an_index_is_not_read_before_its_since(stage: Stage) -> None:
    stage.collection("s1", upper=10)
    stage.view("u1", "s1", 5)
    stage.reached("u1", Frontier(10))
    stage.runtime.allow_compaction("u1", Frontier(8))
    stage.on_index(IndexExport("u2", "output"), "u1", 6)
    misfit(stage, "u2", 7, SinceViolation.code)
    assert stage.problem("u1", 7).code == SinceViolation.code


@pytest.mark.parametrize(
    "export", [IndexExport("u1", "worst"), IndexExport("u1", "best", ("price",))], ids=["sink", "key"]
)
def test_what_the_flow_does_not_make_is_not_exported(stage: Stage, export: Export) -> None:
    stage.collection("s1", upper=10)
    index(stage, *bids("s1"), export=export)
    misfit(stage, "u1", 7)


def test_rows_are_not_written_into_a_collection_of_others(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), upper=10)
    stage.collection("s2", Turned)
    exports = (CollectionExport("u1", "best", "s2"), IndexExport("u2", "best"))
    stage.create(Dataflow(BEST, bids("s1"), (), exports, Frontier(5)))
    stage.runtime.allow_writes("u1")
    misfit(stage, "u2", 7)
    assert stage.store.bounds(["s2"])[0].upper == Frontier(1)


def test_a_collection_that_is_not_there_is_not_written_and_the_rest_goes_on(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), upper=10)
    exports = (CollectionExport("u1", "best", "s9"), IndexExport("u2", "best"))
    stage.create(Dataflow(BEST, bids("s1"), (), exports, Frontier(5)))
    stage.runtime.allow_writes("u1")
    misfit(stage, "u2", 7, UnknownName.code)
    stage.view("u3", "s1", 5)
    assert stage.rows("u3", 7) == [(1, 5)]
    for id in ("u1", "u2"):
        stage.runtime.allow_compaction(id, END)
        assert stage.reached(id, END).output == END


def test_subscriptions_and_copies_fail_with_their_dataflow(stage: Stage) -> None:
    stage.collection("s1", Turned, upper=10)
    exports = (SubscribeExport("t1", "best"), CopyToExport("t2", "best", "best.jsonl"))
    stage.create(Dataflow(BEST, bids("s1"), (), exports, Frontier(5)))
    (copied,) = stage.until(lambda: stage.said(CopyToResponse) or None)
    assert isinstance(copied.result, Problem)
    (batch,) = stage.batches("t1", Frontier(6))
    assert isinstance(batch, BatchResponse)
    assert isinstance(batch.updates, Problem)
    assert {copied.result.code, batch.updates.code} == {DataflowFailed.code}


def test_peeks_that_do_not_fit_are_refused_and_the_next_is_answered(stage: Stage) -> None:
    stage.collection("s1")
    stage.write("s1", ((1, 5), 3, 1), upper=10)
    stage.view("u1", "s1", 5)
    stage.reached("u1", Frontier(10))
    assert stage.problem("u1", 7, keys=[(1, 5)]).code == BadMessage.code
    assert stage.problem("s1", 7, collection=True, keys=[(1,)]).code == BadMessage.code
    assert stage.problem("u9", 7).code == UnknownName.code
    assert stage.problem("u1", 4).code == SinceViolation.code
    assert stage.problem("u1", 7, finishing=Finishing(project=(7,))).code == BadMessage.code
    assert stage.problem("u1", 7, predicate=b"no condition").code == BadPlan.code
    other = encode_expr(col.price > 3, schema_of(Bid))
    assert stage.problem("u1", 7, predicate=other).code == BadPlan.code
    assert stage.rows("u1", 7, keys=[(1,)]) == [(1, 5)]


def test_keys_are_equal_as_the_engine_groups_them_by_whatever_key_the_rows_are_filed(stage: Stage) -> None:
    class Rated(NamedTuple):
        auction: int
        rate: float

    stage.collection("s1", Rated)
    stage.write("s1", ((1, float("nan")), 3, 1), ((2, 0.0), 3, 1), ((3, 1.0), 3, 1), upper=10)
    exports = tuple(
        IndexExport(f"u{n}", "output", key) for n, key in enumerate([("auction",), ("rate",), ()])
    )
    same = encode(identity_flow(schema_of(Rated)))
    stage.create(Dataflow(same, (CollectionImport(INPUT, "s1"),), (), exports, Frontier(5)))
    assert stage.rows("u1", 7, keys=[(-0.0,), (1,)]) == [(2, 0.0), (3, 1.0)]
    assert len(stage.rows("u1", 7, keys=[(float("nan"),)])) == 1
    assert stage.rows("u2", 7, keys=[(2, -0.0), (3, 1)]) == [(2, 0.0), (3, 1.0)]


def test_a_join_reads_no_index_in_place_whose_key_says_a_column_twice(stage: Stage) -> None:
    for id in ("s1", "s2"):
        stage.collection(id)
        stage.write(id, ((1, 5), 3, 1), upper=10)
    flow = hr.Flow("pairs")
    flow.sink("out", flow.table("s1", Best).join(flow.table("s2", Bid), on="auction"))
    stage.view("u1", "s1", 5, key=["auction", "auction"])
    exports = (IndexExport("u2", "out"),)
    imports = ((CollectionImport("s2", "s2"),), (IndexImport("s1", "u1"),))
    stage.create(Dataflow(encode(flow), *imports, exports, Frontier(5)))
    assert stage.rows("u2", 7) == [(1, 5, 5)]
