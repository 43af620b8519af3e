"""Queries about what auctions close at: aggregates of aggregates, and the first rows of groups."""

from __future__ import annotations

from typing import NamedTuple

import headrace as hr
from examples.nexmark.queries.query import AnyStream, Site, query
from headrace import col


class CategoryAverage(NamedTuple):
    category: int
    average: float


@query(
    "What do auctions of each category close at, on average?",
    sql="""
SELECT category, avg(price) AS average
FROM (
    SELECT a.id, a.category, max(b.price) AS price
    FROM auctions a JOIN bids b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.category
)
GROUP BY category
""",
)
def q4(site: Site) -> AnyStream:
    return site.final_prices.group_by("category").agg(
        average=hr.mean(col.price), into=CategoryAverage, name="averages"
    )


@query(
    "What did the last ten auctions of each seller close at, on average?",
    sql="""
SELECT seller, avg(price) AS average
FROM (
    SELECT a.id, a.seller, a.expires, max(b.price) AS price
    FROM auctions a JOIN bids b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
    GROUP BY a.id, a.seller, a.expires
    QUALIFY row_number() OVER (PARTITION BY a.seller ORDER BY a.expires DESC, a.id DESC) <= 10
)
GROUP BY seller
""",
    differs="The last ten auctions are those that expire last. Each seller has one answer, which changes. "
    "Flink's suite asks for an average over preceding rows, and can't run it: its input retracts rows.",
)
def q6(site: Site) -> AnyStream:
    latest = site.final_prices.top_k(10, by=[col.expires.desc(), col.id.desc()], per="seller")
    return latest.group_by("seller").agg(average=hr.mean(col.price), name="averages of sellers")


@query(
    "Which bid wins each auction?",
    sql="""
SELECT a.id, a.item, a.description, a.initial_bid, a.reserve,
       a.date_time, a.expires, a.seller, a.category,
       b.auction, b.bidder, b.price, b.date_time AS date_time_of_bid, b.extra
FROM auctions a JOIN bids b ON a.id = b.auction
WHERE b.date_time BETWEEN a.date_time AND a.expires
QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.bidder) = 1
""",
)
def q9(site: Site) -> AnyStream:
    best = site.bids_in_time.top_k(1, by=[col.price.desc(), col.date_time, col.bidder], per="id")
    return best.select(
        "id", "item", "description", "initial_bid", "reserve",
        date_time=col.date_time_of_auction, expires=col.expires, seller=col.seller, category=col.category,
        auction=col.auction, bidder=col.bidder, price=col.price, date_time_of_bid=col.date_time,
        extra=col.extra,
    )  # fmt: skip
