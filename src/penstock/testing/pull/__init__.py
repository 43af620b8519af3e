"""Tests of pull-streams: virtual time, random order, reference modules, checks of any module."""

from penstock.testing.pull.check_sink import check_sink
from penstock.testing.pull.check_source import check_source
from penstock.testing.pull.check_transformer import check_transformer
from penstock.testing.pull.random_runtime import RandomRuntime
from penstock.testing.pull.reference_sink import Seen, SinkCase, reference_sink
from penstock.testing.pull.reference_source import SourceCase, reference_source
from penstock.testing.pull.reference_transformer import TransformerCase, reference_transformer
from penstock.testing.pull.trial import ModuleFailed
from penstock.testing.pull.virtual_runtime import VirtualRuntime

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
