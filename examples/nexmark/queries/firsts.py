"""Queries for the first rows of groups: the latest, the highest."""

from __future__ import annotations

from examples.nexmark.queries.query import AnyStream, Site, query
from headrace import col


@query(
    "The last bid of each bidder on each auction.",
    sql="""
SELECT auction, bidder, price, channel, url, date_time, extra
FROM bids
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) = 1
""",
)
def q18(site: Site) -> AnyStream:
    return site.bids.top_k(1, by=col.date_time.desc(), per=["bidder", "auction"])


@query(
    "The ten highest bids on each auction.",
    sql="""
SELECT auction, bidder, price, channel, url, date_time, extra
FROM bids
QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, bidder) <= 10
""",
    differs="Of equal bids, the earlier one goes first. The rank isn't a column: each new bid would renumber "
    "all lower ones.",
)
def q19(site: Site) -> AnyStream:
    return site.bids.top_k(10, by=[col.price.desc(), col.date_time, col.bidder], per="auction")
