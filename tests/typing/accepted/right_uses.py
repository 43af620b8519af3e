"""Right uses, with the types that checkers must find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, assert_type

import headrace as hr
from headrace import col
from headrace.lattice import Max


class Bid(NamedTuple):
    auction: int
    bidder: str
    price: float


class Auction(NamedTuple):
    id: int
    category: int


@dataclass(frozen=True)
class Person:
    name: str
    age: int


class Best(NamedTuple):
    auction: int
    price: float


class Offer(NamedTuple):
    auction: int
    bidder: str
    price: float
    id: int
    category: int


def halve(bid: Bid) -> Bid:
    return bid._replace(price=bid.price / 2)


def words(bid: Bid) -> list[str]:
    return bid.bidder.split()


def is_dear(bid: Bid) -> bool:
    return bid.price > 100


def is_long(text: object) -> bool:
    return len(str(text)) > 10


flow = hr.Flow("right uses")
bids = flow.source("bids", Bid)
auctions = flow.source("auctions", Auction, bounded=True)
people = flow.source("people", Person)
numbers = flow.source("numbers", int)
corrections = flow.table("corrections", Bid)

assert_type(bids, hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(auctions, hr.Stream[Auction, hr.Bounded, hr.Append, hr.Ordered])
assert_type(people, hr.Stream[Person, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(numbers, hr.Stream[int, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(corrections, hr.Table[Bid])

# Row by row keeps what is known of the stream.
assert_type(bids.map(halve), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(
    bids.map(lambda bid: bid.price, returns=float), hr.Stream[float, hr.Unbounded, hr.Append, hr.Ordered]
)
assert_type(bids.flat_map(words), hr.Stream[str, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(bids.filter(is_dear), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(bids.filter(is_long), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(
    auctions.filter((col.category > 3) & ~col.id.is_in(1, 2)),
    hr.Stream[Auction, hr.Bounded, hr.Append, hr.Ordered],
)
assert_type(corrections.filter(col.price > 3), hr.Stream[Bid, hr.Unbounded, hr.Changes, hr.NoOrder])

# Columns: the class is what `into` says, and anything without it.
assert_type(bids.select("auction", "price", into=Best), hr.Stream[Best, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(bids.select(double=col.price * 2), hr.Stream[Any, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(people.select(name=col.name, into=col.age), hr.Stream[Any, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(
    bids.with_columns(price=col.price * 2, into=Bid), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered]
)

# The meet of two streams: bounded if both are, append if both are.
assert_type(bids.union(corrections), hr.Stream[Bid, hr.Unbounded, hr.Append | hr.Changes, hr.NoOrder])
assert_type(auctions.union(auctions), hr.Stream[Auction, hr.Bounded, hr.Append, hr.NoOrder])
unbounded: hr.Stream[Bid] = bids.union(corrections)
assert_type(bids.difference(corrections), hr.Stream[Bid, hr.Unbounded, hr.Changes, hr.NoOrder])

# Joins: semi and anti keep the left rows; left and anti take rows back.
assert_type(
    bids.join(auctions, on=col.auction == col.id, into=Offer),
    hr.Stream[Offer, hr.Unbounded | hr.Bounded, hr.Append, hr.NoOrder],
)
assert_type(
    bids.join(auctions, on=hr.left.auction == hr.right.id, how="semi"),
    hr.Stream[Bid, hr.Unbounded | hr.Bounded, hr.Append, hr.NoOrder],
)
assert_type(
    bids.join(auctions, on=hr.left.auction == hr.right.id, how="anti"),
    hr.Stream[Bid, hr.Unbounded | hr.Bounded, hr.Changes, hr.NoOrder],
)
assert_type(
    bids.join(corrections, on=["auction", "bidder"], how="left", suffix="_corrected"),
    hr.Stream[Any, hr.Unbounded, hr.Changes, hr.NoOrder],
)

# Groups.
best = bids.group_by("auction").agg(price=hr.max(col.price), into=Best)
assert_type(best, hr.Table[Best])
assert_type(bids.group_by(high=col.price > 10).agg(rows=hr.count()), hr.Table[Any])
assert_type(best.top_k(3, by=[col.price.desc(), col.auction]), hr.Table[Best])
assert_type(bids.distinct(), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.NoOrder])

# Time and recursion.
assert_type(auctions.defer_tick(), hr.Stream[Auction, hr.Unbounded, hr.Append, hr.Ordered])
again = flow.feedback(Bid)
again.close(bids.union(again.map(halve).filter(is_dear)))
later = flow.feedback(Bid, changes=True)
later.close(bids.difference(later).defer_tick(nondet="what came before counts"))
assert_type(later.filter(is_dear), hr.Stream[Bid, hr.Unbounded, hr.Changes, hr.NoOrder])
assert_type(
    flow.fixpoint(lambda found: found.map(halve).filter(is_dear), bids),
    hr.Stream[Bid, hr.Unbounded, hr.Append, hr.NoOrder],
)


def halved(found: hr.Table[Bid]) -> hr.Table[Bid]:
    return found.map(halve)


assert_type(flow.fixpoint(halved, corrections), hr.Table[Bid])
assert_type(
    flow.fixpoint(lambda found: found.map(halve).difference(bids), bids),
    hr.Stream[Bid, hr.Unbounded, hr.Append | hr.Changes, hr.NoOrder],
)

# Order and folds.
assert_type(auctions.sort(), hr.Stream[Auction, hr.Bounded, hr.Append, hr.Ordered])
assert_type(auctions.sort([col.id.desc(), "category"]), hr.Stream[Auction, hr.Bounded, hr.Append, hr.Ordered])
assert_type(
    bids.sort_by(lambda bid: bid.price, lifetime="tick", nondet="a page at a time"),
    hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered],
)
assert_type(bids.unique(), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(
    numbers.scan(0, lambda total, n: (total + n, str(n))), hr.Stream[str, hr.Unbounded, hr.Append, hr.Ordered]
)
total = numbers.fold(0, lambda total, n: total + n)
flow.sink("total", total.filter(lambda n: n > 3))
flow.sink("reached", numbers.lattice_fold(Max()).at_least(3))


# What is known more of goes where less is asked.
def any_bids(stream: hr.Stream[Bid]) -> None:
    flow.sink("any", stream)


def growing(stream: hr.Stream[Bid, hr.Unbounded, hr.Append]) -> None:
    flow.sink("growing", stream)


any_bids(bids)
any_bids(corrections)
growing(bids)
growing(bids.distinct())
growing(again)

engine = hr.Engine(flow)
changes = engine.tick(bids=[Bid(1, "ann", 2.0)], corrections=[hr.insert(Bid(1, "ann", 3.0))])["any"]
assert_type(changes[0].weight, int)
report: str = hr.explain(flow)

# Event time.
on_time = bids.watermark(col.price, lateness=1, late="late")
assert_type(on_time, hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(on_time.late(), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(on_time.first_within(10, by="auction"), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
windows = hr.tumbling(col.price, 10)
closed = on_time.group_by("auction", window=windows, big=col.price > 100).agg(n=hr.count())
assert_type(closed, hr.Stream[Any, hr.Unbounded, hr.Append, hr.Ordered])
updated = on_time.group_by(window=windows, emit="updates").agg(n=hr.count())
assert_type(updated, hr.Stream[Any, hr.Unbounded, hr.Changes, hr.NoOrder])

# Rows, several streams, ticks.
why = "as it comes"
assert_type(bids.zip(numbers), hr.Stream[Any, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(bids.chain(auctions.map(lambda a: Bid(a.id, "", 0.0), returns=Bid)).flow, hr.Flow)
assert_type(bids.inspect(print), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(corrections.every_tick(nondet=why), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.NoOrder])
assert_type(corrections.persist(), hr.Table[Bid])
assert_type(bids.union(bids).assume_ordered(nondet=why), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(bids.defer_signal(numbers, nondet=why), hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
low, high = bids.partition(lambda bid: int(bid.price > 3), 2)
assert_type(low, hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered])
assert_type(
    bids.demux(col.bidder, ["ann", "bob"])["ann"], hr.Stream[Bid, hr.Unbounded, hr.Append, hr.Ordered]
)
assert_type(flow.null(Bid), hr.Stream[Bid, hr.Bounded, hr.Append, hr.Ordered])
assert_type(
    bids.join(corrections, on="auction", how="full", suffix="_c"),
    hr.Stream[Any, hr.Unbounded, hr.Changes, hr.NoOrder],
)
