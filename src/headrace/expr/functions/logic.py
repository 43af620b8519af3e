"""Three-valued logic, null tests, conditionals, and errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.errors import EvaluationError
from headrace.expr.function_records import fitting_type, function, of_spark_column, of_spark_columns
from headrace.expr.polars_columns import (
    LoweredExpression,
    bounds_hull,
    dtype_of,
    either_condition,
    restrict_failure,
    unscaled_bounds,
)
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import BOOL, STR
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
    is_float,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


def _need_bools(what: str, arguments: Arguments) -> None:
    for argument in arguments:
        if argument.type not in (BOOL, NULL):
            raise Mismatch(
                f"{what} needs true or false, got {argument.type}",
                fix="compare first, and put the comparison in brackets: (a == 1) & (b == 2)",
            )


def _logic_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    _need_bools("& or |" if len(arguments) > 1 else "~", arguments)
    return Signature((BOOL,) * len(arguments), BOOL)


def _and(emitter: Emitter, call: CallTerm) -> GuardedSource:
    left, right = call.arguments
    a, b = emitter.value(left), emitter.value(right)
    if not left.nullable:
        return GuardedSource(f"({a} and {b})")
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return GuardedSource(f"(False if {first_a} is False else {a} if {first_b} else {b})")


def _or(emitter: Emitter, call: CallTerm) -> GuardedSource:
    left, right = call.arguments
    a, b = emitter.value(left), emitter.value(right)
    if not left.nullable:
        return GuardedSource(f"({a} or {b})")
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return GuardedSource(f"(True if {first_a} else {a} if {first_b} is False else {b})")


def _and_true(emitter: Emitter, call: CallTerm) -> str:
    return f"({' and '.join(emitter.truth_test(a) for a in call.arguments)})"


def _and_false(emitter: Emitter, call: CallTerm) -> str:
    return f"({' or '.join(emitter.falsity_test(a) for a in call.arguments)})"


def _or_true(emitter: Emitter, call: CallTerm) -> str:
    return f"({' or '.join(emitter.truth_test(a) for a in call.arguments)})"


def _or_false(emitter: Emitter, call: CallTerm) -> str:
    return f"({' and '.join(emitter.falsity_test(a) for a in call.arguments)})"


def _not(emitter: Emitter, call: CallTerm) -> GuardedSource:
    code = emitter.code(call.arguments[0])
    return GuardedSource(f"(not {code.source})", code.guards)


def _not_true(emitter: Emitter, call: CallTerm) -> str:
    return emitter.falsity_test(call.arguments[0])


def _not_false(emitter: Emitter, call: CallTerm) -> str:
    return emitter.truth_test(call.arguments[0])


def _null_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,) = arguments
    wanted = BOOL if argument.type == NULL else argument.type
    return Signature((wanted,), BOOL, nullable=False)


def _is_null(emitter: Emitter, call: CallTerm) -> GuardedSource:
    return GuardedSource(emitter.is_null(call.arguments[0]))


def _is_not_null(emitter: Emitter, call: CallTerm) -> GuardedSource:
    return GuardedSource(emitter.is_not_null(call.arguments[0]))


def _nan_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if not is_float(arguments[0].type):
        raise Mismatch(f"is_nan needs a float, got {arguments[0].type}", fix="only floats can be NaN")
    return Signature((arguments[0].type,), BOOL, nullable=False)


def _is_nan(emitter: Emitter, call: CallTerm) -> GuardedSource:
    # None equals itself, so only NaN differs from itself.
    first, again = emitter.name_value(emitter.value(call.arguments[0]))
    return GuardedSource(f"({first} != {again})")


def _coalesce_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if not arguments:
        raise Mismatch("coalesce needs at least one value")
    common = common_type(arguments)
    return Signature((common,) * len(arguments), common, all(a.nullable for a in arguments))


def _coalesce(emitter: Emitter, call: CallTerm) -> GuardedSource:
    *tried, last = call.arguments
    source = emitter.value(last)
    for term in reversed(tried):
        if not term.nullable:
            source = emitter.value(term)
            continue
        first, again = emitter.name_value(emitter.value(term))
        source = f"({again} if {first} is not None else {source})"
    return GuardedSource(source)


def _when_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    """Typing rule of `when`. Arguments: condition, value, condition, value, ..., default value."""
    *pairs, otherwise = arguments
    conditions, values = tuple(pairs[::2]), tuple(pairs[1::2])
    _need_bools("when", conditions)
    common = common_type((*values, otherwise))
    wanted = tuple(t for _ in conditions for t in (BOOL, common))
    return Signature((*wanted, common), common, any(v.nullable for v in (*values, otherwise)))


def _when(emitter: Emitter, call: CallTerm) -> GuardedSource:
    *pairs, otherwise = call.arguments
    source = ""
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        source += f"{emitter.value(value)} if {emitter.truth_test(condition)} else "
    return GuardedSource(f"({source}{emitter.value(otherwise)})")


def _raise_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    # It has no value, so it stands where any type is wanted: `check` gives it that type.
    return Signature((fitting_type("raise_error", arguments[0].type, STR),), NULL, nullable=True)


def _raise(emitter: Emitter, call: CallTerm) -> GuardedSource:
    return GuardedSource(f"x_raise_error({emitter.value(call.arguments[0])})")


def raise_error(message: str | None) -> NoReturn:
    """Raise an `EvaluationError` with the given text; null becomes `null`, as on Spark."""
    raise EvaluationError(
        "null" if message is None else message, fix="correct the row, or filter it out before this operator"
    )


# -- on columns -------------------------------------------------------------------------------


def _and_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = arguments
    reached = one.value.fill_null(True)
    return LoweredExpression(
        one.value & other.value, None, either_condition(one.fails, restrict_failure(reached, other.fails))
    )


def _or_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = arguments
    reached = ~one.value.fill_null(False)
    return LoweredExpression(
        one.value | other.value, None, either_condition(one.fails, restrict_failure(reached, other.fails))
    )


def _not_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(~arguments[0].value, None, arguments[0].fails)


def _is_null_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(arguments[0].value.is_null(), None, arguments[0].fails)


def _is_not_null_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(arguments[0].value.is_not_null(), None, arguments[0].fails)


def _is_nan_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(arguments[0].value.is_nan().fill_null(False), None, arguments[0].fails)


def _coalesce_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    fails: pl.Expr | None = None
    for at, argument in enumerate(arguments):
        if argument.fails is not None:
            reached = [earlier.value.is_null() for earlier in arguments[:at]]
            fails = either_condition(
                fails, pl.all_horizontal(*reached, argument.fails) if reached else argument.fails
            )
    return LoweredExpression(pl.coalesce([a.value for a in arguments]), bounds_hull(arguments), fails)


def _when_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    *pairs, otherwise = arguments
    value, fails = otherwise.value, otherwise.fails
    for condition, chosen in zip(pairs[-2::-2], pairs[::-2], strict=True):
        true = condition.value.fill_null(False)
        value = pl.when(condition.value).then(chosen.value).otherwise(value)
        fails = either_condition(
            condition.fails, restrict_failure(true, chosen.fails), restrict_failure(~true, fails)
        )
    return LoweredExpression(value, bounds_hull([*pairs[1::2], otherwise]), fails)


def _raised_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    bounds = None if unscaled_bounds(call.type) is None else (0, 0)
    return LoweredExpression(pl.lit(None, dtype=dtype_of(call.type)), bounds, pl.lit(True))


# -- on Spark ---------------------------------------------------------------------------------


def _when_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    *pairs, otherwise = arguments
    cases = F.when(pairs[0], pairs[1])
    for condition, value in zip(pairs[2::2], pairs[3::2], strict=True):
        cases = cases.when(condition, value)
    return cases.otherwise(otherwise)


def _raise_error_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return F.raise_error(arguments[0]).cast(spark_type(call.type))


NAMES: dict[str, Any] = {
    "x_raise_error": raise_error,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "and",
        types=_logic_rule,
        lazy=_and,
        true=_and_true,
        false=_and_false,
        arity=(2, 2),
        catalyst="And",
        columns=_and_columns,
        spark=of_spark_columns(lambda a, b: a & b),
    ),
    function(
        "or",
        types=_logic_rule,
        lazy=_or,
        true=_or_true,
        false=_or_false,
        arity=(2, 2),
        catalyst="Or",
        columns=_or_columns,
        spark=of_spark_columns(lambda a, b: a | b),
    ),
    function(
        "not",
        types=_logic_rule,
        lazy=_not,
        true=_not_true,
        false=_not_false,
        arity=(1, 1),
        catalyst="Not",
        columns=_not_columns,
        spark=of_spark_column(lambda a: ~a),
    ),
    function(
        "is_null",
        types=_null_rule,
        lazy=_is_null,
        arity=(1, 1),
        catalyst="IsNull",
        columns=_is_null_columns,
        takes_lists=True,
        spark="isnull",
    ),
    function(
        "is_not_null",
        types=_null_rule,
        lazy=_is_not_null,
        arity=(1, 1),
        catalyst="IsNotNull",
        columns=_is_not_null_columns,
        takes_lists=True,
        spark="isnotnull",
    ),
    function(
        "is_nan",
        types=_nan_rule,
        lazy=_is_nan,
        arity=(1, 1),
        catalyst="IsNaN",
        columns=_is_nan_columns,
        spark="isnan",
    ),
    function(
        "coalesce",
        types=_coalesce_rule,
        lazy=_coalesce,
        arity=(1, None),
        catalyst="Coalesce",
        columns=_coalesce_columns,
        keeps_size=True,
    ),
    function(
        "when",
        types=_when_rule,
        lazy=_when,
        arity=(3, None),
        step=2,
        columns=_when_columns,
        spark=_when_spark,
        keeps_size=True,
    ),
    function(
        "raise_error",
        "Raises an error with the text. It can stand for a value of any type.",
        types=_raise_rule,
        lazy=_raise,
        fallible=True,
        arity=(1, 1),
        shown_parameters="str",
        example="'too large'",
        columns=_raised_columns,
        spark=_raise_error_spark,
        keeps_size=True,
    ),
)
