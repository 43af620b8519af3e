"""The runtime on the in-process engine: dataflows and indexes in memory, in one thread."""
