"""Signal operators, one per file."""
