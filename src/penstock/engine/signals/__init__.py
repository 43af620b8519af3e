"""Signals in this process: what runs together, compiled, and the order in which it runs."""
