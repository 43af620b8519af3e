"""Misuses: a checker must complain about exactly the lines that say so.

`# rejected` is asked of both checkers, `# rejected by pyright` and `# rejected by mypy` of one.
"""

from __future__ import annotations

from typing import NamedTuple

import headrace as hr
from headrace import col


class Bid(NamedTuple):
    auction: int
    bidder: str
    price: float


class Auction(NamedTuple):
    id: int
    category: int


class Best(NamedTuple):
    auction: int
    price: float


def category(auction: Auction) -> int:
    return auction.category


def price(bid: Bid) -> float:
    return bid.price


def name(bid: Bid) -> str:
    return bid.bidder


def is_dear(bid: Bid) -> bool:
    return bid.price > 100


def to_auction(bid: Bid) -> Auction:
    return Auction(bid.auction, 0)


def wants_bounded(stream: hr.Stream[Bid, hr.Bounded]) -> None: ...


def wants_append(stream: hr.Stream[Bid, hr.Unbounded, hr.Append]) -> None: ...


def wants_order(stream: hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered]) -> None: ...


flow = hr.Flow("misuses")
bids = flow.source("bids", Bid)
auctions = flow.source("auctions", Auction)
corrections = flow.table("corrections", Bid)
known = flow.source("known", Bid, bounded=True)

# Functions of other rows, with other results.
bids.map(category)  # rejected
bids.map(is_dear).map(name)  # rejected
bids.map(price, returns=str)  # rejected by mypy
bids.map(col.price * 2)  # rejected
bids.filter(category)  # rejected
bids.filter(name)  # rejected
bids.filter("price > 10")  # rejected
bids.flat_map(price)  # rejected
bids.select("auction", "price", into=Best).filter(is_dear)  # rejected
bids.filter(lambda bid: bid.prize > 10)  # rejected

# Expressions have no truth value. (Of `and` and chained comparisons no checker knows; building the flow does.)
bids.filter(not col.price > 10)  # rejected

# Columns.
bids.select("auction", currency="EUR")  # rejected
bids.with_columns(rate=1.1)  # rejected
bids.select(0)  # rejected
bids.group_by("auction").agg(price=col.price)  # rejected
bids.group_by("auction").agg(price="price")  # rejected
bids.select(price=hr.max(col.price))  # rejected
hr.sum("price")  # rejected
hr.first(col.price)  # rejected
bids.top_k(3)  # rejected
bids.top_k(3, by="price")  # rejected

# Several streams.
bids.union(auctions)  # rejected
bids.difference(auctions)  # rejected
bids.union([Bid(1, "ann", 2.0)])  # rejected
bids.join(auctions, on=col.auction == col.id, how="outer")  # rejected
bids.join(auctions)  # rejected
bids.join(auctions, on=True)  # rejected
bids.join(Auction, on=col.auction == col.id)  # rejected
bids.join(auctions, on=col.auction == col.id, how="semi", into=Best)  # rejected

# What is known of a stream.
wants_bounded(bids)  # rejected
wants_bounded(known.union(bids))  # rejected
wants_bounded(known.defer_tick())  # rejected
wants_append(corrections)  # rejected
wants_append(bids.union(corrections))  # rejected
wants_append(bids.difference(bids))  # rejected
wants_append(bids.join(bids, on="auction", how="anti"))  # rejected
wants_append(bids.group_by("auction").agg(price=hr.max(col.price)))  # rejected
wants_append(bids.top_k(3, by=col.price))  # rejected
wants_order(bids.distinct())  # rejected
wants_order(bids.union(bids))  # rejected

# Event time.
corrections.watermark(col.price, lateness=1)  # rejected
bids.union(bids).watermark(col.price, lateness=1)  # rejected
bids.watermark(col.price)  # rejected
bids.watermark(col.price, lateness=1, unit="minutes")  # rejected
on_time = bids.watermark(col.price, lateness=1)
per_window = on_time.group_by("auction", window=hr.tumbling(col.price, 10))
wants_append(per_window.agg(price=col.price))  # rejected
wants_append(
    on_time.group_by(window=hr.session(col.price, 10), emit="updates").agg(n=hr.count())  # rejected
)
on_time.group_by(window=hr.session(col.price, 10), emit="always")  # rejected
on_time.group_by("auction", hour=hr.tumbling(col.price, 10))  # rejected
on_time.union(bids).first_within(10, by="auction")  # rejected

# Order and folds.
bids.sort()  # rejected
bids.sort("price", lifetime="day")  # rejected
bids.sort_by(price)  # rejected
known.union(bids).sort()  # rejected
known.sort_by(category, lifetime="tick").fold(0, lambda n, row: n + row.price)  # rejected
bids.fold(0.0, lambda total, bid: total + bid.cost)  # rejected
bids.reduce(lambda one, other: one.price)  # rejected
bids.fold(0.0, lambda total, bid: total + bid.price, lifetime="static", commutative="yes")  # rejected
bids.lattice_fold(max)  # rejected
wants_order(known.sort().union(known))  # rejected

# Recursion.
flow.feedback(Bid).close(corrections)  # rejected
flow.feedback(Bid).close(bids.difference(bids))  # rejected
flow.feedback(Bid).close(auctions)  # rejected
flow.feedback(Bid, changes=True).close(auctions)  # rejected
flow.fixpoint(lambda found: found.map(to_auction), bids)  # rejected
bids.close(bids)  # rejected

# Guards.
bids.defer_tick(nondet=True)  # rejected
bids.defer_tick("because")  # rejected

# The flow.
hr.Flow("misuses", ticks="mine")  # rejected
flow.source("more", Bid, bounded="yes")  # rejected
flow.source("more")  # rejected
flow.sink("groups", bids.group_by("auction"))  # rejected
flow.sink("bids")  # rejected
flow.sink(bids)  # rejected
rows: hr.Stream[Auction] = bids  # rejected
