"""Loops within a tick: evaluation of cyclic operators to a fixpoint."""
