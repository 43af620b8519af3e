"""The workloads of `benches/peers.py` as each library does them: a module per library, a function per work.

A module is imported only where its library is installed. A function that is missing says that the
library has no form for that workload.
"""
