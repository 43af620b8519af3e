"""Queries that count and sum up the bids of a day."""

from __future__ import annotations

import headrace as hr
from examples.nexmark.queries.query import AnyStream, Site, query
from headrace import col

DAY = col.date_time.cast(str).substring(1, 10)
MINUTE = col.date_time.cast(str).substring(12, 5)

LOW = col.price < 10_000
MIDDLE = (col.price >= 10_000) & (col.price < 1_000_000)
HIGH = col.price >= 1_000_000


def where(condition: hr.Expr, value: object) -> hr.Expr:
    """`value` where the condition holds; else null, which aggregates pass over."""
    return hr.when(condition, value).otherwise(None)


BIDS = {
    "total_bids": hr.count(),
    "rank1_bids": hr.count(where(LOW, 1)),
    "rank2_bids": hr.count(where(MIDDLE, 1)),
    "rank3_bids": hr.count(where(HIGH, 1)),
}
BIDDERS_AND_AUCTIONS = {
    "total_bidders": hr.count_distinct(col.bidder),
    "rank1_bidders": hr.count_distinct(where(LOW, col.bidder)),
    "rank2_bidders": hr.count_distinct(where(MIDDLE, col.bidder)),
    "rank3_bidders": hr.count_distinct(where(HIGH, col.bidder)),
    "total_auctions": hr.count_distinct(col.auction),
    "rank1_auctions": hr.count_distinct(where(LOW, col.auction)),
    "rank2_auctions": hr.count_distinct(where(MIDDLE, col.auction)),
    "rank3_auctions": hr.count_distinct(where(HIGH, col.auction)),
}


@query(
    "Bids, bidders and auctions per day, in total and by price range.",
    sql="""
SELECT strftime(date_time, '%Y-%m-%d') AS day,
       count(*) AS total_bids,
       count(*) FILTER (price < 10000) AS rank1_bids,
       count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids
GROUP BY day
""",
)
def q15(site: Site) -> AnyStream:
    return site.bids.group_by(day=DAY).agg(**BIDS, **BIDDERS_AND_AUCTIONS)


@query(
    "The same per channel and day, with the minute of the last bid.",
    sql="""
SELECT channel, strftime(date_time, '%Y-%m-%d') AS day,
       max(strftime(date_time, '%H:%M')) AS minute,
       count(*) AS total_bids,
       count(*) FILTER (price < 10000) AS rank1_bids,
       count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (price >= 1000000) AS rank3_bids,
       count(DISTINCT bidder) AS total_bidders,
       count(DISTINCT bidder) FILTER (price < 10000) AS rank1_bidders,
       count(DISTINCT bidder) FILTER (price >= 10000 AND price < 1000000) AS rank2_bidders,
       count(DISTINCT bidder) FILTER (price >= 1000000) AS rank3_bidders,
       count(DISTINCT auction) AS total_auctions,
       count(DISTINCT auction) FILTER (price < 10000) AS rank1_auctions,
       count(DISTINCT auction) FILTER (price >= 10000 AND price < 1000000) AS rank2_auctions,
       count(DISTINCT auction) FILTER (price >= 1000000) AS rank3_auctions
FROM bids
GROUP BY channel, day
""",
)
def q16(site: Site) -> AnyStream:
    return site.bids.group_by("channel", day=DAY).agg(minute=hr.max(MINUTE), **BIDS, **BIDDERS_AND_AUCTIONS)


@query(
    "The number and prices of bids per auction and day.",
    sql="""
SELECT auction, strftime(date_time, '%Y-%m-%d') AS day,
       count(*) AS total_bids,
       count(*) FILTER (price < 10000) AS rank1_bids,
       count(*) FILTER (price >= 10000 AND price < 1000000) AS rank2_bids,
       count(*) FILTER (price >= 1000000) AS rank3_bids,
       min(price) AS min_price, max(price) AS max_price,
       avg(price) AS avg_price, sum(price)::BIGINT AS sum_price
FROM bids
GROUP BY auction, day
""",
)
def q17(site: Site) -> AnyStream:
    return site.bids.group_by("auction", day=DAY).agg(
        **BIDS,
        min_price=hr.min(col.price),
        max_price=hr.max(col.price),
        avg_price=hr.mean(col.price),
        sum_price=hr.sum(col.price),
    )
