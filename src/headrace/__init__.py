"""Headrace: incremental streaming dataflow for Python.

Write a flow once; know before it runs what streams, what must wait and why; run
it in this process or on Spark. The answers are the same.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.version import __version__ as __version__

if TYPE_CHECKING:
    from headrace import functions, io, lattice, spark
    from headrace.analysis import explain
    from headrace.engine.change import Change, delete, delete_key, insert, update
    from headrace.engine.engine import Engine
    from headrace.engine.run import arun, run
    from headrace.errors import HeadraceError
    from headrace.expr.constructors import (
        array,
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
        struct,
        timestamp,
        when,
    )
    from headrace.expr.tree import Expr
    from headrace.expr.types import DecimalType, Float32, Int8, Int16, Int32, TimestampNtz
    from headrace.flow.flow import Flow
    from headrace.flow.signal import Signal, lift
    from headrace.flow.signal_statistics import crossed, diff, ewm, lag, moving_mean, timer
    from headrace.flow.stream import Stream, Table
    from headrace.flow.stream_base import Append, Bounded, Changes, NoOrder, Ordered, Unbounded
    from headrace.functions import aggregate, exists, filter, forall, transform, zip_with
    from headrace.operators.aggregate.collected_values import bit_and, bit_or, bit_xor, collect, string_agg
    from headrace.operators.aggregate.counts import count, count_distinct
    from headrace.operators.aggregate.extremes import first, last, max, min
    from headrace.operators.aggregate.histograms import histogram_numeric
    from headrace.operators.aggregate.moments import corr, covariance, kurtosis, skewness, stddev, variance
    from headrace.operators.aggregate.percentiles import median, mode, percentile
    from headrace.operators.aggregate.sketches import approx_count_distinct, hll_sketch_agg, hll_union_agg
    from headrace.operators.aggregate.sums import mean, sum
    from headrace.operators.over.row_functions import (
        cume_dist,
        dense_rank,
        first_value,
        last_value,
        lead,
        nth_value,
        ntile,
        percent_rank,
        rank,
        row_number,
    )
    from headrace.operators.time_spans import session, sliding, tumbling
    from headrace.queries.query import from_dataframe, sql
    from headrace.queries.query_file import load_flow, save_flow
    from headrace.view.drawing import draw


# Modules are imported when one of their names is first used, so that a command, a worker or a test
# loads only its part of the package. Type checkers read the same names above.
_NAMES_OF = {
    "headrace.analysis": "explain",
    "headrace.engine.change": "Change delete delete_key insert update",
    "headrace.engine.engine": "Engine",
    "headrace.engine.run": "arun run",
    "headrace.errors": "HeadraceError",
    "headrace.expr.types": "DecimalType Float32 Int8 Int16 Int32 TimestampNtz",
    "headrace.expr.constructors": (
        "array coalesce col concat date greatest hash least left lit right struct timestamp when"
    ),
    "headrace.expr.tree": "Expr",
    "headrace.operators.over.row_functions": (
        "first_value last_value lead nth_value cume_dist dense_rank ntile percent_rank rank row_number"
    ),
    "headrace.operators.aggregate.collected_values": "bit_and bit_or bit_xor collect string_agg",
    "headrace.operators.aggregate.counts": "count count_distinct",
    "headrace.operators.aggregate.extremes": "first last max min",
    "headrace.operators.aggregate.histograms": "histogram_numeric",
    "headrace.operators.aggregate.moments": "corr covariance kurtosis skewness stddev variance",
    "headrace.operators.aggregate.percentiles": "median mode percentile",
    "headrace.operators.aggregate.sketches": "approx_count_distinct hll_sketch_agg hll_union_agg",
    "headrace.operators.aggregate.sums": "mean sum",
    "headrace.flow.flow": "Flow",
    "headrace.flow.stream_base": "Append Bounded Changes NoOrder Ordered Unbounded",
    "headrace.flow.signal": "Signal lift",
    "headrace.flow.signal_statistics": "crossed diff ewm lag moving_mean timer",
    "headrace.flow.stream": "Stream Table",
    "headrace.operators.time_spans": "session sliding tumbling",
    "headrace.functions": "aggregate exists filter forall transform zip_with",
    "headrace.queries.query": "from_dataframe sql",
    "headrace.queries.query_file": "load_flow save_flow",
    "headrace.sql_magic": "load_ipython_extension",
    "headrace.view.drawing": "draw",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
_SUBPACKAGES = ("functions", "io", "lattice", "spark", "testing", "view")


_OF_SPARK = {
    "avg": "mean",
    "average": "mean",
    "collect_list": "collect",
    "collect_set": "collect",
    "std": "stddev",
    "var": "variance",
}
"""Names of other libraries for what Headrace calls otherwise."""


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"headrace.{name}")
    if name not in _MODULE_OF:
        from headrace.errors import did_you_mean

        guess = did_you_mean(name, _MODULE_OF)
        if name in _OF_SPARK:
            guess = f"did you mean {_OF_SPARK[name]!r}?"
        elif name in importlib.import_module("headrace.io").__all__:
            guess = f"did you mean headrace.io.{name}?"
        raise AttributeError(f"module 'headrace' has no attribute {name!r}{guess and f'; {guess}'}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]


__all__ = [
    "Append",
    "Bounded",
    "Change",
    "Changes",
    "DecimalType",
    "Engine",
    "Expr",
    "Float32",
    "Flow",
    "HeadraceError",
    "Int8",
    "Int16",
    "Int32",
    "NoOrder",
    "Ordered",
    "Signal",
    "Stream",
    "Table",
    "TimestampNtz",
    "Unbounded",
    "aggregate",
    "approx_count_distinct",
    "array",
    "arun",
    "bit_and",
    "bit_or",
    "bit_xor",
    "coalesce",
    "col",
    "collect",
    "concat",
    "corr",
    "count",
    "count_distinct",
    "covariance",
    "crossed",
    "cume_dist",
    "date",
    "delete",
    "delete_key",
    "dense_rank",
    "diff",
    "draw",
    "ewm",
    "exists",
    "explain",
    "filter",
    "first",
    "first_value",
    "forall",
    "from_dataframe",
    "functions",
    "greatest",
    "hash",
    "histogram_numeric",
    "hll_sketch_agg",
    "hll_union_agg",
    "insert",
    "io",
    "kurtosis",
    "lag",
    "last",
    "last_value",
    "lattice",
    "lead",
    "least",
    "left",
    "lift",
    "lit",
    "load_flow",
    "max",
    "mean",
    "median",
    "min",
    "mode",
    "moving_mean",
    "nth_value",
    "ntile",
    "percent_rank",
    "percentile",
    "rank",
    "right",
    "row_number",
    "run",
    "save_flow",
    "session",
    "skewness",
    "sliding",
    "spark",
    "sql",
    "stddev",
    "string_agg",
    "struct",
    "sum",
    "timer",
    "timestamp",
    "transform",
    "tumbling",
    "update",
    "variance",
    "when",
    "zip_with",
]
