"""Steps: the generated Python of each operator. Importing the package registers them."""

from penstock.engine.steps import (
    aggregate,
    distinct,
    event_time,
    fold,
    in_order,
    inner_join,
    lattice,
    over,
    partials,
    row_functions,
    semi_anti_join,
    sequences,
    sessions,
    sort,
    state_expiry,
    ticks,
)

__all__ = [
    "aggregate",
    "distinct",
    "event_time",
    "fold",
    "in_order",
    "inner_join",
    "lattice",
    "over",
    "partials",
    "row_functions",
    "semi_anti_join",
    "sequences",
    "sessions",
    "sort",
    "state_expiry",
    "ticks",
]
