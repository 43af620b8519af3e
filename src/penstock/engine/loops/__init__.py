"""Loops within a tick: how the operators of a cycle are run until nothing new is found."""
