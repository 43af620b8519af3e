"""Sources: modules that are read from."""
