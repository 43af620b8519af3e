"""Batch runs of a whole flow over bounded input: native DataFrames, with subplans on the in-process engine."""
