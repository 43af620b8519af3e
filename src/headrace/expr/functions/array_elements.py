"""Elements of lists by position or value. Positions count from 1, other than those of `get`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.code_emission import Emitter, GuardedSource
from headrace.expr.deferred_imports import pl
from headrace.expr.function_records import (
    ELEMENT,
    LIST,
    function,
    part_types,
)
from headrace.expr.functions.arrays import check_size, nullable_or_elements
from headrace.expr.functions.maps import also_of_maps
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
    unscaled_bounds,
)
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    INT32,
    INT64,
    STR,
    IntegerType,
    ListType,
)
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    Signature,
)

if TYPE_CHECKING:
    pass


def get(values: tuple[Any, ...], at: int) -> Any:
    return values[at] if 0 <= at < len(values) else None


def _at(values: tuple[Any, ...], number: int) -> int:
    """Return where element `number` is, counted from the end if negative. Raises for 0."""
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
    """Return a part of a list, from a place on, which counts from the end if negative."""
    if length < 0:
        raise EvaluationError(f"a slice of a list has a length of {length}")
    at = _at(values, start)
    return values[at : at + length] if at >= 0 else ()


def array_insert(values: tuple[Any, ...] | None, number: int | None, value: Any) -> tuple[Any, ...] | None:
    """Return a list with one more element, after nulls if it would not reach so far."""
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
    """Return the code of a call of a function that handles nulls."""

    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        return GuardedSource(f"{name}({', '.join(map(emitter.value, call.arguments))})")

    return python


def _element(of: CallTerm) -> ListType:
    found = of.arguments[0].type
    if not isinstance(found, ListType):
        raise NotLowered(f"{of.function.name}() of a {found} has no columnar form")
    return found


_COMPARED = (STR, BOOL, BYTES, DATE)


# -- on columns -------------------------------------------------------------------------------


def _element_at_columns(*, first: int, fails: bool) -> Lowering:
    """Return the lowering of a function that takes the element at a constant position.

    first: number of the first one; from the end count only those that begin with 1. fails: beyond the list.
    """

    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        element = _element(call).element
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
    found = _element(call)
    if found.nullable or not (isinstance(found.element, IntegerType) or found.element in _COMPARED):
        raise NotLowered(f"array_contains() of {found} has no columnar form")
    values, value = (each.value for each in arguments)
    there = values.is_not_null() & value.is_not_null()
    return LoweredExpression(pl.when(there).then(values.list.contains(value)))


NAMES: dict[str, Any] = {
    "x_array_insert": array_insert,
}

FUNCTIONS: tuple[Function, ...] = (
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
