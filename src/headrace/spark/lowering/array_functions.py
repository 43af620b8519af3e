"""Lowering of functions on lists and maps to Spark columns."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from headrace.expr.dict_keys import has_representatives
from headrace.expr.spark_columns import representative, sorted_entries, spark_type
from headrace.expr.types import DATE, MapType

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from headrace.expr.typing_rules import CallTerm

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


def _with_one_zero(lowering: Lowering) -> Lowering:
    """Lower to a map whose keys have one zero. Spark's generated code does not always see to it."""

    def lowered(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
        made, mapping = lowering(call, arguments), call.type
        assert isinstance(mapping, MapType)
        if not has_representatives(mapping.key):
            return made
        return F.transform_keys(made, lambda key, value: representative(mapping.key, key))

    return lowered


def _map_sort(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    mapping = call.type
    assert isinstance(mapping, MapType)
    return F.map_from_entries(sorted_entries(mapping, F.map_entries(arguments[0])))


_NAMES = (
    *("array_compact", "array_contains", "array_distinct", "array_except", "array_insert", "array_intersect"),
    *("array_join", "array_max", "array_min", "array_position", "array_remove", "array_union"),
    *("arrays_overlap", "element_at", "flatten", "get", "slice", "sort_array", "try_element_at"),
    *("map_concat", "map_contains_key", "map_entries", "map_keys", "map_values"),
)

ARRAYS: dict[str, Lowering] = {
    **{name: _plain(partial(F.call_function, name)) for name in _NAMES},
    "aggregate": _plain(F.aggregate),
    "array_sort": _plain(F.array_sort),
    "arrays_zip": _zipped,
    "exists": _plain(F.exists),
    "filter": _plain(F.filter),
    **{
        name: _with_one_zero(_plain(partial(F.call_function, name)))
        for name in ("map", "map_from_arrays", "map_from_entries")
    },
    "map_filter": _plain(F.map_filter),
    "map_sort": _map_sort,
    "map_zip_with": _plain(F.map_zip_with),
    "sequence": _sequence,
    "forall": _plain(F.forall),
    "transform": _plain(F.transform),
    "transform_keys": _with_one_zero(_plain(F.transform_keys)),
    "transform_values": _plain(F.transform_values),
    "zip_with": _plain(F.zip_with),
}
