"""Loops within a tick: evaluation of cyclic operators to a fixpoint."""

from headrace.engine.loops import feedback, row_functions, semi_anti_join, semi_naive, union

__all__ = ["feedback", "row_functions", "semi_anti_join", "semi_naive", "union"]
