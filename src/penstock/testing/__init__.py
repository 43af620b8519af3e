"""Test tools for flows: tick tables, claims, an oracle, and checks of pull-stream modules.

To be imported separately: `penstock.testing.strategies`, which needs Hypothesis; `penstock.testing.compute`,
a simulation of served views.
"""

from penstock.testing import oracle_folds as oracle_folds  # registers folds with the oracle
from penstock.testing import oracle_windows as oracle_windows  # registers window functions
from penstock.testing.claims import check_claims
from penstock.testing.lattice_laws import check_lattice
from penstock.testing.oracle import answers
from penstock.testing.pull import (
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
from penstock.testing.show_results import show
from penstock.testing.tick_tables import Backend, InProcess, check_flow, check_ticks

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
