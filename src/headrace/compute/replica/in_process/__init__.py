"""In-process runtime: dataflows and indexes in memory, on one thread."""
