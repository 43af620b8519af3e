"""Joins and difference: pairs of rows with equal keys, and rows with or without a match."""

from headrace.operators.join import loop_steps, steps

__all__ = ["loop_steps", "steps"]
