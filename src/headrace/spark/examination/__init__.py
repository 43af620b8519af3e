"""Checks of `headrace doctor`."""
