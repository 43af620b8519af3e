"""Steps: how each operator is written as Python. Importing the package registers the step of each."""

from penstock.engine.steps import (
    aggregate,
    distinct,
    event_time,
    fold,
    forgetting,
    in_order,
    inner_join,
    lattice,
    partials,
    presence,
    row_functions,
    sequences,
    sessions,
    sort,
    ticks,
)

__all__ = [
    "aggregate",
    "distinct",
    "event_time",
    "fold",
    "forgetting",
    "in_order",
    "inner_join",
    "lattice",
    "partials",
    "presence",
    "row_functions",
    "sequences",
    "sessions",
    "sort",
    "ticks",
]
