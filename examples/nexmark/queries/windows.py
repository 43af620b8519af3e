"""Queries about spans of time. Windows answer once, when the watermark passes their end."""

from __future__ import annotations

from datetime import timedelta

import headrace as hr
from examples.nexmark.queries.query import AnyStream, Site, query
from headrace import col

TEN_SECONDS = timedelta(seconds=10)


@query(
    "Which auctions had the most bids in the last ten seconds? Asked every two seconds.",
    sql="""
SELECT auction, window_start, window_start + INTERVAL 10 SECONDS AS window_end, num
FROM (
    SELECT b.auction, count(*) AS num,
           time_bucket(INTERVAL 2 SECONDS, b.date_time) - h.hop * INTERVAL 2 SECONDS AS window_start
    FROM bids b CROSS JOIN range(5) AS h(hop)
    GROUP BY b.auction, window_start
)
QUALIFY num = max(num) OVER (PARTITION BY window_start)
""",
)
def q5(site: Site) -> AnyStream:
    counts = site.bids_on_time.group_by("auction", window=hr.sliding(col.date_time, TEN_SECONDS, "2s")).agg(
        num=hr.count(), name="bids of windows"
    )
    # A window of ten seconds begins every two: of their beginnings, two seconds hold just one.
    most = counts.group_by(window=hr.tumbling(col.window_start, "2s")).agg(
        most=hr.max(col.num), name="most bids"
    )
    same_window = hr.left.window_start == hr.right.window_start
    hot = counts.join(
        most, on=same_window & (hr.left.num == hr.right.most), suffix="_of_most", name="hottest"
    )
    return hot.select("auction", "window_start", "window_end", "num")


@query(
    "The highest bids of each ten seconds.",
    sql="""
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra
FROM bids b JOIN (
    SELECT max(price) AS highest,
           time_bucket(INTERVAL 10 SECONDS, date_time) + INTERVAL 10 SECONDS AS window_end
    FROM bids
    GROUP BY window_end
) w ON b.price = w.highest
WHERE b.date_time BETWEEN w.window_end - INTERVAL 10 SECONDS AND w.window_end
""",
)
def q7(site: Site) -> AnyStream:
    bids = site.bids_on_time
    windows = bids.group_by(window=hr.tumbling(col.date_time, TEN_SECONDS)).agg(
        highest=hr.max(col.price), name="highest bids"
    )
    # As in the benchmark a bid at the very end of a window, and as high, is shown too.
    of_window = hr.left.date_time.between(hr.right.window_end - TEN_SECONDS, hr.right.window_end)
    shown = bids.join(windows, on=(hr.left.price == hr.right.highest) & of_window, name="bids as high")
    return shown.select("auction", "price", "bidder", "date_time", "extra")


@query(
    "Who has registered and opened an auction within the same ten seconds?",
    sql="""
SELECT p.id, p.name, p.starttime
FROM (
    SELECT DISTINCT id, name, time_bucket(INTERVAL 10 SECONDS, date_time) AS starttime FROM persons
) p JOIN (
    SELECT DISTINCT seller, time_bucket(INTERVAL 10 SECONDS, date_time) AS starttime FROM auctions
) a ON p.id = a.seller AND p.starttime = a.starttime
""",
)
def q8(site: Site) -> AnyStream:
    # The window is a column. No aggregate, so nothing waits for its end; what is kept is forgotten behind it.
    starttime = col.date_time.tumble(TEN_SECONDS)
    persons = site.persons_on_time.select("id", "name", starttime=starttime).distinct()
    sellers = site.auctions_on_time.select("seller", starttime=starttime).distinct()
    both = (hr.left.id == hr.right.seller) & (hr.left.starttime == hr.right.starttime)
    return persons.join(sellers, on=both, suffix="_of_seller").select("id", "name", "starttime")


@query(
    "How many bids did each bidder make in a row, with less than ten seconds between them?",
    sql="""
SELECT bidder, min(date_time) AS window_start, max(date_time) + INTERVAL 10 SECONDS AS window_end,
       count(*) AS bid_count
FROM (
    SELECT bidder, date_time, sum(is_first) OVER (PARTITION BY bidder ORDER BY date_time) AS session
    FROM (
        SELECT bidder, date_time,
               CASE WHEN date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time)
                         < INTERVAL 10 SECONDS THEN 0 ELSE 1 END AS is_first
        FROM bids
    )
)
GROUP BY bidder, session
""",
)
def q11(site: Site) -> AnyStream:
    sessions = site.bids_on_time.group_by("bidder", window=hr.session(col.date_time, TEN_SECONDS))
    return sessions.agg(bid_count=hr.count(), name="sessions")


@query(
    "How many bids did each bidder make in each tick?",
    sql="SELECT bidder, count(*) AS bid_count FROM bids GROUP BY bidder, tick",
    differs="The benchmark counts per ten seconds of processing time. Here a tick is the window: start one "
    "every ten seconds. The answer depends on where ticks end, which `nondet=` declares.",
)
def q12(site: Site) -> AnyStream:
    return site.bids.group_by("bidder").agg(
        bid_count=hr.count(),
        lifetime="tick",
        nondet="a window of processing time is a tick",
        name="bids of ticks",
    )
