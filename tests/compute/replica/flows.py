"""A few flows to serve."""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock import col
from penstock.compute.plans import sinks_of
from penstock.errors import SourceLocation
from penstock.expr.row_classes import schema_of
from penstock.flow.operators.source import Source


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


TOTAL = sinks_of(totals())[0].schema


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


def largest() -> ps.Flow:
    """The largest price per item, with the columns of `totals`."""
    flow = ps.Flow("largest")
    flow.sink("out", flow.table("s1", Bid).group_by(col.item).agg(total=ps.max(col.price)))
    return flow


def identity_of(flow: ps.Flow) -> ps.Flow:
    """What reads an index of a flow as it is."""
    (sink,) = sinks_of(flow)
    same = ps.Flow("same")
    rows = same.add_source(Source("input", sink.schema, False, False), SourceLocation(__file__, 1))
    same.add_sink("out", rows, sink.schema, SourceLocation(__file__, 1))
    return same


def cheap(below: int = 10) -> ps.Flow:
    """Of an index of bids, those below a price."""
    flow = ps.Flow("cheap")
    flow.sink("out", flow.table("input", Bid).filter(col.price < below))
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
