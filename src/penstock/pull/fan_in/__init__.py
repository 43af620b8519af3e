"""Fan-in: sources that read from several. One file each."""
