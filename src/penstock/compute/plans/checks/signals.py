"""Checks of operators on signals."""
