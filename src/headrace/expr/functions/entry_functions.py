"""Functions that apply functions to the entries of maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.expr.code_emission import Emitter, GuardedSource
from headrace.expr.function_records import (
    function,
    key_type,
    map_type,
)
from headrace.expr.functions.higher_order import (
    Parameters,
    check_place,
    comprehension,
    condition_of,
    function_of,
    zip_loop,
)
from headrace.expr.functions.maps import Entries, map_source, with_one_zero
from headrace.expr.types import BOOL, DataType, MapType
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    Signature,
    Term,
    TypeAndNullability,
)

if TYPE_CHECKING:
    pass


def _entry(name: str) -> Callable[[Arguments], Parameters]:
    def parameters(before: Arguments) -> Parameters:
        check_place(name, before, 1)
        entries = map_type(name, before[0])
        return (TypeAndNullability(entries.key, False), TypeAndNullability(entries.value, entries.nullable))

    return parameters


def _transform_keys_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    entries = map_type("transform_keys", arguments[0])
    function = function_of("transform_keys", arguments, 1, 2)
    made = MapType(key_type("transform_keys", [function]), entries.value, entries.nullable)
    return Signature((entries, function.type), made, arguments[0].nullable)


def _transform_values_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    entries = map_type("transform_values", arguments[0])
    function = function_of("transform_values", arguments, 1, 2)
    made = MapType(entries.key, function.type, function.nullable)
    return Signature((entries, function.type), made, arguments[0].nullable)


def _map_filter_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    condition_of("map_filter", arguments)
    function_of("map_filter", arguments, 1, 2)
    return Signature((arguments[0].type, BOOL), arguments[0].type, arguments[0].nullable)


def _with_keys(emitter: Emitter, call: CallTerm) -> GuardedSource:
    assert isinstance(call.type, MapType)
    template = map_source("[({body}, {other}) {loop}]", call.type.key)
    return comprehension(template)(emitter, call)


def _zipped_maps(before: Arguments) -> tuple[DataType, MapType, MapType]:
    """Return the type of the keys of two maps, and those of the maps with such keys."""
    one, other = (map_type("map_zip_with", each) for each in before[:2])
    key = key_type("map_zip_with", [Term(one.key, False), Term(other.key, False)])
    return key, replace(one, key=key), replace(other, key=key)


def _map_zip_parameters(before: Arguments) -> Parameters:
    check_place("map_zip_with", before, 2)
    key, one, other = _zipped_maps(before)
    values = (TypeAndNullability(each.value, True) for each in (one, other))
    return (TypeAndNullability(key, False), *values)


def _map_zip_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    function = function_of("map_zip_with", arguments, 2, 3)
    key, one, other = _zipped_maps(arguments)
    made = MapType(key, function.type, function.nullable)
    return Signature((one, other, function.type), made, any(each.nullable for each in arguments[:2]))


def zip_maps(one: Entries, other: Entries) -> Iterable[tuple[Any, Any, Any]]:
    """Yield the keys of two maps, those of the first before those of the second alone, with both values."""
    first, second = dict(one), dict(other)
    return ((key, first.get(key), second.get(key)) for key in first | second)


# -- on columns -------------------------------------------------------------------------------


NAMES: dict[str, Any] = {
    "x_zip_maps": zip_maps,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "transform_keys",
        "The map with keys computed from key and value.",
        types=_transform_keys_rule,
        lazy=_with_keys,
        fallible=True,
        parameters=_entry("transform_keys"),
        arity=(2, 2),
        shown_parameters="map, function",
        example="map('a', 1), lambda key, value: concat(key, '!')",
        catalyst="TransformKeys",
        spark=with_one_zero("transform_keys"),
        keeps_size=True,
    ),
    function(
        "transform_values",
        "The map with values computed from key and value.",
        types=_transform_values_rule,
        lazy=comprehension("tuple([({each}, {body}) {loop}])"),
        parameters=_entry("transform_values"),
        arity=(2, 2),
        shown_parameters="map, function",
        example="map('a', 1), lambda key, value: value + 1",
        catalyst="TransformValues",
        keeps_size=True,
    ),
    function(
        "map_filter",
        "The entries for which a function of key and value is true.",
        types=_map_filter_rule,
        lazy=comprehension("tuple([({each}, {other}) {loop} if {true}])"),
        parameters=_entry("map_filter"),
        arity=(2, 2),
        shown_parameters="map, function",
        example="map('a', 1, 'b', 2), lambda key, value: value > 1",
        catalyst="MapFilter",
        keeps_size=True,
    ),
    function(
        "map_zip_with",
        "Results of a function of each key and its two values, null where a map lacks the key.",
        types=_map_zip_rule,
        lazy=zip_loop("tuple([({first}, {body}) for {variables} in x_zip_maps({both})])"),
        parameters=_map_zip_parameters,
        most_variables=3,
        arity=(3, 3),
        shown_parameters="map, map, function",
        example="map('a', 1), map('a', 2), lambda key, x, y: x + y",
        catalyst="MapZipWith",
        keeps_size=True,
    ),
)
