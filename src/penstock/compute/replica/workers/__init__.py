"""The runtime of several worker processes, each with its share of the rows."""
