"""Transformers: modules that both read a stream and are read from. One file each."""
