"""Bridges: pull-streams from and to Python's iterators and queues."""
