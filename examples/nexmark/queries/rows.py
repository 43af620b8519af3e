"""Queries that look at one bid at a time: they keep nothing."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, NamedTuple

import headrace as hr
from examples.nexmark.queries.query import AnyStream, Site, query
from headrace import col

EUROS = hr.lit(Decimal("0.908")) * col.price
AS_BID = ("auction", "bidder", "price", "date_time", "extra")


@query(
    "All bids, unchanged: what an engine costs by itself.",
    sql="SELECT auction, bidder, price, date_time, extra FROM bids",
)
def q0(site: Site) -> AnyStream:
    return site.bids.select(*AS_BID)


@query(
    "All bids, with prices in euros.",
    sql="SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bids",
)
def q1(site: Site) -> AnyStream:
    return site.bids.with_columns(price=EUROS).select(*AS_BID)


@query(
    "Which bids are on some chosen auctions?",
    sql="SELECT auction, price FROM bids WHERE auction % 123 = 0",
)
def q2(site: Site) -> AnyStream:
    return site.bids.filter(col.auction % 123 == 0).select("auction", "price")


@query(
    "A log of all bids, in a folder for each minute.",
    sql="""
SELECT auction, bidder, price, date_time, extra,
       strftime(date_time, '%Y-%m-%d') AS dt, strftime(date_time, '%H:%M') AS hm
FROM bids
""",
    differs="The flow computes the two columns that name the folders. A sink of the example, "
    "`examples.nexmark.log`, writes them.",
)
def q10(site: Site) -> AnyStream:
    written = col.date_time.cast(str)
    return site.bids.select(*AS_BID, dt=written.substring(1, 10), hm=written.substring(12, 5))


class BidAtHour(NamedTuple):
    auction: int
    bidder: int
    price: Annotated[Decimal, hr.DecimalType(24, 3)]
    bid_time_type: str
    date_time: datetime
    extra: str


class BidWithCount(NamedTuple):
    auction: int
    bidder: int
    price: Annotated[Decimal, hr.DecimalType(24, 3)]
    bid_time_type: str
    date_time: datetime
    extra: str
    c_counts: int


def with_count(bid: BidAtHour) -> BidWithCount:
    """The function of the user's own that the query is there for."""
    return BidWithCount(*bid, c_counts=bid.extra.count("c"))


@query(
    "Bids of middle size, with the time of day in words and the number of letters c.",
    sql="""
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bids
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
""",
)
def q14(site: Site) -> AnyStream:
    hour = col.date_time.hour()
    at_night = (hour <= 6) | (hour >= 20)
    middle = site.bids.with_columns(
        price=EUROS,
        bid_time_type=hr.when(hour.between(8, 18), "dayTime")
        .when(at_night, "nightTime")
        .otherwise("otherTime"),
    ).filter((col.price > 1_000_000) & (col.price < 50_000_000))
    return middle.select(*BidAtHour._fields, into=BidAtHour).map(with_count)


@query(
    "The number of each bid's channel, from its name or address.",
    sql=r"""
SELECT auction, bidder, price, channel,
       CASE lower(channel)
            WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bids
WHERE regexp_matches(url, '(&|^)channel_id=([^&]*)')
      OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')
""",
    differs="`contains` and `split_part` parse the address instead of a regular expression.",
)
def q21(site: Site) -> AnyStream:
    name, says = col.channel.lower(), col.url.contains("&channel_id=")
    number = (
        hr.when(name == "apple", "0")
        .when(name == "google", "1")
        .when(name == "facebook", "2")
        .when(name == "baidu", "3")
        .otherwise(col.url.split_part("&channel_id=", 2).split_part("&", 1))
    )
    told = site.bids.filter(says | name.is_in("apple", "google", "facebook", "baidu"))
    return told.select("auction", "bidder", "price", "channel", channel_id=number)


@query(
    "The parts of each bid's address.",
    sql="""
SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bids
""",
)
def q22(site: Site) -> AnyStream:
    part = {f"dir{number}": col.url.split_part("/", number + 3) for number in (1, 2, 3)}
    return site.bids.select("auction", "bidder", "price", "channel", **part)
