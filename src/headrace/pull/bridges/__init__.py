"""Bridges between pull-streams and Python's iterators and queues."""
