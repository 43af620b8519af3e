"""Test tools for pull-streams: virtual time, random order, reference modules, checks of any module."""

from headrace.testing.pull.module_checks import ModuleFailed, check_sink, check_source, check_transformer
from headrace.testing.pull.neighbour_modules import (
    Seen,
    SinkCase,
    SourceCase,
    TransformerCase,
    reference_sink,
    reference_source,
    reference_transformer,
)
from headrace.testing.pull.virtual_runtime import RandomRuntime, VirtualRuntime

__all__ = [
    "ModuleFailed",
    "RandomRuntime",
    "Seen",
    "SinkCase",
    "SourceCase",
    "TransformerCase",
    "VirtualRuntime",
    "check_sink",
    "check_source",
    "check_transformer",
    "reference_sink",
    "reference_source",
    "reference_transformer",
]
