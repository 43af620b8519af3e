"""The same queries as SQL, for a database that recomputes the answer from all input so far."""

from __future__ import annotations

SQL: dict[str, str] = {
    "q3": """
        SELECT p.name, p.city, p.state, a.id AS auction
        FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
    """,
    "q4": """
        SELECT category, avg(price) AS average
        FROM (
            SELECT a.id, a.category, max(b.price) AS price
            FROM auctions a JOIN bids b ON a.id = b.auction
            WHERE b.date_time BETWEEN a.date_time AND a.expires
            GROUP BY a.id, a.category
        )
        GROUP BY category
    """,
    "q6": """
        SELECT seller, avg(price) AS average
        FROM (
            SELECT a.id, a.seller, max(b.price) AS price
            FROM auctions a JOIN bids b ON a.id = b.auction
            WHERE b.date_time BETWEEN a.date_time AND a.expires
            GROUP BY a.id, a.seller
        )
        GROUP BY seller
    """,
    "q20": """
        SELECT
            b.auction, b.bidder, b.price, b.channel, b.url, b.date_time,
            a.item, a.description, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller, a.category
        FROM bids b JOIN auctions a ON b.auction = a.id
        WHERE a.category = 10
    """,
}
