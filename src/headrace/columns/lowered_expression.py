"""Lowered row expressions: a Polars expression, and the condition under which the row path would raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import polars as pl

from headrace.expr.functions.arithmetic import RANGES
from headrace.expr.types import DataType
from headrace.expr.typing_rules import CallTerm, LiteralTerm, Term

Bounds: TypeAlias = tuple[int, int]
"""Least and greatest integer that a column may hold, ignoring nulls."""


@dataclass(frozen=True, slots=True)
class LoweredExpression:
    """A lowered expression over the columns of a frame.

    bounds: bounds of an integer; None for other types.
    fails:  true on each row on which the row path might raise; None if it cannot.
    once:   of what is not to be repeated, the value, or a struct of the value and the failure, "v" and "f".
    """

    value: pl.Expr
    bounds: Bounds | None = None
    fails: pl.Expr | None = None
    once: pl.Expr | None = None


Lowering: TypeAlias = Callable[[CallTerm, Sequence[LoweredExpression]], LoweredExpression]
"""Function that lowers a call of a catalogue function, given its lowered arguments.

Of a strict function the failures of its arguments are added by the caller; a
lazy one says itself on which rows an argument is evaluated at all.
"""


def either_condition(*conditions: pl.Expr | None) -> pl.Expr | None:
    """Combine conditions by "or"; None if there are none."""
    given = [c for c in conditions if c is not None]
    return reduce(lambda a, b: a | b, given) if given else None


def restrict_failure(condition: pl.Expr, fails: pl.Expr | None) -> pl.Expr | None:
    """Restrict a failure condition to rows where `condition` is true."""
    return None if fails is None else condition & fails


def replace_negative_zero(value: pl.Expr) -> pl.Expr:
    """Replace -0.0 with 0.0 in a float column. (Adding 0.0 does not help: Polars skips it.)"""
    return pl.when(value == 0.0).then(pl.lit(0.0)).otherwise(value)


def spread(value: pl.Expr | float, beside: pl.Expr, dtype: pl.DataType | None = None) -> pl.Expr:
    """Return floats with one for each row of `beside`, the same numbers, though they be one for all rows.

    With one for all rows Polars takes short cuts: it adds no 0.0, which turns -0.0 into 0.0,
    and multiplies by the reciprocal of a divisor, which is off in the last bit.
    """
    return (beside.is_null().cast(dtype or pl.Float64()) * 0.0 + 1.0) * value


def quotient(dividend: pl.Expr, divisor: pl.Expr | float) -> pl.Expr:
    """Divide floats of 64 bits, of which the divisor is not 0."""
    return dividend / spread(divisor, dividend)


def constant_value(term: Term) -> object:
    """Return the value of a constant term; None for any other term."""
    return term.value if isinstance(term, LiteralTerm) else None


def bounds_of(lowered: LoweredExpression) -> Bounds:
    """Return the bounds of a lowered integer."""
    assert lowered.bounds is not None
    return lowered.bounds


def bounds_hull(lowered: Sequence[LoweredExpression]) -> Bounds | None:
    """Return the smallest bounds that contain all the given ones; None for non-integers."""
    known = [one.bounds for one in lowered if one.bounds is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def lower_bounded_integer(
    value: pl.Expr, bounds: Bounds, type: DataType, might_leave: Callable[[], pl.Expr]
) -> LoweredExpression:
    """Lower an integer of `type` whose exact value lies within `bounds`.

    might_leave: true on each row where the exact value leaves the type; asked
    only where the bounds do not rule it out.
    """
    low, high = RANGES[type]
    if low <= bounds[0] and bounds[1] <= high:
        return LoweredExpression(value, bounds)
    # Beyond the type nothing is right, and nothing is used: the tick runs in rows.
    return LoweredExpression(value, (low, high), might_leave())
