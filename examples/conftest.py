"""Examples hold doctests, but for files that only a run of their pipeline can import."""

collect_ignore = ["pipeline/transformations"]
