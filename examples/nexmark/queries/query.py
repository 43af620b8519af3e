"""What a query is: a flow and the SQL that says the same, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import headrace as hr
from examples.nexmark.events import Auction, Bid, Person, Side
from headrace import col

AnyStream: TypeAlias = hr.Stream[Any, Any, Any, Any]

LATENESS = "4s"
"""How long windows wait for events that come late, as in the benchmark."""


class FinalPrice(NamedTuple):
    """The highest bid that came while the auction was open."""

    id: int
    category: int
    seller: int
    expires: datetime
    price: int


class Site:
    """What there is to ask of: the sources of a flow and what several queries make of them.

    Each is made when it is first asked for, so queries that are added to one flow share them.
    """

    def __init__(self, flow: hr.Flow) -> None:
        self.flow = flow

    @cached_property
    def persons(self) -> hr.Stream[Person, hr.Unbounded, hr.Append, hr.Ordered]:
        return self.flow.source("persons", Person)

    @cached_property
    def auctions(self) -> hr.Stream[Auction, hr.Unbounded, hr.Append, hr.Ordered]:
        return self.flow.source("auctions", Auction)

    @cached_property
    def bids(self) -> hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered]:
        return self.flow.source("bids", Bid)

    @cached_property
    def side_input(self) -> hr.Stream[Side, hr.Bounded, hr.Append, hr.Ordered]:
        return self.flow.source("side_input", Side, bounded=True)

    @cached_property
    def persons_on_time(self) -> hr.Stream[Person, hr.Unbounded, hr.Append, hr.Ordered]:
        return self.persons.watermark("date_time", lateness=LATENESS)

    @cached_property
    def auctions_on_time(self) -> hr.Stream[Auction, hr.Unbounded, hr.Append, hr.Ordered]:
        return self.auctions.watermark("date_time", lateness=LATENESS)

    @cached_property
    def bids_on_time(self) -> hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered]:
        return self.bids.watermark("date_time", lateness=LATENESS)

    @cached_property
    def bids_in_time(self) -> AnyStream:
        """Bids with their auctions, made between the auction's opening and its expiry."""
        in_time = hr.left.date_time.between(hr.right.date_time, hr.right.expires)
        of_auction = (hr.left.auction == hr.right.id) & in_time
        return self.bids.join(self.auctions, on=of_auction, suffix="_of_auction", name="valid bids")

    @cached_property
    def final_prices(self) -> hr.Table[FinalPrice]:
        """The price of each auction that has a bid; it may rise until the auction is over."""
        auctions = self.bids_in_time.group_by("id", "category", "seller", "expires")
        return auctions.agg(price=hr.max(col.price), into=FinalPrice, name="final prices")


@dataclass(frozen=True)
class Query:
    """A query of the benchmark.

    name:    such as "q4"; also of its sink.
    asks:    what it asks, in a sentence.
    sql:     the same for DuckDB, over all rows that are not late. Its columns are those of the
             flow, in order. Table `bids` has a further column, `tick`: when a row came.
    differs: what is not as in the benchmark, and why.
    add:     adds it to the flow of a site.
    """

    name: str
    asks: str
    sql: str
    differs: str
    add: Callable[[Site], AnyStream]

    def flow(self) -> hr.Flow:
        """The query alone: a flow with one sink."""
        return flow_of([self], f"nexmark {self.name}")

    __call__ = flow

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.flow().graph().sources)


def query(asks: str, *, sql: str, differs: str = "") -> Callable[[Callable[[Site], AnyStream]], Query]:
    """Make a query of a function that adds it to a flow."""

    def made(add: Callable[[Site], AnyStream]) -> Query:
        return Query(add.__name__, asks, sql, differs, add)

    return made


def flow_of(queries: Iterable[Query], name: str) -> hr.Flow:
    """One flow for several queries: they share sources, and each has a sink of its name."""
    flow = hr.Flow(name)
    site = Site(flow)
    for each in queries:
        flow.sink(each.name, each.add(site))
    return flow
