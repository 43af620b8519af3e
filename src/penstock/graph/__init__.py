"""A flow as frozen data, and pure algorithms on it."""
