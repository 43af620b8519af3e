"""Nested values: structs and lists built from values, their fields and elements, and map values.

Positions of elements count from 1, other than those of `get`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import EvaluationError
from headrace.expr.function_records import (
    ELEMENT,
    KEY,
    LIST,
    MAP,
    function,
    is_names,
    is_text,
    of_spark_columns,
    part_types,
)
from headrace.expr.functions.arrays import check_size, nullable_or_elements
from headrace.expr.functions.maps import also_of_maps, value_of
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
    either_condition,
    unscaled_bounds,
)
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    INT32,
    INT64,
    STR,
    DataType,
    Field,
    IntegerType,
    ListType,
    MapType,
    StructType,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    Mismatch,
    Signature,
    common_type,
    is_integer,
    nullable_within,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


def _struct_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    names = cast("tuple[str, ...]", options[0])
    if len(set(names)) != len(arguments):
        raise Mismatch("a struct needs a name of its own for each field")
    for argument in arguments:
        if argument.type == NULL:
            raise Mismatch("a field of a struct has no type", fix="give the null one: lit(None, int)")
    fields = tuple(
        Field(name, argument.type, argument.nullable) for name, argument in zip(names, arguments, strict=True)
    )
    return Signature(tuple(a.type for a in arguments), StructType(fields), nullable=False)


def _array_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    common = common_type(arguments)
    if common == NULL:
        raise Mismatch("a list of nulls has no type", fix="give one of them a type: lit(None, int)")
    nullable = any(a.nullable for a in arguments)
    return Signature((common,) * len(arguments), ListType(common, nullable), nullable=False)


def _values(emitter: Emitter, call: CallTerm) -> GuardedSource:
    values = "".join(f"{emitter.value(a)}, " for a in call.arguments)
    return GuardedSource(f"({values})")


def _position(struct: StructType, name: object) -> int | None:
    return next((at for at, f in enumerate(struct.fields) if f.name == name), None)


def _field_of(arguments: Arguments, name: object) -> tuple[StructType, Field]:
    (argument,) = arguments
    if not isinstance(argument.type, StructType):
        raise Mismatch(f"a field needs a struct, got {argument.type}")
    at = _position(argument.type, name)
    if at is None:
        names = ", ".join(f.name for f in argument.type.fields)
        raise Mismatch(f"no field {name!r}", why=f"The fields are {names}.")
    return argument.type, argument.type.fields[at]


def _field_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    mapping = arguments[0].type
    if isinstance(mapping, MapType) and mapping.key == STR:
        return Signature((mapping,), mapping.value, nullable=True)
    struct, field = _field_of(arguments, options[0])
    return Signature((struct,), field.type, arguments[0].nullable or field.nullable)


def _field(emitter: Emitter, call: CallTerm) -> GuardedSource:
    struct = call.arguments[0].type
    if isinstance(struct, MapType):
        return GuardedSource(f"x_value_or_null({emitter.value(call.arguments[0])}, {call.options[0]!r})")
    assert isinstance(struct, StructType)
    at = _position(struct, call.options[0])
    code = emitter.code(call.arguments[0])
    if code.source == "None":  # of the side of an outer join that lacks a row
        return GuardedSource("None")
    source = f"{code.source}[{at}]"
    if not call.type or not code.guards:
        return GuardedSource(source)
    nulls = " or ".join(f"{g} is None" for g in code.guards)
    return GuardedSource(f"(None if {nulls} else {source})")


def _element_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    values, at = arguments
    if isinstance(values.type, MapType):
        return Signature(part_types("[]", arguments, (MAP, KEY)), values.type.value, nullable=True)
    if not isinstance(values.type, ListType):
        raise Mismatch(
            f"a position needs a list, got {values.type}", fix='a field is x["name"] or x.field("name")'
        )
    if not is_integer(at.type):
        raise Mismatch(f"a position is an integer, got {at.type}")
    nullable = values.nullable or at.nullable or values.type.nullable
    return Signature((values.type, INT32), values.type.element, nullable)


def _element(emitter: Emitter, call: CallTerm) -> GuardedSource:
    # A null is not looked into: what comes after it is not evaluated.
    named = [emitter.name_value(emitter.value(each)) for each in call.arguments]
    tests = [
        f"{first} is None"
        for each, (first, again) in zip(call.arguments, named, strict=True)
        if each.nullable or first != again
    ]
    name = "x_value_of" if isinstance(call.arguments[0].type, MapType) else "x_element"
    source = f"{name}({', '.join(again for _, again in named)})"
    return GuardedSource(f"(None if {' or '.join(tests)} else {source})" if tests else source)


def value_or_null(entries: tuple[tuple[Any, Any], ...] | None, key: str) -> Any:
    """Return the value of a key of a map; null for a null map or a missing key."""
    return None if entries is None else value_of(entries, key)


def element(values: tuple[Any, ...], at: int) -> Any:
    """Return element `at`, counted from 0. Raises if out of range."""
    if not 0 <= at < len(values):
        raise EvaluationError(f"position {at} is outside a list of {len(values)} elements")
    return values[at]


def _repeat_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    value, count = arguments
    if value.type == NULL or not (is_integer(count.type) or count.type == NULL):
        raise Mismatch(f"array_repeat needs a value and a count, got {value.type} and {count.type}")
    return Signature((value.type, INT32), ListType(value.type, value.nullable), count.nullable)


def _repeat(emitter: Emitter, call: CallTerm) -> GuardedSource:
    value, count = (emitter.value(a) for a in call.arguments)
    return GuardedSource(f"x_array_repeat({value}, {count})")


def array_repeat(value: Any, count: int | None) -> tuple[Any, ...] | None:
    """Return a list of copies of a value, which may be null; null for a null count."""
    return None if count is None else (value,) * count


def _only_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    value, count = arguments
    if not is_integer(count.type) and count.type != NULL:
        raise Mismatch(f"only_row needs the number of rows, got {count.type}")
    return Signature((value.type, INT64), value.type, value.nullable)


def _only(emitter: Emitter, call: CallTerm) -> GuardedSource:
    value, count = (emitter.value(a) for a in call.arguments)
    return GuardedSource(f"x_only_row({value}, {count})")


def only_row(value: Any, count: int | None) -> Any:
    """Return the value of a subquery with at most one row. Raises if it has more rows."""
    if count is not None and count > 1:
        raise EvaluationError("a subquery used as a value has more than one row")
    return value


def _by_position_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    return Signature((argument.type,), _numbered(argument.type), argument.nullable)


def _numbered(type: DataType) -> DataType:
    """Return a type whose struct fields are named by position."""
    match type:
        case ListType():
            return replace(type, element=_numbered(type.element))
        case MapType():
            return replace(type, key=_numbered(type.key), value=_numbered(type.value))
        case StructType():
            fields = enumerate(type.fields, 1)
            return StructType(tuple(replace(f, name=f"col{at}", type=_numbered(f.type)) for at, f in fields))
        case _:
            return type


def _only_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    value, count = arguments
    several = either_condition(value.fails, count.fails, count.value > 1)
    return replace(value, fails=several)


# -- on Spark ---------------------------------------------------------------------------------


def _struct_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return F.struct(
        *(
            value.alias(name)
            for value, name in zip(arguments, cast("tuple[str, ...]", call.options[0]), strict=True)
        )
    )


def _by_position_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    # Spark takes more fields for nullable than there are, and casts none of those to one that isn't.
    return arguments[0].cast(spark_type(nullable_within(call.type)))


def _only_row_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    value, count = arguments
    several = F.raise_error(F.lit("a subquery used as a value has more than one row"))
    return F.when(count > 1, several.cast(spark_type(call.type))).otherwise(value)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "struct",
        types=_struct_rule,
        lazy=_values,
        arity=(1, None),
        options=(is_names,),
        spark=_struct_spark,
        keeps_size=True,
    ),
    function("array", types=_array_rule, lazy=_values, arity=(1, None), catalyst="CreateArray"),
    function(
        "field",
        types=_field_rule,
        lazy=_field,
        arity=(1, 1),
        options=(is_text,),
        spark=lambda call, arguments: arguments[0].getField(call.options[0]),
        keeps_size=True,
    ),
    function(
        "element",
        types=_element_rule,
        lazy=_element,
        fallible=True,
        arity=(2, 2),
        catalyst="GetMapValue",
        spark=of_spark_columns(lambda a, at: a[at]),
        keeps_size=True,
    ),
    function(
        "array_repeat",
        types=_repeat_rule,
        lazy=_repeat,
        arity=(2, 2),
        catalyst="ArrayRepeat",
        keeps_size=True,
    ),
    function(
        "by_position",
        types=_by_position_rule,
        lazy=lambda emitter, call: emitter.code(call.arguments[0]),
        arity=(1, 1),
        spark=_by_position_spark,
        keeps_size=True,
    ),
    function(
        "only_row",
        types=_only_rule,
        lazy=_only,
        fallible=True,
        arity=(2, 2),
        columns=_only_columns,
        spark=_only_row_spark,
        keeps_size=True,
    ),
)

if TYPE_CHECKING:
    pass


def get(values: tuple[Any, ...], at: int) -> Any:
    return values[at] if 0 <= at < len(values) else None


def _at(values: tuple[Any, ...], number: int) -> int:
    """Return the position of element `number`, counted from the end if negative. Raises for 0."""
    if number == 0:
        raise EvaluationError("positions in a list count from 1, or from -1 backwards: there is no element 0")
    return number - 1 if number > 0 else len(values) + number


def element_at(values: tuple[Any, ...], number: int) -> Any:
    at = _at(values, number)
    if not 0 <= at < len(values):
        raise EvaluationError(f"there is no element {number} in a list of {len(values)} elements")
    return values[at]


def try_element_at(values: tuple[Any, ...], number: int) -> Any:
    return get(values, _at(values, number))


def array_contains(values: tuple[Any, ...], value: Any) -> bool | None:
    return True if value in values else None if None in values else False


def array_position(values: tuple[Any, ...], value: Any) -> int:
    return values.index(value) + 1 if value in values else 0


def slice_of(values: tuple[Any, ...], start: int, length: int) -> tuple[Any, ...]:
    """Return a slice of a list from a position, counted from the end if negative."""
    if length < 0:
        raise EvaluationError(f"a slice of a list has a length of {length}")
    at = _at(values, start)
    return values[at : at + length] if at >= 0 else ()


def array_insert(values: tuple[Any, ...] | None, number: int | None, value: Any) -> tuple[Any, ...] | None:
    """Insert an element into a list, after padding with nulls if the list is too short."""
    if values is None or number is None:
        return None
    at = _at(values, number)
    if number > 0:
        check_size(max(at, len(values)) + 1)
        return (*values[:at], *(None,) * (at - len(values)), value, *values[at:])
    if at < -1:
        check_size(-number)
        return (value, *(None,) * (-1 - at), *values)
    return (*values[: at + 1], value, *values[at + 1 :])


def _insert_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    types = part_types("array_insert", arguments, (LIST, INT32, ELEMENT))
    made = types[0]
    assert isinstance(made, ListType)
    return Signature(types, ListType(made.element, True), arguments[0].nullable or arguments[1].nullable)


def _called(name: str) -> Callable[[Emitter, CallTerm], GuardedSource]:
    """Return the code that calls a function that handles nulls."""

    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        return GuardedSource(f"{name}({', '.join(map(emitter.value, call.arguments))})")

    return python


def _list_of_element(of: CallTerm) -> ListType:
    found = of.arguments[0].type
    if not isinstance(found, ListType):
        raise NotLowered(f"{of.function.name}() of a {found} has no columnar form")
    return found


_COMPARED = (STR, BOOL, BYTES, DATE)


# -- on columns -------------------------------------------------------------------------------


def _element_at_columns(*, first: int, fails: bool) -> Lowering:
    """Lower a function that takes the element at a constant position.

    first: number of the first one; from the end count only those that begin with 1. fails: beyond the list.
    """

    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        element = _list_of_element(call).element
        number = constant_value(call.arguments[1])
        if not isinstance(number, int) or (number < first and (first == 0 or number == 0)):
            raise NotLowered(f"{call.function.name}() has a columnar form only of a constant position")
        values = arguments[0].value
        at = number - first if number >= 0 else number
        beyond = values.list.len().cast(pl.Int64) < (at + 1 if at >= 0 else -at)
        found = values.list.get(at, null_on_oob=True)
        return LoweredExpression(found, unscaled_bounds(element), beyond if fails else None)

    return lowering


def _contains_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    found = _list_of_element(call)
    if found.nullable or not (isinstance(found.element, IntegerType) or found.element in _COMPARED):
        raise NotLowered(f"array_contains() of {found} has no columnar form")
    values, value = (each.value for each in arguments)
    there = values.is_not_null() & value.is_not_null()
    return LoweredExpression(pl.when(there).then(values.list.contains(value)))


NAMES: dict[str, Any] = {
    "x_array_repeat": array_repeat,
    "x_element": element,
    "x_only_row": only_row,
    "x_value_or_null": value_or_null,
    "x_array_insert": array_insert,
}

ELEMENT_FUNCTIONS: tuple[Function, ...] = (
    function(
        "get",
        "Element at a position from 0; null outside.",
        (LIST, INT32),
        ELEMENT,
        get,
        nullable=True,
        compares=False,
        shown_parameters="list, position",
        example="array('a', 'b'), 1",
        columns=_element_at_columns(first=0, fails=False),
        takes_lists=True,
        keeps_size=True,
    ),
    also_of_maps(
        function(
            "element_at",
            "The element at a position from 1, or from the end.",
            (LIST, INT32),
            ELEMENT,
            element_at,
            nullable=nullable_or_elements,
            fallible=True,
            compares=False,
            shown_parameters="list or map, position or key",
            example="array('a', 'b'), -1",
            columns=_element_at_columns(first=1, fails=True),
            takes_lists=True,
            keeps_size=True,
        )
    ),
    also_of_maps(
        function(
            "try_element_at",
            "The element at a position from 1; null outside.",
            (LIST, INT32),
            ELEMENT,
            try_element_at,
            nullable=True,
            fallible=True,
            compares=False,
            shown_parameters="list or map, position or key",
            example="array(1, 2), 3",
            columns=_element_at_columns(first=1, fails=False),
            takes_lists=True,
            keeps_size=True,
        )
    ),
    function(
        "array_contains",
        "Whether the list contains the value; null if only nulls might.",
        (LIST, ELEMENT),
        BOOL,
        array_contains,
        nullable=nullable_or_elements,
        shown_parameters="list, value",
        example="array(1, 2), 2",
        catalyst="ArrayContains",
        columns=_contains_columns,
        takes_lists=True,
    ),
    function(
        "array_position",
        "Position of the first equal element, from 1; 0 if there is none.",
        (LIST, ELEMENT),
        INT64,
        array_position,
        shown_parameters="list, value",
        example="array('a', 'b'), 'b'",
        catalyst="ArrayPosition",
    ),
    function(
        "slice",
        "Part of the list, from a position and of a length.",
        (LIST, INT32, INT32),
        LIST,
        slice_of,
        fallible=True,
        compares=False,
        shown_parameters="list, position, length",
        example="array(1, 2, 3), 2, 2",
        catalyst="Slice",
        keeps_size=True,
    ),
    function(
        "array_insert",
        "The list with an element, or null, inserted at a position from 1.",
        types=_insert_rule,
        lazy=_called("x_array_insert"),
        fallible=True,
        arity=(3, 3),
        shown_parameters="list, position, element",
        example="array(1, 3), 2, 2",
        keeps_size=True,
    ),
)
