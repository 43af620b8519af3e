"""Static analysis of flows."""

from penstock.analysis.analysis import Analysis, analyse
from penstock.analysis.explanation import explain
from penstock.analysis.regions import Region
from penstock.analysis.sink_verdicts import Verdict

__all__ = ["Analysis", "Region", "Verdict", "analyse", "explain"]
