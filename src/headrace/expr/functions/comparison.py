"""Comparison operators. NaN equals NaN and is greater than every number, as in Spark."""

from __future__ import annotations

from collections.abc import Callable

from headrace.expr.function_bases import Emitter, GuardedSource, LazyFunction, StrictFunction, is_constant
from headrace.expr.functions.part_types import refuse_maps
from headrace.expr.sort_keys import order_key
from headrace.expr.types import BOOL, AnyType, DataType, holds_any, parts_of
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
    Term,
)
from headrace.expr.widening import common_type, is_float

Python = Callable[[Emitter, CallTerm, tuple[str, ...]], str]


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


def _compare(symbol: str, floats: Python) -> Python:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        if is_float(call.arguments[0].type):
            return floats(emitter, call, operands)
        a, b = operands
        if symbol not in ("==", "!=") and parts_of(call.arguments[0].type):
            # Lists and structs, from the left; a null within them is less than any value.
            key = order_key(call.arguments[0].type, False)
            if key is not None:
                a, b = (f"{emitter.constant(key)}({each})" for each in (a, b))
            return f"({a} {symbol} {b})"
        if isinstance(call.arguments[0].type, AnyType) and symbol == "==":
            # Values of type any may both be NaN, which is a single object.
            (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
            return f"({first_a} == {first_b} or {a} is {b})"
        if isinstance(call.arguments[0].type, AnyType):
            (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
            return f"({first_a} != {first_b} and {a} is not {b})"
        return f"({a} {symbol} {b})"

    return python


def _equal_floats(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    if any(_is_number(t) for t in call.arguments):
        return f"({a} == {b})"
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return f"({first_a} == {first_b} or ({a} != {a} and {b} != {b}))"


def _unequal_floats(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    if any(_is_number(t) for t in call.arguments):
        return f"({a} != {b})"
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return f"({first_a} != {first_b} and ({a} == {a} or {b} == {b}))"


def _greater_floats(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    left, right = call.arguments
    if _is_number(right):
        return f"(not {a} <= {b})"
    if _is_number(left):
        return f"({a} > {b})"
    # `a <= b` is false if either is NaN; then a is greater unless b is NaN.
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return f"(not {first_a} <= {first_b} and {b} == {b})"


def _less_floats(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    left, right = call.arguments
    if _is_number(left):
        return f"(not {a} >= {b})"
    if _is_number(right):
        return f"({a} < {b})"
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return f"(not {first_a} >= {first_b} and {a} == {a})"


def _at_least_floats(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    left, right = call.arguments
    if _is_number(right):
        return f"(not {a} < {b})"
    if _is_number(left):
        return f"({a} >= {b})"
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return f"({first_a} >= {first_b} or {a} != {a})"


def _at_most_floats(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    left, right = call.arguments
    if _is_number(left):
        return f"(not {a} > {b})"
    if _is_number(right):
        return f"({a} <= {b})"
    (first_a, a), (first_b, b) = emitter.name_value(a), emitter.name_value(b)
    return f"({first_a} <= {first_b} or {b} != {b})"


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


FUNCTIONS: tuple[Function, ...] = (
    StrictFunction("eq", _equality, _compare("==", _equal_floats)),
    StrictFunction("ne", _equality, _compare("!=", _unequal_floats)),
    StrictFunction("lt", _ordering, _compare("<", _less_floats)),
    StrictFunction("le", _ordering, _compare("<=", _at_most_floats)),
    StrictFunction("gt", _ordering, _compare(">", _greater_floats)),
    StrictFunction("ge", _ordering, _compare(">=", _at_least_floats)),
    LazyFunction("eq_null_safe", _same_rule, _same),
    LazyFunction("is_in", _is_in_rule, _is_in),
)
