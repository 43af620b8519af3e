"""Functions of JSON texts, under Spark's names; `from_json` has a file of its own."""

from __future__ import annotations

from typing import Any

from headrace.expr.function_bases import (
    Emitter,
    GuardedSource,
    LazyFunction,
    StrictFunction,
    fitting_type,
    fixed,
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
from headrace.expr.typing_rules import Arguments, CallTerm, Function, Mismatch, Signature


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


NAMES: dict[str, Any] = {
    "x_get_json_object": get_json_object,
    "x_json_array_length": json_array_length,
    "x_json_object_keys": json_object_keys,
    "x_json_tuple": json_tuple,
}

FUNCTIONS: tuple[Function, ...] = (
    fixed(
        "get_json_object",
        "The part of a JSON text at a path such as `$.a[0]['b']`; null if there is none.",
        (STR, STR),
        STR,
        "x_get_json_object({0}, {1})",
        nullable=True,
        prepared={1: json_path},
    ),
    fixed(
        "json_array_length",
        "Number of elements of a JSON array; null for other text.",
        (STR,),
        INT32,
        "x_json_array_length({0})",
        nullable=True,
    ),
    fixed(
        "json_object_keys",
        "Names of the fields of a JSON object; null for other text.",
        (STR,),
        ListType(STR, nullable=True),
        "x_json_object_keys({0})",
        nullable=True,
    ),
    LazyFunction(
        "json_tuple",
        _tuple_rule,
        _tuple,
        arity=(2, None),
        meaning="Struct of the named fields of a JSON object, as texts `c0`, `c1`, …",
    ),
    StrictFunction("to_json", _to_rule, _to, arity=(1, 1), meaning="JSON text of a struct, list or map."),
)
