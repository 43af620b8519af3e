"""Static analysis of flows."""

from penstock.analysis.analysis import Analysis, analyse
from penstock.analysis.coordination_verdicts import Verdict
from penstock.analysis.flow_report import explain
from penstock.analysis.regions import Region

__all__ = ["Analysis", "Region", "Verdict", "analyse", "explain"]
