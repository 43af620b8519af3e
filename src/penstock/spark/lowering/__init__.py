"""Expressions as Spark columns, with the meaning they have in Python."""
