"""Loops within a tick: evaluation of cyclic operators to a fixpoint."""

from headrace.engine.loops import feedback, semi_naive

__all__ = ["feedback", "semi_naive"]
