"""Four Nexmark queries as flows. Numbers are those of the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import penstock as ps
from examples.nexmark.events import Auction, Bid, Person
from penstock import col


class LocalAuction(NamedTuple):
    name: str
    city: str
    state: str
    auction: int


class FinalPrice(NamedTuple):
    """The highest bid that came while the auction was open."""

    id: int
    category: int
    seller: int
    price: int


class CategoryAverage(NamedTuple):
    category: int
    average: float


class SellerAverage(NamedTuple):
    seller: int
    average: float


class BidOnAuction(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: datetime
    item: str
    description: str
    initial_bid: int
    reserve: int
    date_time_of_auction: datetime
    expires: datetime
    seller: int
    category: int


def q3() -> ps.Flow:
    """Who sells in category 10 and lives in Oregon, Idaho or California?"""
    flow = ps.Flow("nexmark q3")
    persons = flow.source("persons", Person).filter(col.state.is_in("OR", "ID", "CA"))
    auctions = flow.source("auctions", Auction).filter(col.category == 10)
    local = auctions.join(persons, on=ps.left.seller == ps.right.id, suffix="_of_person")
    flow.sink("local", local.select("name", "city", "state", auction=col.id, into=LocalAuction))
    return flow


def q4() -> ps.Flow:
    """What do auctions of each category close at, on average? An aggregate of an aggregate."""
    flow = ps.Flow("nexmark q4")
    averages = (
        _final_prices(flow)
        .group_by("category")
        .agg(average=ps.mean(col.price), into=CategoryAverage, name="averages")
    )
    flow.sink("averages", averages)
    return flow


def q6() -> ps.Flow:
    """What do the auctions of each seller close at, on average?

    The original averages the last ten closed auctions of a seller, in order of
    closing; this flow averages all of them, so that the answer does not depend
    on an order.
    """
    flow = ps.Flow("nexmark q6, all auctions of a seller")
    averages = (
        _final_prices(flow)
        .group_by("seller")
        .agg(average=ps.mean(col.price), into=SellerAverage, name="averages")
    )
    flow.sink("averages", averages)
    return flow


def q20() -> ps.Flow:
    """The bids on auctions of category 10, with all there is to know of the auction."""
    flow = ps.Flow("nexmark q20")
    auctions = flow.source("auctions", Auction).filter(col.category == 10)
    bids = flow.source("bids", Bid)
    wide = bids.join(auctions, on=col.auction == col.id, suffix="_of_auction")
    flow.sink("bids", wide.select(*BidOnAuction._fields, into=BidOnAuction))
    return flow


def _final_prices(flow: ps.Flow) -> ps.Stream[FinalPrice]:
    """The price of each auction that has a bid: the greatest made between its opening and its expiry."""
    auctions = flow.source("auctions", Auction)
    bids = flow.source("bids", Bid)
    in_time = ps.left.date_time.between(ps.right.date_time, ps.right.expires)
    valid = bids.join(
        auctions, on=(ps.left.auction == ps.right.id) & in_time, suffix="_of_auction", name="valid bids"
    )
    return valid.group_by("id", "category", "seller").agg(
        price=ps.max(col.price), into=FinalPrice, name="final prices"
    )


QUERIES: dict[str, Callable[[], ps.Flow]] = {"q3": q3, "q4": q4, "q6": q6, "q20": q20}
