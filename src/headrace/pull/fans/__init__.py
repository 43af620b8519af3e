"""Fan-in and fan-out: merge several streams, split one into several, and connect streams."""
