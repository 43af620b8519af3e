"""In-process execution of signals: compiled parts, and their order."""
