"""Static analysis of flows."""

from headrace.analysis.analysis import Analysis, analyse
from headrace.analysis.checks import Verdict
from headrace.analysis.flow_report import explain
from headrace.analysis.strata import Region

__all__ = ["Analysis", "Region", "Verdict", "analyse", "explain"]
