"""A flow that travels as a plan comes back as the flow that it was."""

from __future__ import annotations

from typing import Any, NamedTuple

import penstock as ps
from penstock import col, left, right
from penstock.compute.plans import decode, encode
from penstock.flow.flow import Flow
from penstock.flow.stream import Stream


class Bid(NamedTuple):
    auction: int
    price: float | None
    who: str


class Auction(NamedTuple):
    id: int
    category: str


def averages(name: str = "averages") -> Flow:
    flow = ps.Flow(name)
    bids, auctions = flow.table("bids", Bid), flow.source("auctions", Auction)
    joined = bids.join(auctions, on=left.auction == right.id).filter(col.price > 1.5, name="dear")
    flow.sink("means", joined.group_by("category").agg(mean=ps.mean(col.price), rows=ps.count()))
    flow.sink("best", bids.top_k(3, by=[col.price.desc(), col.who], per=["auction"]))

    def less(numbers: Stream[Any, Any, Any, Any]) -> Stream[Any, Any, Any, Any]:
        return numbers.union(numbers.filter(col.value > 0).select(value=col.value - 1, into=int))

    flow.sink("countdown", flow.fixpoint(less, flow.table("numbers", int)))
    return flow


def test_a_plan_is_the_same_whatever_people_call_it_and_wherever_they_write_it() -> None:
    plan, other = encode(averages()), encode(averages("otherwise"))
    assert plan.body == other.body
    assert plan.hash == other.hash
    assert plan == other


def test_a_decoded_flow_is_explained_and_encoded_as_the_first() -> None:
    flow = averages()
    plan = encode(flow)
    again = decode(plan)
    assert encode(again).body == plan.body
    assert [(n.name, n.operator.kind, n.inputs, n.schema) for n in again.nodes] == [
        (n.name, n.operator.kind, n.inputs, n.schema) for n in flow.nodes
    ]
    assert again.name == "averages"
