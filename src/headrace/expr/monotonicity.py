"""Monotonicity of expressions in one of their columns.

`col.at.tumble("10s")` never decreases while `at` rises; `-col.v` never increases. Nulls are ignored, and
"increasing" includes constant.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import singledispatch

from headrace.expr.check import checked_tree
from headrace.expr.tree import Expr
from headrace.expr.types import (
    DATE,
    FLOAT64,
    INTEGERS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Schema,
)
from headrace.expr.typing_rules import CallTerm, ColumnTerm, LiteralTerm, Term


class Monotonicity(Enum):
    """Direction in which a value moves while a column rises."""

    CONSTANT = "constant"
    INCREASING = "increasing"
    DECREASING = "decreasing"
    UNKNOWN = "unknown"

    def flipped(self) -> Monotonicity:
        """Return the monotonicity of the negated value."""
        return _FLIPPED.get(self, self)

    def with_(self, other: Monotonicity) -> Monotonicity:
        """Return the monotonicity of a sum, or of any function that rises in both arguments."""
        if Monotonicity.CONSTANT in (self, other):
            return other if self is Monotonicity.CONSTANT else self
        return self if self is other else Monotonicity.UNKNOWN


CONSTANT, INCREASING, DECREASING, UNKNOWN = Monotonicity
_FLIPPED = {INCREASING: DECREASING, DECREASING: INCREASING}
_ORDERED = (*INTEGERS, FLOAT64, DATE, TIMESTAMP, TIMESTAMP_NTZ)


def monotonicity(expr: Expr, schema: Schema, column: str) -> Monotonicity:
    """Determine how `expr` moves while `column` rises and all other columns stay the same.

    Raises like `headrace.expr.check.check`.
    """
    return _of(checked_tree(expr, schema), column)


@singledispatch
def _of(term: Term, column: str) -> Monotonicity:
    return CONSTANT


@_of.register(ColumnTerm)
def _column(term: ColumnTerm, column: str) -> Monotonicity:
    return INCREASING if term.name == column else CONSTANT


@_of.register(CallTerm)
def _call(term: CallTerm, column: str) -> Monotonicity:
    moves = tuple(_of(a, column) for a in term.arguments)
    if all(move is CONSTANT for move in moves):
        return CONSTANT
    rule = _RULES.get(term.function.name)
    return UNKNOWN if rule is None else rule(term, moves)


Moves = tuple[Monotonicity, ...]


def _with_all(term: CallTerm, moves: Moves) -> Monotonicity:
    whole = CONSTANT
    for move in moves:
        whole = whole.with_(move)
    return whole


def _first_against_second(term: CallTerm, moves: Moves) -> Monotonicity:
    return moves[0].with_(moves[1].flipped())


def _negative(term: CallTerm, moves: Moves) -> Monotonicity:
    return moves[0].flipped()


def _by_sign(term: CallTerm, moves: Moves) -> Monotonicity:
    """Return the monotonicity of a product or quotient with a constant."""
    one, other = term.arguments
    constant, move = (other, moves[0]) if moves[1] is CONSTANT else (one, moves[1])
    quotient = term.function.name != "multiply"
    if not isinstance(constant, LiteralTerm) or (quotient and moves[1] is not CONSTANT):
        return UNKNOWN
    sign = constant.value
    if not isinstance(sign, int | float) or sign != sign:
        return UNKNOWN
    return move if sign >= 0 else move.flipped()


def _if_ordered(term: CallTerm, moves: Moves) -> Monotonicity:
    """Return the monotonicity of a cast, which must preserve the order of values."""
    types = (term.arguments[0].type, term.type)
    return moves[0] if all(map(_is_ordered, types)) else UNKNOWN


def _is_ordered(type: DataType) -> bool:
    return type in _ORDERED or isinstance(type, DecimalType)


_RULES: dict[str, Callable[[CallTerm, Moves], Monotonicity]] = {
    "add": lambda term, moves: _with_all(term, moves) if _is_ordered(term.type) else UNKNOWN,
    "subtract": _first_against_second,
    "multiply": _by_sign,
    "divide": _by_sign,
    "div": _by_sign,
    "negate": _negative,
    "cast": _if_ordered,
    **dict.fromkeys(("micros_since", "seconds_since", "days_since"), _first_against_second),
    **dict.fromkeys(("round", "floor", "ceil", "round_floor", "round_ceil", "least", "greatest"), _with_all),
    **dict.fromkeys(("shift", "tumble", "truncate", "year"), _with_all),
}
