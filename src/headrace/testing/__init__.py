"""Test tools for flows: tick tables, claims, an oracle, and checks of pull-stream modules.

To be imported separately: `headrace.testing.strategies`, which needs Hypothesis; `headrace.testing.compute`,
a simulation of served views.
"""

from headrace.analysis.claims import check_claims, check_lattice
from headrace.testing.oracle import answers
from headrace.testing.pull import (
    ModuleFailed,
    RandomRuntime,
    SinkCase,
    SourceCase,
    VirtualRuntime,
    check_sink,
    check_source,
    check_transformer,
    reference_sink,
    reference_source,
    reference_transformer,
)
from headrace.testing.tick_tables import Backend, InProcess, check_flow, check_ticks, show

__all__ = [
    "Backend",
    "InProcess",
    "ModuleFailed",
    "RandomRuntime",
    "SinkCase",
    "SourceCase",
    "VirtualRuntime",
    "answers",
    "check_claims",
    "check_flow",
    "check_lattice",
    "check_sink",
    "check_source",
    "check_ticks",
    "check_transformer",
    "reference_sink",
    "reference_source",
    "reference_transformer",
    "show",
]
