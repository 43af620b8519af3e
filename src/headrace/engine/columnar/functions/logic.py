"""Comparisons, three-valued logic, and conditional expressions.

Polars compares as Spark does: NaN equals NaN and is greater than every number. Branches that
are not taken do not fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import polars as pl

from headrace.engine.columnar.functions.decimals import unscaled
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    bounds_hull,
    either_condition,
    restrict_failure,
    to_series,
)
from headrace.expr.types import DecimalType
from headrace.expr.typing_rules import CallTerm, LiteralTerm
from headrace.expr.widening import is_float

_FEW = 4
"""Number of constants up to which comparing with each is as fast as looking a value up."""


def _compare(compared: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        one, other = arguments
        if isinstance(call.arguments[0].type, DecimalType):  # of one scale
            return LoweredExpression(compared(unscaled(one).value, unscaled(other).value))
        return LoweredExpression(compared(one.value, other.value))

    return lowering


def _same(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = arguments
    return LoweredExpression(
        one.value.eq_missing(other.value), None, either_condition(one.fails, other.fails)
    )


def _is_in(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    value, *options = arguments
    fails = either_condition(*(a.fails for a in arguments))
    if not options:
        return LoweredExpression(pl.when(value.value.is_not_null()).then(pl.lit(False)), None, fails)
    constants = [t.value for t in call.arguments[1:] if isinstance(t, LiteralTerm) and t.value is not None]
    type_ = call.arguments[0].type
    if len(options) > _FEW and len(constants) == len(options) and not is_float(type_):
        return LoweredExpression(value.value.is_in(to_series(type_, constants).implode()), None, fails)
    return LoweredExpression(
        reduce(lambda a, b: a | b, (value.value == o.value for o in options)), None, fails
    )


def _and(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = arguments
    reached = one.value.fill_null(True)
    return LoweredExpression(
        one.value & other.value, None, either_condition(one.fails, restrict_failure(reached, other.fails))
    )


def _or(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = arguments
    reached = ~one.value.fill_null(False)
    return LoweredExpression(
        one.value | other.value, None, either_condition(one.fails, restrict_failure(reached, other.fails))
    )


def _not(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(~arguments[0].value, None, arguments[0].fails)


def _is_null(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(arguments[0].value.is_null(), None, arguments[0].fails)


def _is_not_null(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(arguments[0].value.is_not_null(), None, arguments[0].fails)


def _is_nan(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(arguments[0].value.is_nan().fill_null(False), None, arguments[0].fails)


def _coalesce(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    fails: pl.Expr | None = None
    for at, argument in enumerate(arguments):
        if argument.fails is not None:
            reached = [earlier.value.is_null() for earlier in arguments[:at]]
            fails = either_condition(
                fails, pl.all_horizontal(*reached, argument.fails) if reached else argument.fails
            )
    return LoweredExpression(pl.coalesce([a.value for a in arguments]), bounds_hull(arguments), fails)


def _when(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    *pairs, otherwise = arguments
    value, fails = otherwise.value, otherwise.fails
    for condition, chosen in zip(pairs[-2::-2], pairs[::-2], strict=True):
        true = condition.value.fill_null(False)
        value = pl.when(condition.value).then(chosen.value).otherwise(value)
        fails = either_condition(
            condition.fails, restrict_failure(true, chosen.fails), restrict_failure(~true, fails)
        )
    return LoweredExpression(value, bounds_hull([*pairs[1::2], otherwise]), fails)


LOWERINGS: Mapping[str, Lowering] = {
    "eq": _compare(lambda a, b: a == b),
    "ne": _compare(lambda a, b: a != b),
    "lt": _compare(lambda a, b: a < b),
    "le": _compare(lambda a, b: a <= b),
    "gt": _compare(lambda a, b: a > b),
    "ge": _compare(lambda a, b: a >= b),
    "eq_null_safe": _same,
    "is_in": _is_in,
    "and": _and,
    "or": _or,
    "not": _not,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "is_nan": _is_nan,
    "coalesce": _coalesce,
    "when": _when,
}
