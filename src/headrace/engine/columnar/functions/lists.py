"""Functions that make lists of plain values, and those that look into them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import polars as pl

from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
    unscaled_bounds,
)
from headrace.expr.types import BOOL, BYTES, DATE, STR, IntegerType, ListType
from headrace.expr.typing_rules import CallTerm

Arguments = Sequence[LoweredExpression]

_PLAIN = re.compile(r"(?:[^\\^$.|?*+()\[\]{}]|\\[^A-Za-z0-9])+", re.DOTALL)
"""Regular expressions of Java that are a text, of which some characters may be escaped."""


def _split(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    pattern, limit = (constant_value(each) for each in call.arguments[1:])
    if not isinstance(pattern, str) or not _PLAIN.fullmatch(pattern):
        raise NotLowered("split() has a columnar form only by a text, not by a pattern")
    if not isinstance(limit, int) or limit > 0:
        raise NotLowered("split() into so many parts has no columnar form")
    return LoweredExpression(arguments[0].value.str.split(re.sub(r"\\(.)", r"\1", pattern, flags=re.DOTALL)))


def _element(of: CallTerm) -> ListType:
    found = of.arguments[0].type
    if not isinstance(found, ListType):
        raise NotLowered(f"{of.function.name}() of a {found} has no columnar form")
    return found


def _element_at(*, first: int, fails: bool) -> Lowering:
    """Return the lowering of a function that takes the element at a constant position.

    first: number of the first one; from the end count only those that begin with 1. fails: beyond the list.
    """

    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
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


def _contains(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    found = _element(call)
    if found.nullable or not (isinstance(found.element, IntegerType) or found.element in _COMPARED):
        raise NotLowered(f"array_contains() of {found} has no columnar form")
    values, value = (each.value for each in arguments)
    there = values.is_not_null() & value.is_not_null()
    return LoweredExpression(pl.when(there).then(values.list.contains(value)))


_COMPARED = (STR, BOOL, BYTES, DATE)

LOWERINGS: dict[str, Lowering] = {
    "split": _split,
    "get": _element_at(first=0, fails=False),
    "element_at": _element_at(first=1, fails=True),
    "try_element_at": _element_at(first=1, fails=False),
    "array_contains": _contains,
}

OF_LISTS = frozenset(
    ("get", "element_at", "try_element_at", "array_contains", "length", "is_null", "is_not_null")
)
"""Functions whose columnar forms take lists."""
