"""Steps: the generated Python of each operator. Importing the package registers them."""

from headrace.engine.steps import (
    event_time,
    fold,
    in_order,
    lattice,
    partials,
    sequences,
    sessions,
    sort,
    state_expiry,
    temporal_filter,
    ticks,
    upsert,
)

__all__ = [
    "event_time",
    "fold",
    "in_order",
    "lattice",
    "partials",
    "sequences",
    "sessions",
    "sort",
    "state_expiry",
    "temporal_filter",
    "ticks",
    "upsert",
]
