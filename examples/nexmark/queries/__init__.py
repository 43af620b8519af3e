"""The queries of Nexmark, q0 to q22. Each is a flow and the SQL that says the same (`query.Query`)."""

from __future__ import annotations

from examples.nexmark.queries.firsts import q18, q19
from examples.nexmark.queries.pairs import q3, q13, q20
from examples.nexmark.queries.prices import CategoryAverage, q4, q6, q9
from examples.nexmark.queries.query import Query, Site, flow_of
from examples.nexmark.queries.rows import q0, q1, q2, q10, q14, q21, q22
from examples.nexmark.queries.statistics import q15, q16, q17
from examples.nexmark.queries.windows import q5, q7, q8, q11, q12

_IN_ORDER = (
    q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11,
    q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22,
)  # fmt: skip

QUERIES: dict[str, Query] = {query.name: query for query in _IN_ORDER}

__all__ = [
    "QUERIES", "CategoryAverage", "Query", "Site", "flow_of",
    "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11",
    "q12", "q13", "q14", "q15", "q16", "q17", "q18", "q19", "q20", "q21", "q22",
]  # fmt: skip
