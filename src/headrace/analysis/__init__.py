"""Static analysis of flows."""

from headrace.analysis.analysis import Analysis, analyse
from headrace.analysis.coordination_verdicts import Verdict
from headrace.analysis.flow_report import explain
from headrace.analysis.regions import Region

__all__ = ["Analysis", "Region", "Verdict", "analyse", "explain"]
