"""Loops within a tick: evaluation of cyclic operators to a fixpoint."""

from penstock.engine.loops import feedback, presence, semi_naive, union

__all__ = ["feedback", "presence", "semi_naive", "union"]
