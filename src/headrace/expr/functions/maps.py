"""Map functions, under Spark's names, including higher-order functions over entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import EvaluationError
from headrace.expr.function_records import (
    KEY,
    MAP,
    StrictFunction,
    function,
    holds_for,
    key_type,
    known_type,
    list_type,
    map_type,
    part_types,
)
from headrace.expr.functions.higher_order import (
    Parameters,
    check_place,
    comprehension,
    condition_of,
    function_of,
    zip_loop,
)
from headrace.expr.functions.string_search import Pattern, split
from headrace.expr.java_patterns import java_pattern
from headrace.expr.spark_columns import representative, sorted_entry_column
from headrace.expr.types import BOOL, STR, DataType, ListType, MapType, StructType
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    Mismatch,
    Signature,
    SparkForm,
    Term,
    TypeAndNullability,
)
from headrace.expr.value_keys import has_representatives, nested_key, sorted_entries
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column

Entries: TypeAlias = tuple[tuple[Any, Any], ...]


def map_of(entries: Iterable[tuple[Any, Any]]) -> Entries:
    """Build a map from entries. Raises for a null or duplicate key."""
    found: dict[Any, Any] = {}
    for key, value in entries:
        if key is None:
            raise EvaluationError("null cannot be a key of a map")
        if key in found:
            raise EvaluationError(
                f"the key {key!r} comes twice in a map",
                fix="make keys different, or leave entries out before",
            )
        found[key] = value
    return tuple(found.items())


def map_source(entries: str, key: DataType) -> str:
    """Return the source of a map built from an iterable of entries with keys of type `key`."""
    return f"x_map_of(x_one_zero({entries}))" if has_representatives(key) else f"x_map_of({entries})"


def one_zero(entries: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    """Return entries with canonical keys: -0.0 becomes 0.0."""
    return ((nested_key(key), value) for key, value in entries)


# -- parts -----------------------------------------------------------------------------------------


def value_of(entries: Entries, wanted: Any) -> Any:
    """Return the value of a key; null if the key is missing."""
    return next((value for key, value in entries if key is wanted or key == wanted), None)


def contains_key(entries: Entries, wanted: Any) -> bool:
    return any(key is wanted or key == wanted for key, _ in entries)


def keys_of(entries: Entries) -> tuple[Any, ...]:
    return tuple([key for key, _ in entries])


def values_of(entries: Entries) -> tuple[Any, ...]:
    return tuple([value for _, value in entries])


def _map_of_types(types: tuple[DataType, ...]) -> MapType:
    return cast("MapType", types[0])


# -- made of others --------------------------------------------------------------------------------


def _create_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if not arguments or len(arguments) % 2:
        raise Mismatch("map needs keys and values by turns", fix='map("a", col.x, "b", col.y)')
    keys, values = list(arguments[::2]), list(arguments[1::2])
    key, value = key_type("map", keys), known_type("map", "values", values)
    made = MapType(key, value, any(each.nullable for each in values))
    return Signature((key, value) * len(keys), made, nullable=False)


def _create(emitter: Emitter, call: CallTerm) -> GuardedSource:
    assert isinstance(call.type, MapType)
    sources = [emitter.value(each) for each in call.arguments]
    entries = "".join(f"({key}, {value}), " for key, value in zip(sources[::2], sources[1::2], strict=True))
    return GuardedSource(map_source(f"({entries})", call.type.key))


def _from_arrays_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    keys, values = (list_type("map_from_arrays", each) for each in arguments)
    key = key_type("map_from_arrays", [Term(keys.element, keys.nullable)])
    return Signature((keys, values), MapType(key, values.element, values.nullable))


def _from_arrays(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    assert isinstance(call.type, MapType)
    return map_source(f"x_paired({', '.join(operands)})", call.type.key)


def paired(keys: tuple[Any, ...], values: tuple[Any, ...]) -> Iterable[tuple[Any, Any]]:
    """Pair a list of keys with a list of values. Raises if their lengths differ."""
    if len(keys) != len(values):
        raise EvaluationError(f"a map of {len(keys)} keys and {len(values)} values")
    return zip(keys, values, strict=True)


def _from_entries_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    entries = list_type("map_from_entries", argument)
    if not isinstance(entries.element, StructType) or len(entries.element.fields) != 2:
        raise Mismatch(f"map_from_entries needs a list of structs of two fields, got {entries}")
    key, value = entries.element.fields
    made = MapType(key_type("map_from_entries", [Term(key.type, False)]), value.type, value.nullable)
    return Signature((entries,), made, argument.nullable or entries.nullable)


def _from_entries(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    assert isinstance(call.type, MapType)
    entries = cast("ListType", call.arguments[0].type)
    if not entries.nullable:
        return map_source(operands[0], call.type.key)
    first, again = emitter.name_value(operands[0])
    return f"(None if None in {first} else {map_source(again, call.type.key)})"


def _concat_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    types = part_types("map_concat", arguments, (MAP,) * len(arguments))
    maps = [map_type("map_concat", each) for each in arguments]
    made = _map_of_types(types)
    return Signature(types, MapType(made.key, made.value, any(each.nullable for each in maps)))


def _concat(emitter: Emitter, call: CallTerm) -> GuardedSource:
    # As on Spark, what may be null is not evaluated after a null, and what cannot be always is.
    names: list[str] = []
    sources: list[str] = []
    for each in call.arguments:
        source = emitter.value(each)
        if each.nullable:
            nulls = " or ".join(f"{name} is None" for name in names)
            names.append(emitter.fresh())
            source = f"({names[-1]} := {f'None if {nulls} else ' if nulls else ''}{source})"
        sources.append(source)
    return GuardedSource(f"x_map_concat({', '.join(sources)})")


def map_concat(*maps: Entries | None) -> Entries | None:
    """Concatenate maps; null if any of them is null."""
    present = [entries for entries in maps if entries is not None]
    return map_of(chain(*present)) if len(present) == len(maps) else None


def map_of_text(text: str, between: Pattern, within: Pattern) -> Entries:
    """Parse a map from text: one pattern separates entries, the other one keys from values."""
    parts = (split(entry, within, 2) for entry in split(text, between, -1))
    return map_of((part[0], part[1] if len(part) > 1 else None) for part in parts)


# -- values of keys in other functions -------------------------------------------------------------


def also_of_maps(of_lists: Function) -> Function:
    """Extend a function of list elements to map values. Its first argument selects the form."""
    of_maps = function(
        of_lists.name,
        "",
        (MAP, KEY),
        lambda types: _map_of_types(types).value,
        "x_value_of({all})",
        nullable=True,
    )
    assert isinstance(of_lists, StrictFunction)
    assert isinstance(of_maps, StrictFunction)

    def chosen(first: Term) -> StrictFunction:
        return of_maps if isinstance(first.type, MapType) else of_lists

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        return chosen(arguments[0]).rule(arguments, options)

    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        return chosen(call.arguments[0]).python(emitter, call, operands)

    def fallible(call: CallTerm) -> bool:
        return holds_for(chosen(call.arguments[0]).fallible, call)

    meaning = of_lists.meaning.removesuffix(".") + "; of a map, the value of a key, null without it."
    return replace(of_lists, rule=rule, python=python, fallible=fallible, meaning=meaning)


# -- on Spark ---------------------------------------------------------------------------------


def with_one_zero(name: str) -> SparkForm:
    """Return the Spark form of a map function with -0.0 in keys made 0.0, as Spark does not always do."""

    def lowered(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
        # The Python API alone takes functions of columns.
        made = getattr(F, "create_map" if name == "map" else name)(*arguments)
        assert isinstance(call.type, MapType)
        key_type = call.type.key
        if not has_representatives(key_type):
            return made
        return F.transform_keys(made, lambda key, value: representative(key_type, key))

    return lowered


def _map_sort_spark(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    mapping = call.type
    assert isinstance(mapping, MapType)
    return F.map_from_entries(sorted_entry_column(mapping, F.map_entries(arguments[0])))


FUNCTIONS: tuple[Function, ...] = (
    function(
        "map",
        "Map of alternating keys and values.",
        types=_create_rule,
        lazy=_create,
        fallible=True,
        arity=(2, None),
        step=2,
        shown_parameters="*keys_and_values",
        example="'a', 1, 'b', 2",
        catalyst="CreateMap",
        spark=with_one_zero("map"),
    ),
    function(
        "map_from_arrays",
        "Map of a list of keys and a list of values.",
        types=_from_arrays_rule,
        code=_from_arrays,
        fallible=True,
        keeps_nan=True,
        arity=(2, 2),
        shown_parameters="keys, values",
        example="array('a', 'b'), array(1, 2)",
        catalyst="MapFromArrays",
        spark=with_one_zero("map_from_arrays"),
        keeps_size=True,
    ),
    function(
        "map_from_entries",
        "Map of a list of structs of key and value; null if one is null.",
        types=_from_entries_rule,
        code=_from_entries,
        fallible=True,
        keeps_nan=True,
        nullable=True,
        arity=(1, 1),
        shown_parameters="list",
        example="array(struct(key='a', value=1))",
        catalyst="MapFromEntries",
        spark=with_one_zero("map_from_entries"),
        keeps_size=True,
    ),
    function(
        "map_concat",
        "Map of the entries of several maps.",
        types=_concat_rule,
        lazy=_concat,
        fallible=True,
        arity=(1, None),
        shown_parameters="*maps",
        example="map('a', 1), map('b', 2)",
        catalyst="MapConcat",
    ),
    function(
        "str_to_map",
        "Map from text, split by regular expressions between entries and key and value.",
        (STR, STR, STR),
        MapType(STR, STR, nullable=True),
        map_of_text,
        fallible=True,
        prepared={1: java_pattern, 2: java_pattern},
        defaults=(",", ":"),
        example="'a=1,b=2', ',', '='",
        catalyst="StringToMap",
    ),
    function(
        "map_keys",
        "List of the keys.",
        (MAP,),
        lambda types: ListType(_map_of_types(types).key),
        keys_of,
        shown_parameters="map",
        example="map('a', 1, 'b', 2)",
        catalyst="MapKeys",
        keeps_size=True,
    ),
    function(
        "map_values",
        "List of the values.",
        (MAP,),
        lambda types: ListType(_map_of_types(types).value, _map_of_types(types).nullable),
        values_of,
        shown_parameters="map",
        example="map('a', 1, 'b', 2)",
        catalyst="MapValues",
        keeps_size=True,
    ),
    function(
        "map_entries",
        "List of entries, as structs of `key` and `value`.",
        (MAP,),
        lambda types: _map_of_types(types).entries,
        "{0}",
        shown_parameters="map",
        example="map('a', 1)",
        catalyst="MapEntries",
        keeps_size=True,
    ),
    function(
        "map_contains_key",
        "Whether the map has the key.",
        (MAP, KEY),
        BOOL,
        contains_key,
        shown_parameters="map, key",
        example="map('a', 1), 'b'",
        catalyst="MapContainsKey",
    ),
    function(
        "map_sort",
        "",
        (MAP,),
        MAP,
        sorted_entries,
        catalyst="MapSort",
        spark=_map_sort_spark,
        keeps_size=True,
    ),
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
    """Return the common key type of two maps, and the types of both maps with that key type."""
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
    """Yield each key of two maps with both values, the keys of the first map first."""
    first, second = dict(one), dict(other)
    return ((key, first.get(key), second.get(key)) for key in first | second)


# -- on columns -------------------------------------------------------------------------------


NAMES: dict[str, Any] = {
    "x_map_concat": map_concat,
    "x_map_of": map_of,
    "x_one_zero": one_zero,
    "x_paired": paired,
    "x_value_of": value_of,
    "x_zip_maps": zip_maps,
}

ENTRY_FUNCTIONS: tuple[Function, ...] = (
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
