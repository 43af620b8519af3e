"""Sinks: modules that read. One file each."""
