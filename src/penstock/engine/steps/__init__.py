"""Steps: the generated Python of each operator. Importing the package registers them."""

from penstock.engine.steps import (
    aggregate,
    distinct,
    event_time,
    fold,
    in_order,
    inner_join,
    lattice,
    partials,
    presence,
    row_functions,
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
    "partials",
    "presence",
    "row_functions",
    "sequences",
    "sessions",
    "sort",
    "state_expiry",
    "ticks",
]
