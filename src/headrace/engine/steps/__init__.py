"""Steps: the generated Python of each operator. Importing the package registers them."""

from headrace.engine.steps import (
    aggregate,
    distinct,
    fold,
    in_order,
    inner_join,
    lattice,
    over,
    semi_anti_join,
    sequences,
    sort,
    state_expiry,
    ticks,
    value_accumulators,
)

__all__ = [
    "aggregate",
    "distinct",
    "fold",
    "in_order",
    "inner_join",
    "lattice",
    "over",
    "semi_anti_join",
    "sequences",
    "sort",
    "state_expiry",
    "ticks",
    "value_accumulators",
]
