"""How each operator is written as Python: one step per operator class."""

from penstock.engine.steps import aggregate, borders, distinct, feedback, inner_join, presence, rows, top_k
from penstock.engine.steps.step import Step, step_for

__all__ = [
    "Step",
    "aggregate",
    "borders",
    "distinct",
    "feedback",
    "inner_join",
    "presence",
    "rows",
    "step_for",
    "top_k",
]
