"""Lowering of functions on lists to Spark columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from penstock.expr.types import DATE
from penstock.spark.lowering.types import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from penstock.expr.typing_rules import CallTerm

    Lowering = Callable[[CallTerm, tuple[Any, ...]], Column]


def _plain(function: Callable[..., Column]) -> Lowering:
    return lambda call, arguments: function(*arguments)


def _zipped(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    # Spark names the fields after columns where the lists are some; casts go by position.
    return F.arrays_zip(*arguments).cast(spark_type(call.type))


def _sequence(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    start, stop, *step = arguments
    if call.arguments[0].type == DATE:
        step = [F.make_dt_interval(days=each) for each in step]
    return F.sequence(start, stop, *step)


_NAMES = (
    *("array_compact", "array_contains", "array_distinct", "array_except", "array_insert", "array_intersect"),
    *("array_join", "array_max", "array_min", "array_position", "array_remove", "array_union"),
    *("arrays_overlap", "element_at", "flatten", "get", "slice", "sort_array", "try_element_at"),
)

ARRAYS: dict[str, Lowering] = {
    **{name: _plain(partial(F.call_function, name)) for name in _NAMES},
    "aggregate": _plain(F.aggregate),
    "array_sort": _plain(F.array_sort),
    "arrays_zip": _zipped,
    "exists": _plain(F.exists),
    "filter": _plain(F.filter),
    "sequence": _sequence,
    "forall": _plain(F.forall),
    "transform": _plain(F.transform),
    "zip_with": _plain(F.zip_with),
}
