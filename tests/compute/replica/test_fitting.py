"""What a dataflow reads and writes has the columns that its flow says, or it has failed: never wrong rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

import penstock as ps
from penstock.compute.errors import BadPlan, DataflowFailed
from penstock.compute.frontier import Frontier
from penstock.compute.protocol.commands import AllowWrites, CreateDataflow, Schedule
from penstock.compute.protocol.dataflow import CollectionExport, CollectionImport, IndexExport
from penstock.expr.rows import schema_of
from tests.compute.replica.flows import BID, Bid, all_bids, cheap
from tests.compute.replica.rig import Bag, Rig, problem


class Turned(NamedTuple):
    """The columns of a bid, the other way round."""

    price: int
    item: str


class Wider(NamedTuple):
    item: str
    price: float


class Longer(NamedTuple):
    item: str
    price: int
    more: int


OTHERS = {Turned: (5, "a"), Wider: ("a", 5.0), Longer: ("a", 5, 7)}


def misfit(answer: Any) -> None:
    found = problem(answer, DataflowFailed)
    assert dict(found.facts)["cause"] == BadPlan.code


@pytest.mark.parametrize("rows", OTHERS)
def test_a_collection_of_other_rows_is_not_read(rows: type) -> None:
    rig = Rig().connect().collection("s1", schema_of(rows), (OTHERS[rows], 3, 1), upper=10)
    rig.index("u1", all_bids(), as_of=5)
    misfit(rig.peek("u1", 7))


@pytest.mark.parametrize("rows", OTHERS)
def test_an_index_of_other_rows_is_not_read(rows: type) -> None:
    rig = Rig().connect().collection("s1", schema_of(rows), (OTHERS[rows], 3, 1), upper=10)
    same = ps.Flow("same")
    same.sink("out", same.table("s1", rows))
    rig.index("u1", same, as_of=5).index("u2", cheap(), as_of=5, indexes={"input": "u1"})
    misfit(rig.peek("u2", 7))


def test_rows_are_not_written_into_a_collection_of_others() -> None:
    rig = (
        Rig().connect().collection("s1", BID, (("a", 5), 3, 1), upper=10).collection("s2", schema_of(Turned))
    )
    rig.create(all_bids(), CollectionExport("u1", "out", "s2"), IndexExport("u2", "out"), as_of=5)
    rig.tell(AllowWrites("u1"))
    misfit(rig.peek("u2", 7))
    assert rig.store.bounds(["s2"])[0].upper == Frontier(0)


def test_a_source_reads_one_thing() -> None:
    rig = Rig().connect()
    for id in ("s1", "s2"):
        rig.collection(id, BID, (("a", 5), 3, 1), upper=10)
    dataflow = rig.dataflow(all_bids(), IndexExport("u1", "out"), as_of=5)
    twice = replace(dataflow, collections=(*dataflow.collections, CollectionImport("s1", "s2")))
    rig.tell(CreateDataflow(twice), Schedule("u1"))
    misfit(rig.peek("u1", 7))


def test_a_join_reads_no_index_in_place_whose_key_says_a_column_twice() -> None:
    rig = Rig().connect()
    for id in ("s1", "s2"):
        rig.collection(id, BID, (("apple", 5), 3, 1), upper=10)
    flow = ps.Flow("pairs")
    flow.sink("out", flow.table("s1", Bid).join(flow.table("s2", Bid), on="item", suffix="_2"))
    rig.index("u1", all_bids(), ["item", "item"], as_of=5)
    rig.index("u2", flow, as_of=5, indexes={"s1": "u1"})
    assert rig.rows("u2", 7) == Bag({("apple", 5, 5): 1})
