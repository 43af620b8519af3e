"""A few flows to serve."""

from __future__ import annotations

from typing import NamedTuple

import headrace as hr
from headrace import col
from headrace.compute.plans import sinks_of
from headrace.errors import SourceLocation
from headrace.expr.row_classes import schema_of
from headrace.operators.endpoints import SourceOperator


class Bid(NamedTuple):
    item: str
    price: int


BID = schema_of(Bid)


def all_bids() -> hr.Flow:
    flow = hr.Flow("bids")
    flow.sink("out", flow.table("s1", Bid))
    return flow


def totals() -> hr.Flow:
    """The sum of the prices per item."""
    flow = hr.Flow("totals")
    flow.sink("out", flow.table("s1", Bid).group_by(col.item).agg(total=hr.sum(col.price)))
    return flow


TOTAL = sinks_of(totals())[0].schema


def shares() -> hr.Flow:
    """What fails on a price of 0."""
    flow = hr.Flow("shares")
    flow.sink("out", flow.table("s1", Bid).select(col.item, share=100 // col.price))
    return flow


def both() -> hr.Flow:
    """Two inputs and two outputs."""
    flow = hr.Flow("both")
    one, two = flow.table("s1", Bid), flow.table("s2", Bid)
    flow.sink("joined", one.join(two, on="item", suffix="_2"))
    flow.sink("counted", one.group_by(col.item).agg(n=hr.count()))
    return flow


def largest() -> hr.Flow:
    """The largest price per item, with the columns of `totals`."""
    flow = hr.Flow("largest")
    flow.sink("out", flow.table("s1", Bid).group_by(col.item).agg(total=hr.max(col.price)))
    return flow


def identity_of(flow: hr.Flow) -> hr.Flow:
    """What reads an index of a flow as it is."""
    (sink,) = sinks_of(flow)
    same = hr.Flow("same")
    rows = same.add_source(SourceOperator("input", sink.schema, False, False), SourceLocation(__file__, 1))
    same.add_sink("out", rows, sink.schema, SourceLocation(__file__, 1))
    return same


def cheap(below: int = 10) -> hr.Flow:
    """Of an index of bids, those below a price."""
    flow = hr.Flow("cheap")
    flow.sink("out", flow.table("input", Bid).filter(col.price < below))
    return flow


class Share(NamedTuple):
    item: str
    share: int


def cheap_shares() -> hr.Flow:
    """Of an index of shares, those below 50."""
    flow = hr.Flow("cheap shares")
    flow.sink("out", flow.table("input", Share).filter(col.share < 50))
    return flow


def all_shares() -> hr.Flow:
    """An index of shares as it is."""
    flow = hr.Flow("all shares")
    flow.sink("out", flow.table("input", Share))
    return flow


class Measured(NamedTuple):
    at: float | None
    number: int
