"""Transformers: modules that read and are read from. One file each."""
