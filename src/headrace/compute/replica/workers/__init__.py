"""Multi-worker runtime: several processes, each with its share of the rows."""
