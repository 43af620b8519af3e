"""Functions of maps, under Spark's names.

Keys are equal where Spark has them as one: NaN equals itself, and the zeros are one. A key that comes twice
is an error, as with Spark's default policy for duplicate keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import EvaluationError
from headrace.expr.code_emission import Emitter, GuardedSource
from headrace.expr.deferred_imports import F
from headrace.expr.dict_keys import has_representatives, nested_key, sorted_entries
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
from headrace.expr.functions.regular_expressions import Pattern, split
from headrace.expr.java_patterns import java_pattern
from headrace.expr.spark_columns import representative, sorted_entry_column
from headrace.expr.types import BOOL, STR, DataType, ListType, MapType, StructType
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    Mismatch,
    Signature,
    SparkForm,
    Term,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


Entries: TypeAlias = tuple[tuple[Any, Any], ...]


def map_of(entries: Iterable[tuple[Any, Any]]) -> Entries:
    """Return a map of entries. Raises for a key that is null or comes twice."""
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
    """Return the source of a map of the entries that an iterable yields, whose keys have a type."""
    return f"x_map_of(x_one_zero({entries}))" if has_representatives(key) else f"x_map_of({entries})"


def one_zero(entries: Iterable[tuple[Any, Any]]) -> Iterable[tuple[Any, Any]]:
    """Return entries with one zero in their keys."""
    return ((nested_key(key), value) for key, value in entries)


# -- parts -----------------------------------------------------------------------------------------


def value_of(entries: Entries, wanted: Any) -> Any:
    """Return the value of a key, or null without it."""
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
    """Return the entries of a list of keys and one of values. Raises if they are not equally long."""
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
    """Return the map with the entries of several, or null if one is."""
    present = [entries for entries in maps if entries is not None]
    return map_of(chain(*present)) if len(present) == len(maps) else None


def map_of_text(text: str, between: Pattern, within: Pattern) -> Entries:
    """Return a map of a text: entries are split by one pattern, keys and values by another one."""
    parts = (split(entry, within, 2) for entry in split(text, between, -1))
    return map_of((part[0], part[1] if len(part) > 1 else None) for part in parts)


# -- values of keys in other functions -------------------------------------------------------------


def also_of_maps(of_lists: Function) -> Function:
    """Make a function of elements of lists also one of values of keys. Its first argument tells which."""
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
    """Return the Spark form of a function of maps, whose keys get one zero. Spark does not always do so."""

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


NAMES: dict[str, Any] = {
    "x_map_concat": map_concat,
    "x_map_of": map_of,
    "x_one_zero": one_zero,
    "x_paired": paired,
    "x_value_of": value_of,
}

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
