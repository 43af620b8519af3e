"""TPC-H: a wholesaler's orders, the usual benchmark of analytic queries.

The queries, in `queries/`, are those of the specification (TPC-H 3.0, section 2.4) with its validation
parameters; rows come from `tpchgen-cli`.
"""
