"""Steps: the generated Python of each operator. Importing the package registers them."""

from headrace.engine.steps import (
    event_time,
    partials,
    sessions,
    state_expiry,
    temporal_filter,
    upsert,
)

__all__ = [
    "event_time",
    "partials",
    "sessions",
    "state_expiry",
    "temporal_filter",
    "upsert",
]
