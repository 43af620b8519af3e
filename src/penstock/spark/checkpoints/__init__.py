"""Checkpoints from one run to the next: a changed flow, another number of shards."""
