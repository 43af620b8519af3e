"""Three-valued logic, null tests, conditionals, and errors."""

from __future__ import annotations

from typing import Any, NoReturn

from headrace.errors import EvaluationError
from headrace.expr.function_bases import Emitter, GuardedSource, LazyFunction, fitting_type
from headrace.expr.types import BOOL, STR
from headrace.expr.typing_rules import NULL, Arguments, CallTerm, Function, Mismatch, Signature
from headrace.expr.widening import common_type, is_float


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
    """Raise an `EvaluationError` with a text, `null` for null as on Spark."""
    raise EvaluationError(
        "null" if message is None else message, fix="correct the row, or filter it out before this operator"
    )


NAMES: dict[str, Any] = {"x_raise_error": raise_error}

FUNCTIONS: tuple[Function, ...] = (
    LazyFunction("and", _logic_rule, _and, _and_true, _and_false),
    LazyFunction("or", _logic_rule, _or, _or_true, _or_false),
    LazyFunction("not", _logic_rule, _not, _not_true, _not_false),
    LazyFunction("is_null", _null_rule, _is_null),
    LazyFunction("is_not_null", _null_rule, _is_not_null),
    LazyFunction("is_nan", _nan_rule, _is_nan),
    LazyFunction("coalesce", _coalesce_rule, _coalesce),
    LazyFunction("when", _when_rule, _when),
    LazyFunction(
        "raise_error",
        _raise_rule,
        _raise,
        fallible=True,
        arity=(1, 1),
        meaning="Raises an error with the text. It can stand for a value of any type.",
    ),
)
