"""Functions that are null where others raise: `try_add`, `try_cast`, `try_eval`.

Of most, only an error of the function itself becomes null, and errors of its arguments are raised, as in
Spark. `try_eval` is Spark's `TryEval`: null where evaluating its argument fails anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.function_bases import (
    Emitter,
    GuardedSource,
    LazyFunction,
    StrictFunction,
    holds_for,
    may_raise,
)
from headrace.expr.functions import arithmetic, casts
from headrace.expr.literals import literal_source
from headrace.expr.types import BOOL, BYTES, STR, TIMESTAMP, DecimalType, ListType, MapType, StructType
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
    Term,
)
from headrace.expr.widening import exact_as_decimal, is_float, is_integer


def _of_failing(function: StrictFunction) -> LazyFunction:
    """Return the function that is null where another raises."""
    name = f"try_{function.name}"

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        signature = function.rule(arguments, options)
        _refuse_without_failure(name, arguments, signature)
        call = CallTerm(signature.result, True, function, _typed(signature), options)
        return Signature(signature.arguments, signature.result, True if _fails(function, call) else None)

    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        constants = [_constant(each) for each in call.arguments]
        names = [inline or emitter.fresh() for inline in constants]
        named = [
            (name, each)
            for name, each, inline in zip(names, call.arguments, constants, strict=True)
            if inline is None
        ]
        tests = [_null_test(emitter, name, each) for name, each in named]
        if holds_for(function.last_first, call) and constants[-1] in (None, "0", "0.0", "-0.0"):
            # A divisor of zero gives null before the dividend is evaluated.
            divisor = constants[-1] or f"({names[-1]} := {emitter.value(call.arguments[-1])})"
            tests = [f"not {divisor}", *(tests if constants[-1] else tests[:-1])]
        bound = [name for name, _ in named]
        parameters = ", ".join(bound)
        source = function.python(emitter, call, tuple(names))
        tried = f"x_try({', '.join((f'lambda {parameters}: {source}', *bound))})"
        guarded = f"(None if {' or '.join(tests)} else {tried})" if tests else tried
        return GuardedSource(guarded, (), not is_float(call.type))

    return LazyFunction(name, rule, python, fallible=True)


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
    """Return the value, or None where it fails. Raises for a time that Spark has and Python has not."""
    try:
        return function(*arguments)
    except EvaluationError as error:
        if error.facts.get("beyond_years"):
            raise
        return None


_FUNCTIONS = {function.name: function for function in (*arithmetic.FUNCTIONS, casts.CAST)}
_TRIED = ("add", "subtract", "multiply", "divide", "modulo", "cast")

NAMES: dict[str, Any] = {"x_try": null_on_error}


def _strict(name: str) -> StrictFunction:
    function = _FUNCTIONS[name]
    assert isinstance(function, StrictFunction)
    return function


FUNCTIONS: tuple[Function, ...] = (
    *(_of_failing(_strict(name)) for name in _TRIED),
    LazyFunction("try_eval", _try_eval_rule, _try_eval),
)
