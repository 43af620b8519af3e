"""Checks of `penstock doctor`."""
