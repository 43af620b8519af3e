"""Decimal products and sums whose exact value may have more digits than their type holds.

A result has 38 digits at most. If its digits before and after the point need more, those after the point are
cut to six at least, as in Spark, and values are rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.expr.check import checked_tree
from penstock.expr.tree import Expr
from penstock.expr.types import DecimalType, Schema
from penstock.expr.typing_rules import CallTerm, Term

_EXACT_SCALES: dict[str, Callable[[list[int]], int]] = {"add": max, "subtract": max, "multiply": sum}


@dataclass(frozen=True, slots=True)
class DecimalRounding:
    """A product or sum that is rounded. exact_scale: digits after the point that its exact value may have."""

    type: DecimalType
    exact_scale: int


def roundings_of(expr: Expr, schema: Schema) -> Iterator[DecimalRounding]:
    """Yield the roundings within an expression. Raises like `check`."""
    yield from _within(checked_tree(expr, schema))


def _within(term: Term) -> Iterator[DecimalRounding]:
    if not isinstance(term, CallTerm):
        return
    for argument in term.arguments:
        yield from _within(argument)
    scales = [a.type.scale for a in term.arguments if isinstance(a.type, DecimalType)]
    if isinstance(term.type, DecimalType) and term.function.name in _EXACT_SCALES and scales:
        exact = _EXACT_SCALES[term.function.name](scales)
        if term.type.scale < exact:
            yield DecimalRounding(term.type, exact)
