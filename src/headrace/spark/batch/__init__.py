"""Batch runs of a whole flow over bounded input: native DataFrames and in-process subplans."""
