"""Type checker of expressions: resolves names, types and nullability without data.

The monotonicity of an expression in one of its columns: `col.at.tumble("10s")` never decreases while `at`
rises; `-col.v` never increases. Nulls are ignored, and "increasing" includes constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from functools import singledispatch
from typing import cast

from headrace.errors import SourceLocation, UnknownColumn, WrongType, did_you_mean
from headrace.expr.code_runtime import float32, float32_of_exact
from headrace.expr.constructors import is_lambda
from headrace.expr.expression_text import canonical_constant, constant_text, fit_number, literal_type
from headrace.expr.function_records import HigherOrderFunction, may_raise
from headrace.expr.functions import CATALOGUE
from headrace.expr.functions.casts import CAST
from headrace.expr.functions.intervals import cut
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import (
    DATE,
    FLOAT64,
    INT64,
    INTEGERS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Float32Type,
    Float64Type,
    FloatingType,
    IntervalType,
    Schema,
    holds_maps,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    ColumnTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Term,
    TypeAndNullability,
)

__all__ = [
    "TypeAndNullability",
    "can_fail",
    "check",
    "check_ordered",
    "checked_tree",
]


def check(expr: Expr, schema: Schema) -> TypeAndNullability:
    """Return the type and nullability of an expression over rows of `schema`.

    Raises `UnknownColumn` for an unknown name, and `WrongType` for unsuitable arguments of a function.
    """
    term = checked_tree(expr, schema)
    return TypeAndNullability(term.type, term.nullable)


def check_ordered(expr: Expr, schema: Schema) -> TypeAndNullability:
    """Return the type of an expression whose values have an order.

    Raises like `check`, and `WrongType` for maps.
    """
    typed = check(expr, schema)
    if holds_maps(typed.type):
        raise WrongType(
            f"{expr} is {typed.type}, which has no order",
            where=[SourceLocation.of_caller()],
            why="Maps with their entries in another order are equal, and Spark orders none.",
            fix="take a value of the map, or its sorted entries: array_sort(map_entries(col.m))",
        )
    return typed


def checked_tree(expr: Expr, schema: Schema) -> Term:
    """Type-check an expression and return its checked tree. Raises like `check`."""
    term = _term(expr, _Scope(schema))
    if term.type == NULL:
        raise WrongType(
            f"the type of {expr} is not known",
            where=[SourceLocation.of_caller()],
            why="A bare null can be of any type."
            if isinstance(term, LiteralTerm)
            else "It can be of any type.",
            fix="name it: hr.lit(None, int)" if isinstance(term, LiteralTerm) else "name it: .cast(int)",
        )
    return term


def can_fail(expr: Expr, schema: Schema) -> bool:
    """Return whether `expr` can raise for some row of `schema`: overflow, division by zero, a bad cast.

    Raises like `check`.
    """
    return may_raise(checked_tree(expr, schema))


@dataclass(frozen=True, slots=True)
class _Scope:
    """Names that an expression may use: columns, and the variables of enclosing lambdas.

    numbered: how many variables the functions around it have.
    """

    schema: Schema
    variables: Mapping[str, Term] = field(default_factory=dict[str, Term])
    numbered: int = 0


@singledispatch
def _term(expr: Expr, scope: _Scope) -> Term:
    raise TypeError(f"not an expression: {type(expr).__name__}")


@_term.register(Column)
def _column(expr: Column, scope: _Scope) -> Term:
    schema = scope.schema
    if expr.side is not None:
        raise WrongType(
            f"{expr.side}.{expr.name} stands outside a join condition",
            where=[SourceLocation.of_caller()],
            why="Only a join has a left and a right side.",
            fix=f"hr.col.{expr.name}",
        )
    at = schema.position(expr.name)
    if at is None:
        raise UnknownColumn(
            f"no column {expr.name!r}",
            where=[SourceLocation.of_caller()],
            why=f"The columns are {', '.join(schema.names)}.",
            fix=did_you_mean(expr.name, schema.names) or "use a column that is there",
            column=expr.name,
            columns=schema.names,
        )
    field = schema.fields[at]
    return ColumnTerm(field.type, field.nullable, at, field.name)


@_term.register(Literal)
def _literal(expr: Literal, scope: _Scope) -> Term:
    found = literal_type(expr.value)
    if found is None:
        raise WrongType(
            f"{expr.value!r} ({type(expr.value).__name__}) is not a supported column value",
            where=[SourceLocation.of_caller()],
            why="Constants are bool, int, float, Decimal, str, bytes, date, datetime, None, and timedelta\n"
            "within 64 bits of microseconds.",
            fix="compute with the values of a row by col, or with whole rows in map()",
        )
    value = canonical_constant(expr.value)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _no_constant(expr, "It does not fit int64.")
    adapts = expr.type is None and found in (INT64, TIMESTAMP_NTZ)
    term = LiteralTerm(found, value is None, value, adapts)
    if expr.type is None:
        return term
    typed = _as_constant(term, expr.type)
    if typed is None:
        raise _no_constant(expr, _NO_ZONE if is_naive(found, expr.type) else "It would be another value.")
    return typed


_NO_ZONE = "It has no time zone: give one, such as tzinfo=timezone.utc."


def is_naive(found: DataType, wanted: DataType) -> bool:
    """Return whether a timestamp without a zone is given where one with a zone is required."""
    return found == TIMESTAMP_NTZ and wanted == TIMESTAMP


def _no_constant(expr: Literal, why: str) -> WrongType:
    wanted = "" if expr.type is None else f" of type {expr.type}"
    return WrongType(
        f"{constant_text(expr.value)} cannot be a constant{wanted}",
        where=[SourceLocation.of_caller()],
        why=why,
    )


@_term.register(FunctionCall)
def _call(expr: FunctionCall, scope: _Scope) -> Term:
    if expr.function == "variable":
        return _variable(expr, scope)
    function = CATALOGUE[expr.function]
    arguments: Arguments = ()
    try:
        for each in expr.arguments:
            given = _lambda(each, function, arguments, scope) if is_lambda(each) else _term(each, scope)
            arguments = (*arguments, given)
        signature = function.rule(arguments, expr.options)
        constant = _cast_constant(function, arguments, signature.result)
        if constant is not None:
            return constant
        wanted = zip(arguments, signature.arguments, strict=True)
        arguments = tuple(_converted(a, t) for a, t in wanted)
    except Mismatch as mismatch:
        raise WrongType(
            f"{mismatch.what} in {expr}",
            where=[SourceLocation.of_caller()],
            why=mismatch.why,
            fix=mismatch.fix,
        ) from None
    nullable = signature.nullable
    if nullable is None:
        nullable = any(a.nullable for a in arguments)
    return CallTerm(signature.result, nullable, function, arguments, expr.options)


def _cast_constant(function: Function, arguments: Arguments, wanted: DataType) -> LiteralTerm | None:
    """Fold a cast of a constant; None for any other call, or if that changes its value."""
    if function is not CAST or not isinstance(arguments[0], LiteralTerm):
        return None
    return _as_constant(arguments[0], wanted)


# -- functions within expressions -----------------------------------------------------------------


def _variable(expr: FunctionCall, scope: _Scope) -> Term:
    name = cast("str", expr.options[0])
    if name not in scope.variables:
        raise WrongType(
            f"the variable {name} is used outside of its function",
            where=[SourceLocation.of_caller()],
            why="It is a value only while that function is applied to an element.",
            fix="use it within the function, which may return a struct",
        )
    return scope.variables[name]


def _lambda(expr: Expr, function: Function, before: Arguments, scope: _Scope) -> Term:
    """Return the term of a lambda argument. Its options are the Python names of its variables."""
    assert isinstance(expr, FunctionCall)
    if not isinstance(function, HigherOrderFunction):
        raise Mismatch(f"{function.name} takes no function")
    names, given = cast("tuple[str, ...]", expr.options[0]), function.parameters(before)
    if not 1 <= len(names) <= len(given):
        raise Mismatch(f"{function.name} calls a function with {len(given)} arguments, not {len(names)}")
    if len(set(names)) < len(names):
        raise Mismatch(f"{function.name} calls a function with arguments of one name: {', '.join(names)}")
    numbered = scope.numbered + len(names)
    inside, sources = dict(scope.variables), tuple(f"x_v{at}" for at in range(scope.numbered, numbered))
    for name, source, each in zip(names, sources, given, strict=False):
        inside[name] = CallTerm(each.type, each.nullable, CATALOGUE["variable"], (), (source,))
    body = _term(expr.arguments[0], replace(scope, variables=inside, numbered=numbered))
    return CallTerm(body.type, body.nullable, CATALOGUE["lambda"], (body,), sources)


# -- implicit conversions -------------------------------------------------------------------------


def _as_constant(term: LiteralTerm, wanted: DataType) -> LiteralTerm | None:
    """Convert a constant to type `wanted`, or return None if that changes its value."""
    if term.value is None or term.type == wanted:
        return replace(term, type=wanted, adapts=False)
    if isinstance(wanted, IntervalType) and isinstance(term.value, timedelta):
        return LiteralTerm(wanted, False, term.value) if cut(term.value, wanted.last) == term.value else None
    value = fit_number(term.value, wanted)
    if value is not None:
        return LiteralTerm(wanted, False, value)
    is_exact = isinstance(term.value, int | Decimal) and not isinstance(term.value, bool)
    if isinstance(wanted, Float64Type) and is_exact:
        return LiteralTerm(wanted, False, float(cast("int | Decimal", term.value)))
    if isinstance(wanted, Float32Type) and (is_exact or isinstance(term.value, float)):
        value = cast("int | Decimal | float", term.value)
        made = float32(value) if isinstance(value, float) else float32_of_exact(value)
        return LiteralTerm(wanted, False, made)
    return None


def _converted(term: Term, wanted: DataType) -> Term:
    """Convert `term` to type `wanted`: constants directly, all others by a cast. Raises `Mismatch`."""
    if term.type == wanted:
        return term
    if isinstance(term, CallTerm) and term.function.name == "lambda":
        body = _converted(term.arguments[0], wanted)
        return replace(term, type=wanted, nullable=body.nullable, arguments=(body,))
    if isinstance(term, CallTerm) and term.function.name == "raise_error":
        return replace(term, type=wanted)
    if isinstance(term, LiteralTerm):
        constant = _as_constant(term, wanted)
        if constant is not None:
            return constant
        if term.adapts and is_naive(term.type, wanted):
            raise Mismatch(
                f"{constant_text(term.value)} has no time zone",
                fix="give it one, such as tzinfo=timezone.utc",
            )
    signature = CAST.rule((term,), (wanted,))
    narrows = isinstance(term.type, DecimalType) and not isinstance(wanted, DecimalType | FloatingType)
    if term.type == NULL or narrows:
        raise Mismatch(f"{term.type} is no {wanted}")
    return CallTerm(wanted, bool(signature.nullable) or term.nullable, CAST, (term,), (wanted,))


class Monotonicity(Enum):
    """Direction in which a value changes as a column increases."""

    CONSTANT = "constant"
    INCREASING = "increasing"
    DECREASING = "decreasing"
    UNKNOWN = "unknown"

    def flipped(self) -> Monotonicity:
        """Return the monotonicity of the negated value."""
        return _FLIPPED.get(self, self)

    def with_(self, other: Monotonicity) -> Monotonicity:
        """Return the monotonicity of a sum, or of any function that increases in both arguments."""
        if Monotonicity.CONSTANT in (self, other):
            return other if self is Monotonicity.CONSTANT else self
        return self if self is other else Monotonicity.UNKNOWN


CONSTANT, INCREASING, DECREASING, UNKNOWN = Monotonicity
_FLIPPED = {INCREASING: DECREASING, DECREASING: INCREASING}
_ORDERED = (*INTEGERS, FLOAT64, DATE, TIMESTAMP, TIMESTAMP_NTZ)


def monotonicity(expr: Expr, schema: Schema, column: str) -> Monotonicity:
    """Determine how `expr` changes as `column` increases and all other columns stay the same.

    Raises like `headrace.expr.check.check`.
    """
    return _of(checked_tree(expr, schema), column)


@singledispatch
def _of(term: Term, column: str) -> Monotonicity:
    return CONSTANT


@_of.register(ColumnTerm)
def _column_monotonicity(term: ColumnTerm, column: str) -> Monotonicity:
    return INCREASING if term.name == column else CONSTANT


@_of.register(CallTerm)
def _call_monotonicity(term: CallTerm, column: str) -> Monotonicity:
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
    """Return the monotonicity of a cast, provided that it preserves the order of values."""
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
