"""A few flows to serve."""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock import col
from penstock.expr.rows import schema_of


class Bid(NamedTuple):
    item: str
    price: int


BID = schema_of(Bid)


def all_bids() -> ps.Flow:
    flow = ps.Flow("bids")
    flow.sink("out", flow.table("s1", Bid))
    return flow


def totals() -> ps.Flow:
    """The sum of the prices per item."""
    flow = ps.Flow("totals")
    flow.sink("out", flow.table("s1", Bid).group_by(col.item).agg(total=ps.sum(col.price)))
    return flow


def shares() -> ps.Flow:
    """What fails on a price of 0."""
    flow = ps.Flow("shares")
    flow.sink("out", flow.table("s1", Bid).select(col.item, share=100 // col.price))
    return flow


def both() -> ps.Flow:
    """Two inputs and two outputs."""
    flow = ps.Flow("both")
    one, two = flow.table("s1", Bid), flow.table("s2", Bid)
    flow.sink("joined", one.join(two, on="item", suffix="_2"))
    flow.sink("counted", one.group_by(col.item).agg(n=ps.count()))
    return flow


def cheap(bids: str = "input") -> ps.Flow:
    """Of an index of bids, those below 10."""
    flow = ps.Flow("cheap")
    flow.sink("out", flow.table(bids, Bid).filter(col.price < 10))
    return flow


class Share(NamedTuple):
    item: str
    share: int


def cheap_shares() -> ps.Flow:
    """Of an index of shares, those below 50."""
    flow = ps.Flow("cheap shares")
    flow.sink("out", flow.table("input", Share).filter(col.share < 50))
    return flow


def all_shares() -> ps.Flow:
    """An index of shares as it is."""
    flow = ps.Flow("all shares")
    flow.sink("out", flow.table("input", Share))
    return flow


class Measured(NamedTuple):
    at: float | None
    number: int
