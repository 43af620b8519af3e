"""Steps: the generated Python of each operator. Importing the package registers them."""

from headrace.engine.steps import (
    aggregate,
    distinct,
    event_time,
    inner_join,
    over,
    partials,
    semi_anti_join,
    sequences,
    sessions,
    sort,
    state_expiry,
    temporal_filter,
    upsert,
    value_accumulators,
)

__all__ = [
    "aggregate",
    "distinct",
    "event_time",
    "inner_join",
    "over",
    "partials",
    "semi_anti_join",
    "sequences",
    "sessions",
    "sort",
    "state_expiry",
    "temporal_filter",
    "upsert",
    "value_accumulators",
]
