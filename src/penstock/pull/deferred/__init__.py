"""Deferred: pieces that stand in a pipeline before it is known what they are."""
