"""The queries of Nexmark as text of Spark SQL, each a file that runs as a flow.

headrace run examples/nexmark/spark_sql/q4.sql --source auctions=json:auctions/ --source bids=json:bids/

Query 12 is missing: it counts the bids of spans of the processor's clock, and in SQL a row has no moment at
which it came. Where the flow in Python answers once a window is over, the text has an answer from the first
row of the window on, which changes (q5, q7, q11). Two bids just ten seconds apart are in one session of Spark
(q11).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from examples.nexmark.queries import QUERIES
from headrace.queries.query_file import QueryFile

if TYPE_CHECKING:
    from collections.abc import Mapping

MISSING = frozenset({"q12"})
"""Queries that SQL cannot say."""


def query_files() -> Mapping[str, QueryFile]:
    """Return the file of each query that there is in SQL, by name."""
    folder = Path(__file__).parent
    return {name: QueryFile.read(folder / f"{name}.sql") for name in QUERIES if name not in MISSING}
