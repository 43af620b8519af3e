"""Steps: the generated Python of each operator. Importing the package registers them."""

from headrace.engine.steps import (
    aggregate,
    event_time,
    fold,
    in_order,
    lattice,
    over,
    partials,
    sequences,
    sessions,
    sort,
    state_expiry,
    temporal_filter,
    ticks,
    upsert,
    value_accumulators,
)

__all__ = [
    "aggregate",
    "event_time",
    "fold",
    "in_order",
    "lattice",
    "over",
    "partials",
    "sequences",
    "sessions",
    "sort",
    "state_expiry",
    "temporal_filter",
    "ticks",
    "upsert",
    "value_accumulators",
]
