"""Functions that return null where others raise: `try_add`, `try_cast`, `try_eval`.

Of most, only an error of the function itself becomes null, and errors of its arguments are raised, as in
Spark. `try_eval` is Spark's `TryEval`: null where evaluating its argument fails anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.expression_text import literal_source
from headrace.expr.function_records import (
    StrictFunction,
    function,
    holds_for,
    may_raise,
    of_spark_columns,
)
from headrace.expr.functions import arithmetic, casts, numbers
from headrace.expr.functions.arithmetic import tried_spark
from headrace.expr.functions.cast_columns import try_cast_column
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    either_condition,
)
from headrace.expr.types import BOOL, BYTES, STR, TIMESTAMP, DecimalType, ListType, MapType, StructType
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    LiteralTerm,
    Mismatch,
    Signature,
    SparkForm,
    Term,
    exact_as_decimal,
    is_float,
    is_integer,
)
from headrace.requirements import F

if TYPE_CHECKING:
    from pyspark.sql import Column


def _of_failing(tried: Function, catalyst: str | tuple[str, ...], spark: SparkForm) -> Function:
    """Return the variant of a function that returns null instead of raising."""
    assert isinstance(tried, StrictFunction)
    name = f"try_{tried.name}"

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        signature = tried.rule(arguments, options)
        _refuse_without_failure(name, arguments, signature)
        call = CallTerm(signature.result, True, tried, _typed(signature), options)
        return Signature(signature.arguments, signature.result, True if _fails(tried, call) else None)

    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        constants = [_constant(each) for each in call.arguments]
        names = [inline or emitter.fresh() for inline in constants]
        named = [
            (name, each)
            for name, each, inline in zip(names, call.arguments, constants, strict=True)
            if inline is None
        ]
        tests = [_null_test(emitter, name, each) for name, each in named]
        if holds_for(tried.last_first, call) and constants[-1] in (None, "0", "0.0", "-0.0"):
            # A divisor of zero gives null before the dividend is evaluated.
            divisor = constants[-1] or f"({names[-1]} := {emitter.value(call.arguments[-1])})"
            tests = [f"not {divisor}", *(tests if constants[-1] else tests[:-1])]
        bound = [name for name, _ in named]
        parameters = ", ".join(bound)
        source = tried.python(emitter, call, tuple(names))
        attempt = f"x_try({', '.join((f'lambda {parameters}: {source}', *bound))})"
        guarded = f"(None if {' or '.join(tests)} else {attempt})" if tests else attempt
        return GuardedSource(guarded, (), not is_float(call.type))

    return function(
        name,
        types=rule,
        lazy=python,
        fallible=True,
        arity=tried.arity,
        options=tried.options,
        catalyst=catalyst,
        columns=_tried_columns(tried),
        spark=spark,
        keeps_size=True,
    )


def _constant(term: Term) -> str | None:
    """Return the source of a constant that needs no name."""
    return literal_source(term.value) if isinstance(term, LiteralTerm) and term.value is not None else None


def _null_test(emitter: Emitter, name: str, term: Term) -> str:
    """Return source that binds an argument to a name and is truthy if it is null."""
    bound = f"({name} := {emitter.value(term)})"
    return f"{bound} is None" if term.nullable else f"({bound}, False)[1]"


def _typed(signature: Signature) -> Arguments:
    return tuple(Term(type, False) for type in signature.arguments)


def _fails(function: StrictFunction, call: CallTerm) -> bool:
    """Return whether a call can fail: arithmetic on floats cannot, other than by division."""
    if not holds_for(function.last_first, call) and is_float(call.type) and function is not casts.CAST:
        return False
    source = call.arguments[0].type
    if function is casts.CAST and (is_integer(source) or source == BOOL):
        if call.type == TIMESTAMP:
            return False  # Spark has them all; those outside the years 1 to 9999 raise
        if isinstance(call.type, DecimalType):
            digits = 1 if source == BOOL else exact_as_decimal(source).precision
            return call.type.precision - call.type.scale < digits
    if function is casts.CAST and isinstance(source, DecimalType) and isinstance(call.type, DecimalType):
        whole, places = call.type.precision - call.type.scale, call.type.scale
        if whole >= source.precision - source.scale and places >= source.scale:
            return False
    return holds_for(function.fallible, call)


def _refuse_without_failure(name: str, arguments: Arguments, signature: Signature) -> None:
    if name == "try_cast" and isinstance(signature.result, MapType):
        raise Mismatch(
            "try_cast does not convert maps", fix="try_cast its values: transform_values(m, lambda k, v: ...)"
        )
    if name == "try_cast" and isinstance(signature.result, ListType):
        raise Mismatch("try_cast of a list", fix="try_cast its elements: transform(xs, lambda x: ...)")
    if name == "try_cast" and isinstance(signature.result, StructType):
        raise Mismatch("try_cast of a struct", fix="try_cast its fields: struct(...)")
    if name == "try_add" and signature.result == STR:
        raise Mismatch("try_add needs numbers, got text", fix="concat(...)")
    if signature.arguments[0] == BYTES and signature.result == STR:
        raise Mismatch(
            "try_cast from bytes to str",
            why="Spark makes text of any bytes, which is not null where they are not UTF-8.",
            fix="cast(str), which raises there",
        )


def _try_eval_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (value,) = arguments
    return Signature((value.type,), value.type, True if may_raise(value) else None)


def _try_eval(emitter: Emitter, call: CallTerm) -> GuardedSource:
    (value,) = call.arguments
    if not may_raise(value):
        return emitter.code(value)
    return GuardedSource(f"x_try(lambda: {emitter.value(value)})")


def null_on_error(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value, or None on failure. Raises for a time that Spark supports and Python does not."""
    try:
        return function(*arguments)
    except EvaluationError as error:
        if error.facts.get("beyond_years"):
            raise
        return None


