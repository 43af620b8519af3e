"""Conformance: files of cases with the expected behaviour of flows, and their runner.

`run_file(kind, path)` runs a file and returns an outcome per case; `penstock conform KIND FILE` prints them.
A `Kind` of cases has a function to read a case, and one to run it.

Cases name functions by the text of a Python lambda. The text is looked up in `case_functions.FUNCTIONS` and
never run.
"""

from penstock.testing.conformance.case_format import Kind, Outcome
from penstock.testing.conformance.runner import KINDS, run_file

__all__ = ["KINDS", "Kind", "Outcome", "run_file"]
