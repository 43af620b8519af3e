"""Loops within a tick: how the operators of a cycle are run until nothing new is found."""

from penstock.engine.loops import joins, presence, sets, union

__all__ = ["joins", "presence", "sets", "union"]
