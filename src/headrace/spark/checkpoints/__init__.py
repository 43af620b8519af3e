"""Checkpoint compatibility between runs: a changed flow, or a different number of shards."""
