"""Loops within a tick: how the operators of a cycle are run until nothing new is found."""

from penstock.engine.loops import bag, joins, presence, sets, union

__all__ = ["bag", "joins", "presence", "sets", "union"]
