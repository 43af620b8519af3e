"""Batch runs of a whole flow over bounded input: native DataFrames, and subplans on the in-process engine."""
