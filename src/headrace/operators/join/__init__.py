"""Joins and difference: pairs of rows with equal keys, and rows by whether they have a partner."""

from headrace.operators.join import loop_steps, steps

__all__ = ["loop_steps", "steps"]
