"""Calls of scalar functions for random queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from tests.queries import array_spellings, json_spellings, map_spellings
from tests.queries.interval_spellings import INTERVALS
from tests.queries.scalar_spellings import APPROXIMATE, EXACT

_PLAIN = (
    *("i + n", "i - n", "d * i", "x / 4", "n div 7", "n % 7", "-(x)", "abs(d)", "isnan(x)", "floor(d)"),
    *(
        "ceil(CASE WHEN abs(x) < 2e10 THEN x END)",
        "round(d, 1)",
        "i < n",
        "i >= n",
        "x = i",
        "n <=> i",
        "n IN (7, i)",
        "NOT b",
    ),
    *("b AND i > 1", "b OR i > 1", "n BETWEEN i AND 99", "i IS NULL", "s IS NOT NULL", "greatest(i, n)"),
    *("least(n, i)", "s || u", "upper(s)", "lower(s)", "length(s)", "trim(s)", "trim(BOTH 'a' FROM s)"),
    *("substring(s, 2, 3)", "replace(s, 'a', 'bc')", "startswith(s, u)", "endswith(s, u)"),
    *("contains(s, u)", "unix_date(day)", "weekday(day)", "CAST(d AS INT)", "CAST(day AS TIMESTAMP)"),
    *("CASE WHEN b THEN s WHEN i > 2 THEN u END", "struct(i, s).s", "array(i, n)[0]", "size(ss)"),
    *("named_struct('p', n, 'q', array(s))", "coalesce(i, n, 1)", "timestamp_millis(n)", "year(t)"),
    "CASE WHEN i * 0 = 1 THEN raise_error(s) ELSE n END",
    *(
        "pmod(x, 2.5D)",
        "pmod(d, 0.7)",
        "pmod(i, 7)",
        "CAST(x * 0 AS decimal(10,2))",
        "mask(s)",
        "mask(u, 'Q')",
    ),
    *("s ILIKE ANY ('%A%', '_1%', NULL)", "s NOT LIKE ALL ('%1%', '_', u)", "coalesce(r, X'00FF')"),
    *(
        "initcap(u)",
        "try_cast(concat(day, ' 02:30:00 Europe/Berlin') AS timestamp)",
        "to_timestamp('9', 'D')",
    ),
)
"""Calls that other tests hold, and operators."""


_MATHEMATICS = [f"format_string('%.6e', CAST({spelling} AS DOUBLE))" for spelling in APPROXIMATE]
"""With the digits in which they agree with Spark's."""

_OF_VALUES = [
    each
    for group in (*EXACT.values(), INTERVALS)
    for each in group
    if "str_to_map" not in each and not each.startswith("map(")
]
"""Without those that make a map, which Spark does not compare."""

CALLS: Mapping[str, Sequence[str]] = {
    "v": (*_OF_VALUES, *_PLAIN, *_MATHEMATICS),
    "lists": tuple(chain(*array_spellings.EXPRESSIONS.values())),
    "maps": tuple(chain(*map_spellings.EXPRESSIONS.values())),
    "texts": (*json_spellings.PARTS, *json_spellings.READ, *json_spellings.WRITTEN),
}
"""Calls on the columns of each table."""
