"""Kernels of signal statistics: straight-line code over plain state, in constant time per value."""

from headrace.engine.signals.statistics import differences, downsampling, ewm, moments, ordering
from headrace.engine.signals.statistics.input_tests import InputValues, kernel_of
from headrace.engine.signals.statistics.kernel import (
    SILENT,
    Kernel,
    Variable,
    compile_kernel,
    rename_variables,
)
from headrace.engine.signals.statistics.kernel_runtime import FUNCTIONS

__all__ = [
    "FUNCTIONS",
    "SILENT",
    "InputValues",
    "Kernel",
    "Variable",
    "compile_kernel",
    "differences",
    "downsampling",
    "ewm",
    "kernel_of",
    "moments",
    "ordering",
    "rename_variables",
]
