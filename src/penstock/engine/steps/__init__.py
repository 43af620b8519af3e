"""How each operator is written as Python: one step per operator class."""

from penstock.engine.steps import (
    aggregate,
    borders,
    distinct,
    event_time,
    feedback,
    fold,
    grid_windows,
    in_order,
    inner_join,
    lattice,
    presence,
    row_functions,
    rows,
    sequences,
    sort,
    ticks,
    top_k,
)
from penstock.engine.steps.step import Step, step_for

__all__ = [
    "Step",
    "aggregate",
    "borders",
    "distinct",
    "event_time",
    "feedback",
    "fold",
    "grid_windows",
    "in_order",
    "inner_join",
    "lattice",
    "presence",
    "row_functions",
    "rows",
    "sequences",
    "sort",
    "step_for",
    "ticks",
    "top_k",
]
