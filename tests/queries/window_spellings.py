"""Frames of windows by distance, by the column that is ordered by, as Spark SQL writes them."""

from __future__ import annotations

DISTANCES = {
    "n": [("1", "2"), ("0", "1")],
    "i": [("1", "2")],
    "x": [("1", "0.5"), ("0.1", "1e0")],
    "f": [("0.1", "0.7"), ("2", "1e0")],
    "d": [("1", "2"), ("0.5", "0.75")],
    "day": [("1", "20"), ("INTERVAL 1 DAY", "INTERVAL 30 DAYS"), ("INTERVAL 1 MONTH", "INTERVAL 2 MONTHS")],
    "local": [("INTERVAL 6 HOURS", "INTERVAL 20 HOURS"), ("INTERVAL 1 MONTH", "INTERVAL 2 MONTHS")],
    "span": [("INTERVAL 6 HOURS", "INTERVAL 1 DAY"), ("INTERVAL '1 06:05' DAY TO MINUTE", "1")],
    "t": [
        ("INTERVAL 1 DAY", "INTERVAL 30 DAYS"),
        ("INTERVAL 1 WEEK", "INTERVAL 3 WEEKS"),
        ("INTERVAL 6 HOURS", "INTERVAL 20 HOURS"),
        ("INTERVAL 10 MINUTES", "INTERVAL 5 MINUTES"),
        ("INTERVAL 300 SECONDS", "INTERVAL 0 SECONDS"),
        ("INTERVAL 300000 MILLISECONDS", "INTERVAL 1 MICROSECOND"),
        ("INTERVAL '1 06' DAY TO HOUR", "INTERVAL '0 06' DAY TO HOUR"),
        ("INTERVAL '1 06:05' DAY TO MINUTE", "INTERVAL '0 06:05' DAY TO MINUTE"),
        ("INTERVAL '1 06:05:00.000001' DAY TO SECOND", "INTERVAL '0 06:05:00' DAY TO SECOND"),
        ("INTERVAL '06:05' HOUR TO MINUTE", "INTERVAL '20:00' HOUR TO MINUTE"),
        ("INTERVAL '06:05:00' HOUR TO SECOND", "INTERVAL '20:00:00' HOUR TO SECOND"),
        ("INTERVAL '5:00' MINUTE TO SECOND", "INTERVAL '10:00' MINUTE TO SECOND"),
        ("INTERVAL 1 MONTH", "INTERVAL 1 MONTH"),
        ("INTERVAL 1 YEAR", "INTERVAL 1 YEAR"),
        ("INTERVAL '0-1' YEAR TO MONTH", "INTERVAL '1-1' YEAR TO MONTH"),
    ],
}
"""By the column that is ordered by: a shorter distance, and any other of the same type."""


def frames(near: str, other: str) -> list[str]:
    """Return frames with each kind of bound."""
    return [
        f"RANGE BETWEEN {start} AND {end}"
        for start, end in (
            (f"{near} PRECEDING", "CURRENT ROW"),
            ("CURRENT ROW", f"{other} FOLLOWING"),
            (f"{near} PRECEDING", f"{other} FOLLOWING"),
            ("UNBOUNDED PRECEDING", f"{other} FOLLOWING"),
            (f"{near} PRECEDING", "UNBOUNDED FOLLOWING"),
            ("UNBOUNDED PRECEDING", f"{near} PRECEDING"),
            (f"{near} FOLLOWING", "UNBOUNDED FOLLOWING"),
            ("CURRENT ROW", "CURRENT ROW"),
            ("CURRENT ROW", "UNBOUNDED FOLLOWING"),
        )
    ]


ORDERS = ("ASC", "DESC", "ASC NULLS LAST", "DESC NULLS FIRST")
