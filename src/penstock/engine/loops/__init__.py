"""Loops within a tick: how the operators of a cycle are run until nothing new is found."""

from penstock.engine.loops import feedback, presence, semi_naive, union

__all__ = ["feedback", "presence", "semi_naive", "union"]
