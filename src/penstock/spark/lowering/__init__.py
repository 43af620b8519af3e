"""Expressions as Spark columns, with their Python semantics."""
