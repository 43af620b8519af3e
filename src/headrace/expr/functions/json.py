"""Functions of JSON texts, under Spark's names; `from_json` has a file of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.expr.code_emission import Emitter, GuardedSource
from headrace.expr.deferred_imports import F
from headrace.expr.function_records import (
    fitting_type,
    function,
)
from headrace.expr.json_paths import (
    get_json_object,
    json_array_length,
    json_object_keys,
    json_path,
    json_tuple,
)
from headrace.expr.json_writer import value_writer
from headrace.expr.types import INT32, STR, Field, ListType, MapType, StructType
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    Mismatch,
    Signature,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


def _tuple_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    types = tuple(fitting_type("json_tuple", argument.type, STR) for argument in arguments)
    fields = tuple(Field(f"c{at}", STR, nullable=True) for at in range(len(arguments) - 1))
    return Signature(types, StructType(fields), nullable=False)


def _tuple(emitter: Emitter, call: CallTerm) -> GuardedSource:
    text, *names = map(emitter.value, call.arguments)
    return GuardedSource(f"x_json_tuple({text}, ({''.join(f'{name}, ' for name in names)}))")


def _to_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    if not isinstance(argument.type, StructType | ListType | MapType):
        raise Mismatch(f"to_json needs a struct, a list or a map, got {argument.type}")
    if value_writer(argument.type) is None:
        raise Mismatch(f"to_json does not write {argument.type}")
    return Signature((argument.type,), STR)


def _to(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"{emitter.constant(value_writer(call.arguments[0].type))}({operands[0]})"


# -- on Spark ---------------------------------------------------------------------------------


_AS_OTHER_FUNCTIONS = {"allowUnquotedControlChars": "true", "allowNonNumericNumbers": "false"}
"""Options for texts that are no strict JSON, by which `from_json` takes what the other functions do."""


def _tuple_spark(call: CallTerm, arguments: tuple[Any, ...]) -> Column:
    # Spark's json_tuple makes rows. A map has the fields in order, also those of one name.
    text, *names = arguments
    entries = F.map_entries(F.from_json(text, "map<string, string>", _AS_OTHER_FUNCTIONS))

    def last(name: Column) -> Column:
        of_name = F.filter(entries, lambda entry: (entry["key"] == name) & entry["value"].isNotNull())
        return F.try_element_at(of_name, F.lit(-1))["value"]

    assert isinstance(call.type, StructType)
    fields = zip(call.type.fields, names, strict=True)
    return F.struct(*(last(name).alias(field.name) for field, name in fields))


NAMES: dict[str, Any] = {
    "x_json_tuple": json_tuple,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "get_json_object",
        "The part of a JSON text at a path such as `$.a[0]['b']`; null if there is none.",
        (STR, STR),
        STR,
        get_json_object,
        nullable=True,
        prepared={1: json_path},
        example="'{\"a\": [7]}', '$.a[0]'",
        catalyst="GetJsonObject",
    ),
    function(
        "json_array_length",
        "Number of elements of a JSON array; null for other text.",
        (STR,),
        INT32,
        json_array_length,
        nullable=True,
        example="'[1, 2]'",
        catalyst="JsonExpressionUtils.lengthOfJsonArray",
    ),
    function(
        "json_object_keys",
        "Names of the fields of a JSON object; null for other text.",
        (STR,),
        ListType(STR, nullable=True),
        json_object_keys,
        nullable=True,
        example='\'{"a": 1, "b": 2}\'',
        catalyst="JsonExpressionUtils.jsonObjectKeys",
    ),
    function(
        "json_tuple",
        "Struct of the named fields of a JSON object, as texts `c0`, `c1`, …",
        types=_tuple_rule,
        lazy=_tuple,
        arity=(2, None),
        shown_parameters="str, *names",
        example="'{\"a\": 1}', 'a', 'b'",
        spark=_tuple_spark,
    ),
    function(
        "to_json",
        "JSON text of a struct, list or map.",
        types=_to_rule,
        code=_to,
        arity=(1, 1),
        shown_parameters="struct, list or map",
        example="struct(a=1, b='x')",
        spark=lambda call, arguments: F.to_json(arguments[0], {"timeZone": "UTC"}),
    ),
)
