"""Fan-out: one upstream for several. One file each."""