# -- on columns -------------------------------------------------------------------------------


def _tried_columns(function: Function) -> Lowering:
    lower = function.columns
    assert lower is not None

    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        made = lower(replace(call, function=function), arguments)
        return replace(made, fails=either_condition(*(a.fails for a in arguments), made.fails))

    return lowering


# -- on Spark ---------------------------------------------------------------------------------


def _try_eval_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    """Lower to Spark's `TryEval`, obtained from a sum with a date, around a list of the value.

    Within a function of elements, Spark does not compute what occurs twice before, outside of the `TryEval`.
    """
    (value,) = arguments
    values = F.transform(F.array(F.lit(0)), lambda _: value)
    evaluated = F.try_add(F.date_from_unix_date(F.lit(0)), F.size(values)).isNotNull()
    return F.when(evaluated, value)


NAMES: dict[str, Any] = {
    "x_try": null_on_error,
}


_ARITHMETIC = {each.name: each for each in (*arithmetic.FUNCTIONS, *numbers.DIVISIONS)}

FUNCTIONS: tuple[Function, ...] = (
    _of_failing(_ARITHMETIC["add"], "TryAdd", tried_spark("try_add")),
    _of_failing(_ARITHMETIC["subtract"], "TrySubtract", tried_spark("try_subtract")),
    _of_failing(_ARITHMETIC["multiply"], "TryMultiply", tried_spark("try_multiply")),
    _of_failing(_ARITHMETIC["divide"], "TryDivide", tried_spark("try_divide")),
    _of_failing(_ARITHMETIC["modulo"], "TryRemainder", of_spark_columns(lambda a, b: F.try_mod(a, b))),
    _of_failing(casts.CAST, (), try_cast_column),
    function(
        "try_eval",
        types=_try_eval_rule,
        lazy=_try_eval,
        arity=(1, 1),
        catalyst="TryEval",
        columns=lambda call, arguments: arguments[0],
        spark=_try_eval_spark,
    ),
)
