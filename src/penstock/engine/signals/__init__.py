"""In-process execution of signals: compiled parts, and the order in which they run."""
