"""Conformance: files of cases that say what a flow must answer, and a runner for them.

`run_file(kind, path)` runs a file and gives an outcome per case; `penstock
conform KIND FILE` prints them. A kind of cases is a `Kind`: how a case is read,
and how it is run.

Cases name functions by the text of a Python lambda. The text is looked up in
`functions.FUNCTIONS` and never run.
"""

from penstock.testing.conformance.kind import Kind, Outcome
from penstock.testing.conformance.runner import KINDS, run_file

__all__ = ["KINDS", "Kind", "Outcome", "run_file"]
