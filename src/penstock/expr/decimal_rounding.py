"""Decimal results whose exact value may have more digits than their type holds.

A result has 38 digits at most. If its digits before and after the point need more, those after the point are
cut to six at least, as in Spark, and values are rounded. Quotients and means are rounded anyway, as they may
have infinitely many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.expr.check import checked_tree
from penstock.expr.tree import Expr
from penstock.expr.types import DecimalType, Schema
from penstock.expr.typing_rules import CallTerm, Term


def _larger_scale(a: DecimalType, b: DecimalType) -> int:
    return max(a.scale, b.scale)


_FULL_SCALES: dict[str, Callable[[DecimalType, DecimalType], int]] = {
    "add": _larger_scale,
    "subtract": _larger_scale,
    "multiply": lambda a, b: a.scale + b.scale,
    "divide": _larger_scale,
    "modulo": _larger_scale,
}
_ROUNDED_ANYWAY = "divide"


@dataclass(frozen=True, slots=True)
class DecimalRounding:
    """A decimal result that is rounded.

    full_scale: decimal places of the exact value or, for a quotient or a mean, of what goes into it.
    """

    type: DecimalType
    full_scale: int

    @property
    def is_cut(self) -> bool:
        """Whether the limit of 38 digits costs decimal places that all values may have."""
        return self.type.scale < self.full_scale

    def __str__(self) -> str:
        if self.is_cut:
            return f"keeps {self.type.scale} of {self.full_scale} decimal places"
        return f"is rounded to {self.type.scale} decimal places"


def roundings_of(expr: Expr, schema: Schema) -> Iterator[DecimalRounding]:
    """Yield the roundings within an expression. Raises like `check`."""
    yield from _within(checked_tree(expr, schema))


def _within(term: Term) -> Iterator[DecimalRounding]:
    if not isinstance(term, CallTerm):
        return
    for argument in term.arguments:
        yield from _within(argument)
    name, types = term.function.name, [a.type for a in term.arguments if isinstance(a.type, DecimalType)]
    if isinstance(term.type, DecimalType) and name in _FULL_SCALES and len(types) == 2:
        found = DecimalRounding(term.type, _FULL_SCALES[name](*types))
        if found.is_cut or name == _ROUNDED_ANYWAY:
            yield found
