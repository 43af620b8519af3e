"""Steps: the generated Python of each operator. Importing the package registers them."""

from headrace.engine.steps import (
    distinct,
    event_time,
    fold,
    in_order,
    inner_join,
    lattice,
    partials,
    semi_anti_join,
    sequences,
    sessions,
    sort,
    state_expiry,
    temporal_filter,
    ticks,
    upsert,
)

__all__ = [
    "distinct",
    "event_time",
    "fold",
    "in_order",
    "inner_join",
    "lattice",
    "partials",
    "semi_anti_join",
    "sequences",
    "sessions",
    "sort",
    "state_expiry",
    "temporal_filter",
    "ticks",
    "upsert",
]
