"""Columns that nobody reads: not kept, not sent, and no reason to fail; answers stay the same.

That answers stay the same is shown by the properties of the promises, whose flows leave columns unread too.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace import col
from headrace.analysis.column_lineage import live_columns, live_graph
from headrace.errors import BadRow
from headrace.operators.rows import Select


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    extra: str


class Auction(NamedTuple):
    id: int
    category: int
    name: str


def read_of(flow: hr.Flow) -> dict[str, set[str]]:
    graph = flow.graph()
    live = live_columns(graph)
    return {name: set(live[node]) for name, node in graph.sources.items()}


def most_per_category() -> hr.Flow:
    flow = hr.Flow("best")
    bids, auctions = flow.source("bids", Bid), flow.table("auctions", Auction)
    joined = bids.join(auctions, on=col.auction == col.id)
    flow.sink("out", joined.group_by(col.category).agg(most=hr.max(col.price)))
    return flow


def test_a_join_reads_its_keys_and_what_is_read_behind_it() -> None:
    assert read_of(most_per_category()) == {"bids": {"auction", "price"}, "auctions": {"id", "category"}}


def test_a_residual_condition_is_read_though_no_column_of_it_goes_on() -> None:
    flow = hr.Flow("dear")
    bids, auctions = flow.source("bids", Bid), flow.table("auctions", Auction)
    joined = bids.join(auctions, on=(col.auction == col.id) & (col.price > col.category))
    flow.sink("out", joined.select("bidder"))
    assert read_of(flow) == {"bids": {"auction", "price", "bidder"}, "auctions": {"id", "category"}}


def test_equal_rows_need_every_column() -> None:
    flow = hr.Flow("rows")
    flow.sink("out", flow.source("bids", Bid).distinct().select("price"))
    assert read_of(flow) == {"bids": set(Bid._fields)}


def test_a_function_of_rows_needs_every_column() -> None:
    flow = hr.Flow("rows")
    flow.sink("out", flow.source("bids", Bid).map(lambda bid: bid.price, returns=int))
    assert read_of(flow) == {"bids": set(Bid._fields)}


def test_a_count_of_rows_reads_one_column() -> None:
    flow = hr.Flow("rows")
    flow.sink("out", flow.source("bids", Bid).group_by().agg(n=hr.count()))
    assert read_of(flow) == {"bids": {"auction"}}


def test_columns_of_a_union_are_read_of_each_input() -> None:
    flow = hr.Flow("both")
    first, second = flow.source("first", Bid), flow.source("second", Bid)
    flow.sink("out", first.union(second.filter(col.bidder > 0)).select("price"))
    assert read_of(flow) == {"first": {"price"}, "second": {"price", "bidder"}}


def test_loops_get_whole_rows() -> None:
    flow = hr.Flow("reach")
    edges = flow.source("edges", Auction)
    found = flow.feedback(Auction)
    further = found.join(edges, on=hr.left.category == hr.right.id, suffix="_next").select(
        id=col.id, category=col.category_next, name=col.name
    )
    found.close(edges.union(further).distinct())
    flow.sink("out", found.select("id"))
    assert read_of(flow) == {"edges": set(Auction._fields)}


def test_rows_that_go_to_one_shard_are_sent_once() -> None:
    """A watermark reads the time alone, and the windows beside it a column more: both read one projection."""

    class Visit(NamedTuple):
        at: datetime
        page: str
        agent: str

    flow = hr.Flow("visits")
    visits = flow.source("visits", Visit).filter(col.agent != "robot").watermark("at", lateness="1 minute")
    pages = hr.count_distinct(col.page)
    flow.sink("out", visits.group_by(window=hr.tumbling(col.at, "1 hour")).agg(pages=pages))
    graph = live_graph(flow.graph())
    projected = [node.schema.names for node in graph.nodes if isinstance(node.operator, Select)]
    assert projected == [("at", "page")]


def test_state_keeps_live_columns_alone() -> None:
    engine = hr.Engine(most_per_category())
    engine.tick(bids=[(1, 7, 10, "long text")], auctions=[(1, 3, "a name")])
    kept = repr({name: dict(slot) for name, slot in engine_state(engine).items()})
    assert "10" in kept
    assert "long text" not in kept
    assert "a name" not in kept


def engine_state(engine: hr.Engine) -> dict[str, Any]:
    memory = engine._memory  # pyright: ignore[reportPrivateUsage]
    assert memory is not None
    return dict(memory.mappings)


def test_rows_from_python_are_checked_whole() -> None:
    engine = hr.Engine(most_per_category())
    with pytest.raises(BadRow):
        engine.tick(bids=[(1, 7, 10, None)])


def test_explain_names_the_columns_that_are_not_read() -> None:
    text = hr.explain(most_per_category())
    assert text.endswith("Columns not read\n  bids: bidder, extra\n  auctions: name\n")
