"""Operators on signals: values that change from tick to tick, one file each."""
