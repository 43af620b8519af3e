"""Comparison operators. NaN equals NaN and is greater than every number, as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from headrace.expr.function_records import (
    StrictCode,
    function,
    of_spark_columns,
    refuse_maps,
)
from headrace.expr.functions.integer_columns import unscaled
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    either_condition,
    to_series,
)
from headrace.expr.types import BOOL, AnyType, DataType, DecimalType, holds_any, parts_of
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    LiteralTerm,
    Mismatch,
    Signature,
    Term,
    common_type,
    is_constant,
    is_float,
)
from headrace.expr.value_keys import order_key
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


def _equality(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    common = _known(common_type(arguments))
    refuse_maps("an expression", common)
    return Signature((common,) * len(arguments), BOOL)


def _known(common: DataType) -> DataType:
    # Null compared with null: any type will do.
    return BOOL if common == NULL else common


def _ordering(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    common = _known(common_type(arguments))
    refuse_unordered(common, fix="write a function: filter(lambda row: ...)")
    return Signature((common, common), BOOL)


def refuse_unordered(common: DataType, fix: str) -> None:
    """Raise `Mismatch` for values of a type that has no order in an expression."""
    refuse_maps("an expression", common)
    if holds_any(common):
        raise Mismatch(f"{common} has no order in an expression", fix=fix)


def _is_number(term: Term) -> bool:
    """Return whether a term is a float constant other than NaN."""
    return isinstance(term, LiteralTerm) and term.value == term.value


@dataclass(frozen=True, slots=True)
class _FloatComparison:
    """Source of a comparison of floats `{a}` and `{b}`, either of which may be NaN, the greatest.

    Python's comparisons are false for NaN. number_left, number_right: if that operand is a constant other
    than NaN, which spares a test. both: otherwise; the operands are evaluated at {first_a} and {first_b}.
    """

    number_left: str
    number_right: str
    both: str


_FLOATS = {
    "==": _FloatComparison(
        "({a} == {b})", "({a} == {b})", "({first_a} == {first_b} or ({a} != {a} and {b} != {b}))"
    ),
    "!=": _FloatComparison(
        "({a} != {b})", "({a} != {b})", "({first_a} != {first_b} and ({a} == {a} or {b} == {b}))"
    ),
    # `a <= b` is false if either is NaN; then a is greater unless b is NaN.
    ">": _FloatComparison("({a} > {b})", "(not {a} <= {b})", "(not {first_a} <= {first_b} and {b} == {b})"),
    "<": _FloatComparison("(not {a} >= {b})", "({a} < {b})", "(not {first_a} >= {first_b} and {a} == {a})"),
    ">=": _FloatComparison("({a} >= {b})", "(not {a} < {b})", "({first_a} >= {first_b} or {a} != {a})"),
    "<=": _FloatComparison("(not {a} > {b})", "({a} <= {b})", "({first_a} <= {first_b} or {b} != {b})"),
}


def _compare(symbol: str) -> StrictCode:
    def code(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        a, b = operands
        kind = call.arguments[0].type
        if is_float(kind):
            floats, (left, right) = _FLOATS[symbol], call.arguments
            if _is_number(left):
                return floats.number_left.format(a=a, b=b)
            if _is_number(right):
                return floats.number_right.format(a=a, b=b)
            (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
            return floats.both.format(a=a, b=b, first_a=first_a, first_b=first_b)
        if symbol not in ("==", "!=") and parts_of(kind):
            # Lists and structs, from the left; a null within them is less than any value.
            key = order_key(kind, False)
            if key is not None:
                a, b = (f"{emitter.constant(key)}({each})" for each in (a, b))
            return f"({a} {symbol} {b})"
        if isinstance(kind, AnyType):
            # Values of type any may both be NaN, which is a single object.
            (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
            joined = f"or {a} is {b}" if symbol == "==" else f"and {a} is not {b}"
            return f"({first_a} {symbol} {first_b} {joined})"
        return f"({a} {symbol} {b})"

    return code


def _same_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    common = _known(common_type(arguments))
    refuse_maps("an expression", common)
    return Signature((common, common), BOOL, nullable=False)


def _same(emitter: Emitter, call: CallTerm) -> GuardedSource:
    a, b = (emitter.value(t) for t in call.arguments)
    if not is_float(call.arguments[0].type) or is_constant(a) or is_constant(b):
        return GuardedSource(f"({a} == {b})")
    # Float values are canonical here, so NaN is a single object.
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return GuardedSource(f"({first_a} == {first_b} or {a} is {b})")


def _is_in(emitter: Emitter, call: CallTerm) -> GuardedSource:
    value, *options = call.arguments
    present = [o for o in options if not (isinstance(o, LiteralTerm) and o.value is None)]
    sources = [emitter.value(o) for o in present]
    constant = all(isinstance(o, LiteralTerm) for o in present)
    inside = _set(emitter, present, sources) if constant else f"({''.join(f'{s}, ' for s in sources)})"
    code = emitter.code(value)
    source = emitter.canonical(code)
    null_possible = len(present) < len(options) or any(o.nullable for o in present)
    if not null_possible:
        return GuardedSource(f"({source} in {inside})", code.guards)
    if constant:
        found = f"(True if {source} in {inside} else None)"
    else:
        name = emitter.fresh()
        found = f"(True if {source} in ({name} := {inside}) else None if None in {name} else False)"
        if len(present) < len(options):
            found = f"(True if {source} in {inside} else None)"
    # The result may be null even if the value is not: a single source without guards.
    if code.guards:
        nulls = " or ".join(f"{g} is None" for g in code.guards)
        found = f"(None if {nulls} else {found})"
    return GuardedSource(found)


def _set(emitter: Emitter, terms: list[Term], sources: list[str]) -> str:
    if not terms:
        return "()"
    if all(source.startswith(("'", "b'", "(-")) or source[0].isdigit() for source in sources):
        # Python compiles this to a frozenset constant.
        return "{" + ", ".join(dict.fromkeys(sources)) + "}"
    return emitter.constant(frozenset(t.value for t in terms if isinstance(t, LiteralTerm)))


def _is_in_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    common = _known(common_type(arguments))
    refuse_maps("is_in", common)
    return Signature((common,) * len(arguments), BOOL)


# -- on columns -------------------------------------------------------------------------------


def _compare_columns(compared: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        one, other = arguments
        if isinstance(call.arguments[0].type, DecimalType):  # of one scale
            return LoweredExpression(compared(unscaled(one).value, unscaled(other).value))
        return LoweredExpression(compared(one.value, other.value))

    return lowering


def _same_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = arguments
    return LoweredExpression(
        one.value.eq_missing(other.value), None, either_condition(one.fails, other.fails)
    )


def _is_in_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
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


# -- on Spark ---------------------------------------------------------------------------------


def _is_in_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    value, *options = arguments
    # Spark has no empty list; null in nothing is null here as in `null = x`.
    return value.isin(*options) if options else F.when(value.isNotNull(), F.lit(False))


_FEW = 4
"""Number of constants up to which comparing with each is as fast as looking a value up."""


FUNCTIONS: tuple[Function, ...] = (
    function(
        "eq",
        types=_equality,
        code=_compare("=="),
        arity=(2, 2),
        columns=_compare_columns(lambda a, b: a == b),
        spark=of_spark_columns(lambda a, b: a == b),
    ),
    function(
        "ne",
        types=_equality,
        code=_compare("!="),
        arity=(2, 2),
        columns=_compare_columns(lambda a, b: a != b),
        spark=of_spark_columns(lambda a, b: a != b),
    ),
    function(
        "lt",
        types=_ordering,
        code=_compare("<"),
        arity=(2, 2),
        columns=_compare_columns(lambda a, b: a < b),
        spark=of_spark_columns(lambda a, b: a < b),
    ),
    function(
        "le",
        types=_ordering,
        code=_compare("<="),
        arity=(2, 2),
        columns=_compare_columns(lambda a, b: a <= b),
        spark=of_spark_columns(lambda a, b: a <= b),
    ),
    function(
        "gt",
        types=_ordering,
        code=_compare(">"),
        arity=(2, 2),
        columns=_compare_columns(lambda a, b: a > b),
        spark=of_spark_columns(lambda a, b: a > b),
    ),
    function(
        "ge",
        types=_ordering,
        code=_compare(">="),
        arity=(2, 2),
        columns=_compare_columns(lambda a, b: a >= b),
        spark=of_spark_columns(lambda a, b: a >= b),
    ),
    function(
        "eq_null_safe",
        types=_same_rule,
        lazy=_same,
        arity=(2, 2),
        columns=_same_columns,
        spark=of_spark_columns(lambda a, b: a.eqNullSafe(b)),
    ),
    function(
        "is_in",
        types=_is_in_rule,
        lazy=_is_in,
        arity=(1, None),
        columns=_is_in_columns,
        spark=_is_in_spark,
        keeps_size=True,
    ),
)
