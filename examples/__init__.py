"""Whole flows on real or realistic data, run by the tests on every engine."""
