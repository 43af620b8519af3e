"""Queries that join: each row of one side with rows of the other."""

from __future__ import annotations

import headrace as hr
from examples.nexmark.queries.query import AnyStream, Site, query
from headrace import col


@query(
    "Who sells in category 10 and lives in Oregon, Idaho or California?",
    sql="""
SELECT p.name, p.city, p.state, a.id AS auction
FROM auctions a JOIN persons p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
""",
)
def q3(site: Site) -> AnyStream:
    persons = site.persons.filter(col.state.is_in("OR", "ID", "CA"))
    auctions = site.auctions.filter(col.category == 10)
    local = auctions.join(persons, on=hr.left.seller == hr.right.id, suffix="_of_person")
    return local.select("name", "city", "state", auction=col.id)


@query(
    "Each bid with the side input's value for its auction.",
    sql="""
SELECT b.auction, b.bidder, b.price, b.date_time, s.value
FROM bids b JOIN side_input s ON b.auction % 10000 = s.key
""",
    differs="The side input is a bounded source, complete after the first tick, so each bid finds all of it.",
)
def q13(site: Site) -> AnyStream:
    bids = site.bids.with_columns(key=col.auction % 10_000)
    return bids.join(site.side_input, on="key").select("auction", "bidder", "price", "date_time", "value")


@query(
    "The bids on auctions of category 10, with their auctions.",
    sql="""
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time, b.extra,
       a.item, a.description, a.initial_bid, a.reserve, a.date_time AS date_time_of_auction, a.expires,
       a.seller, a.category, a.extra AS extra_of_auction
FROM bids b JOIN auctions a ON b.auction = a.id
WHERE a.category = 10
""",
)
def q20(site: Site) -> AnyStream:
    auctions = site.auctions.filter(col.category == 10)
    wide = site.bids.join(auctions, on=col.auction == col.id, suffix="_of_auction")
    return wide.select(
        "auction", "bidder", "price", "channel", "url", "date_time", "extra",
        "item", "description", "initial_bid", "reserve", "date_time_of_auction", "expires",
        "seller", "category", "extra_of_auction",
    )  # fmt: skip
