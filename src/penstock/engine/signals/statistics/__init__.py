"""Kernels of signal statistics: straight-line code over plain state, in constant time per value."""

from penstock.engine.signals.statistics import ewm, moments, ordering, pace, steps
from penstock.engine.signals.statistics.functions import FUNCTIONS
from penstock.engine.signals.statistics.inputs import Inputs, kernel_of
from penstock.engine.signals.statistics.kernel import SILENT, Kernel, Variable, renamed, stepped

__all__ = [
    "FUNCTIONS",
    "SILENT",
    "Inputs",
    "Kernel",
    "Variable",
    "ewm",
    "kernel_of",
    "moments",
    "ordering",
    "pace",
    "renamed",
    "stepped",
    "steps",
]
