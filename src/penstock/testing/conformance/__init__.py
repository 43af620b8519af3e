"""Conformance: files of cases that say what a flow must answer, and a runner for them.

`run_file(kind, path)` runs a file and gives an outcome per case; `penstock
conform KIND FILE` prints them. A kind of cases is a `Kind`: how a case is read,
and how it is run.

Cases hold functions as Python lambdas of a few nodes, names and methods. They reach
nothing of the process; their time and memory are not bounded.
"""

from penstock.testing.conformance.kind import Kind, Outcome
from penstock.testing.conformance.runner import KINDS, run_file

__all__ = ["KINDS", "Kind", "Outcome", "run_file"]
