"""Right uses, with the types that checkers must find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, assert_type

import penstock as ps
from penstock import col
from penstock.lattice import Max


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


flow = ps.Flow("right uses")
bids = flow.source("bids", Bid)
auctions = flow.source("auctions", Auction, bounded=True)
people = flow.source("people", Person)
numbers = flow.source("numbers", int)
corrections = flow.table("corrections", Bid)

assert_type(bids, ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(auctions, ps.Stream[Auction, ps.Bounded, ps.Append, ps.Ordered])
assert_type(people, ps.Stream[Person, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(numbers, ps.Stream[int, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(corrections, ps.Table[Bid])

# Row by row keeps what is known of the stream.
assert_type(bids.map(halve), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(
    bids.map(lambda bid: bid.price, returns=float), ps.Stream[float, ps.Unbounded, ps.Append, ps.Ordered]
)
assert_type(bids.flat_map(words), ps.Stream[str, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(bids.filter(is_dear), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(bids.filter(is_long), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(
    auctions.filter((col.category > 3) & ~col.id.is_in(1, 2)),
    ps.Stream[Auction, ps.Bounded, ps.Append, ps.Ordered],
)
assert_type(corrections.filter(col.price > 3), ps.Stream[Bid, ps.Unbounded, ps.Changes, ps.NoOrder])

# Columns: the class is what `into` says, and anything without it.
assert_type(bids.select("auction", "price", into=Best), ps.Stream[Best, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(bids.select(double=col.price * 2), ps.Stream[Any, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(people.select(name=col.name, into=col.age), ps.Stream[Any, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(
    bids.with_columns(price=col.price * 2, into=Bid), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered]
)

# The meet of two streams: bounded if both are, append if both are.
assert_type(bids.union(corrections), ps.Stream[Bid, ps.Unbounded, ps.Append | ps.Changes, ps.NoOrder])
assert_type(auctions.union(auctions), ps.Stream[Auction, ps.Bounded, ps.Append, ps.NoOrder])
unbounded: ps.Stream[Bid] = bids.union(corrections)
assert_type(bids.difference(corrections), ps.Stream[Bid, ps.Unbounded, ps.Changes, ps.NoOrder])

# Joins: semi and anti keep the left rows; left and anti take rows back.
assert_type(
    bids.join(auctions, on=col.auction == col.id, into=Offer),
    ps.Stream[Offer, ps.Unbounded | ps.Bounded, ps.Append, ps.NoOrder],
)
assert_type(
    bids.join(auctions, on=ps.left.auction == ps.right.id, how="semi"),
    ps.Stream[Bid, ps.Unbounded | ps.Bounded, ps.Append, ps.NoOrder],
)
assert_type(
    bids.join(auctions, on=ps.left.auction == ps.right.id, how="anti"),
    ps.Stream[Bid, ps.Unbounded | ps.Bounded, ps.Changes, ps.NoOrder],
)
assert_type(
    bids.join(corrections, on=["auction", "bidder"], how="left", suffix="_corrected"),
    ps.Stream[Any, ps.Unbounded, ps.Changes, ps.NoOrder],
)

# Groups.
best = bids.group_by("auction").agg(price=ps.max(col.price), into=Best)
assert_type(best, ps.Table[Best])
assert_type(bids.group_by(high=col.price > 10).agg(rows=ps.count()), ps.Table[Any])
assert_type(best.top_k(3, by=[col.price.desc(), col.auction]), ps.Table[Best])
assert_type(bids.distinct(), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.NoOrder])

# Time and recursion.
assert_type(auctions.defer_tick(), ps.Stream[Auction, ps.Unbounded, ps.Append, ps.Ordered])
again = flow.feedback(Bid)
again.close(bids.union(again.map(halve).filter(is_dear)))
later = flow.feedback(Bid, changes=True)
later.close(bids.difference(later).defer_tick(nondet="what came before counts"))
assert_type(later.filter(is_dear), ps.Stream[Bid, ps.Unbounded, ps.Changes, ps.NoOrder])
assert_type(
    flow.fixpoint(lambda found: found.map(halve).filter(is_dear), bids),
    ps.Stream[Bid, ps.Unbounded, ps.Append, ps.NoOrder],
)


def halved(found: ps.Table[Bid]) -> ps.Table[Bid]:
    return found.map(halve)


assert_type(flow.fixpoint(halved, corrections), ps.Table[Bid])
assert_type(
    flow.fixpoint(lambda found: found.map(halve).difference(bids), bids),
    ps.Stream[Bid, ps.Unbounded, ps.Append | ps.Changes, ps.NoOrder],
)

# Order and folds.
assert_type(auctions.sort(), ps.Stream[Auction, ps.Bounded, ps.Append, ps.Ordered])
assert_type(auctions.sort([col.id.desc(), "category"]), ps.Stream[Auction, ps.Bounded, ps.Append, ps.Ordered])
assert_type(
    bids.sort_by(lambda bid: bid.price, lifetime="tick", nondet="a page at a time"),
    ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered],
)
assert_type(bids.unique(), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(
    numbers.scan(0, lambda total, n: (total + n, str(n))), ps.Stream[str, ps.Unbounded, ps.Append, ps.Ordered]
)
total = numbers.fold(0, lambda total, n: total + n)
flow.sink("total", total.filter(lambda n: n > 3))
flow.sink("reached", numbers.lattice_fold(Max()).at_least(3))


# What is known more of goes where less is asked.
def any_bids(stream: ps.Stream[Bid]) -> None:
    flow.sink("any", stream)


def growing(stream: ps.Stream[Bid, ps.Unbounded, ps.Append]) -> None:
    flow.sink("growing", stream)


any_bids(bids)
any_bids(corrections)
growing(bids)
growing(bids.distinct())
growing(again)

engine = ps.Engine(flow)
changes = engine.tick(bids=[Bid(1, "ann", 2.0)], corrections=[ps.insert(Bid(1, "ann", 3.0))])["any"]
assert_type(changes[0].weight, int)
report: str = ps.explain(flow)

# Event time.
on_time = bids.watermark(col.price, lateness=1, late="late")
assert_type(on_time, ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(on_time.late(), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(on_time.first_within(10, by="auction"), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
windows = ps.tumbling(col.price, 10)
closed = on_time.group_by("auction", window=windows, big=col.price > 100).agg(n=ps.count())
assert_type(closed, ps.Stream[Any, ps.Unbounded, ps.Append, ps.Ordered])
updated = on_time.group_by(window=windows, emit="updates").agg(n=ps.count())
assert_type(updated, ps.Stream[Any, ps.Unbounded, ps.Changes, ps.NoOrder])

# Rows, several streams, ticks.
why = "as it comes"
assert_type(bids.zip(numbers), ps.Stream[Any, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(bids.chain(auctions.map(lambda a: Bid(a.id, "", 0.0), returns=Bid)).flow, ps.Flow)
assert_type(bids.inspect(print), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(corrections.every_tick(nondet=why), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.NoOrder])
assert_type(corrections.persist(), ps.Table[Bid])
assert_type(bids.union(bids).assume_ordered(nondet=why), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(bids.defer_signal(numbers, nondet=why), ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
low, high = bids.partition(lambda bid: int(bid.price > 3), 2)
assert_type(low, ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered])
assert_type(
    bids.demux(col.bidder, ["ann", "bob"])["ann"], ps.Stream[Bid, ps.Unbounded, ps.Append, ps.Ordered]
)
assert_type(flow.null(Bid), ps.Stream[Bid, ps.Bounded, ps.Append, ps.Ordered])
assert_type(
    bids.join(corrections, on="auction", how="full", suffix="_c"),
    ps.Stream[Any, ps.Unbounded, ps.Changes, ps.NoOrder],
)
