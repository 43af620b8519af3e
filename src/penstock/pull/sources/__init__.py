"""Sources: modules that are read from. One file each."""
