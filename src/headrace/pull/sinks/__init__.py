"""Sinks: modules that read a stream and produce a result."""
