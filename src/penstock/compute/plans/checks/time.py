"""Checks of operators of event time."""
