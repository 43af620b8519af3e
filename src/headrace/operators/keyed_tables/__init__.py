"""Keyed tables: the latest row of each key, its history, and the records that do not fit."""
