"""Penstock: incremental streaming dataflow for Python.

Write a flow once; know before it runs what streams, what must wait and why; run
it in this process or on Spark. The answers are the same.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.expr.annotations import Int32
from penstock.expr.build import (
    coalesce,
    col,
    concat,
    date,
    greatest,
    hash,
    least,
    left,
    lit,
    right,
    timestamp,
    when,
)
from penstock.expr.tree import Expr
from penstock.expr.types import DecimalType
from penstock.flow.aggregates import collect, count, count_distinct, first, last, max, mean, min, sum
from penstock.flow.flow import Flow
from penstock.flow.markers import Append, Bounded, Changes, NoOrder, Ordered, Unbounded
from penstock.flow.stream import Stream, Table

if TYPE_CHECKING:
    from penstock import io, lattice, spark
    from penstock.analysis import explain
    from penstock.engine.change import Change, delete, insert
    from penstock.engine.engine import Engine
    from penstock.engine.run import arun, run
    from penstock.flow.signal import Signal, lift
    from penstock.flow.signal_functions import crossed, diff, ewm, lag, moving_mean, timer
    from penstock.flow.windows import session, sliding, tumbling

__version__ = "0.1.0"

_LATER = {
    "Change": "penstock.engine.change",
    "Engine": "penstock.engine.engine",
    "Signal": "penstock.flow.signal",
    "arun": "penstock.engine.run",
    "crossed": "penstock.flow.signal_functions",
    "delete": "penstock.engine.change",
    "diff": "penstock.flow.signal_functions",
    "ewm": "penstock.flow.signal_functions",
    "explain": "penstock.analysis",
    "insert": "penstock.engine.change",
    "lag": "penstock.flow.signal_functions",
    "lift": "penstock.flow.signal",
    "moving_mean": "penstock.flow.signal_functions",
    "run": "penstock.engine.run",
    "session": "penstock.flow.windows",
    "sliding": "penstock.flow.windows",
    "timer": "penstock.flow.signal_functions",
    "tumbling": "penstock.flow.windows",
}
_SUBPACKAGES = ("io", "lattice", "spark", "testing", "view")


def __getattr__(name: str) -> Any:
    # What most flows do not need is imported when it is first asked for: engines, signals, windows.
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"penstock.{name}")
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


__all__ = [
    "Append",
    "Bounded",
    "Change",
    "Changes",
    "DecimalType",
    "Engine",
    "Expr",
    "Flow",
    "Int32",
    "NoOrder",
    "Ordered",
    "PenstockError",
    "Signal",
    "Stream",
    "Table",
    "Unbounded",
    "arun",
    "coalesce",
    "col",
    "collect",
    "concat",
    "count",
    "count_distinct",
    "crossed",
    "date",
    "delete",
    "diff",
    "ewm",
    "explain",
    "first",
    "greatest",
    "hash",
    "insert",
    "io",
    "lag",
    "last",
    "lattice",
    "least",
    "left",
    "lift",
    "lit",
    "max",
    "mean",
    "min",
    "moving_mean",
    "right",
    "run",
    "session",
    "sliding",
    "spark",
    "sum",
    "timer",
    "timestamp",
    "tumbling",
    "when",
]
