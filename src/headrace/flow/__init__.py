"""Public API for building flows: flows, streams, signals, operators."""
