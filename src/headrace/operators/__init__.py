"""Operators, one per file: semantics, facts and checks."""
