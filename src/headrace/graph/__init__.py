"""Flows as frozen data, with graph algorithms."""
