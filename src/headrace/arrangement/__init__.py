"""Arrangements: state as sorted, immutable batches of columns, kept in spines and probed by many keys at
once.

A spine is a collection of rows with weights (a Z-set), indexed by key: batches whose sizes fall
geometrically, merged a bit per tick. What is called a weight may be several numbers that are added: a group
with its count and its sums is a row whose weights these are. See McSherry et al., "Shared Arrangements" (VLDB
2020).

The package knows columns of Polars, and no flow. It is imported only where state is large.
"""
