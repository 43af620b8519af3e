"""Loops within a tick: how the operators of a cycle are run until nothing new is found."""

from penstock.engine.loops import feedback, presence, union

__all__ = ["feedback", "presence", "union"]
