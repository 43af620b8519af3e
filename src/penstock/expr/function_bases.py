"""Base classes of catalogue functions, and the emitter interface that generates their code.

A function is data: its name, its typing rule, and its Python source. Its Spark column has the same name in
`penstock.spark.lowering.expressions`; a test checks that every function has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from penstock.expr.types import FLOAT64, INT32, INT64, STR, DataType
from penstock.expr.typing_rules import NULL, Arguments, CallTerm, Function, Mismatch, Signature, Term
from penstock.expr.widening import is_integer, is_number


@dataclass(frozen=True, slots=True)
class GuardedSource:
    """Python source of a value, valid if no guard is None.

    guards:    sources to compare with None, in order; the first use of a temporary binds it.
    canonical: whether any NaN in it is the canonical one.
    """

    source: str
    guards: tuple[str, ...] = ()
    canonical: bool = True


class Emitter(Protocol):
    """Writes Python source for checked expressions within one scope."""

    def fresh(self) -> str:
        """Return an unused name for a temporary."""
        ...

    def constant(self, value: object) -> str:
        """Return the name of `value` in generated code."""
        ...

    def name_value(self, source: str) -> tuple[str, str]:
        """Return sources for the first use and for all later uses of a value evaluated once."""
        ...

    def code(self, term: Term) -> GuardedSource:
        """Return the code of a term."""
        ...

    def value(self, term: Term) -> str:
        """Return source of the value: None for null, floats canonical."""
        ...

    def canonical(self, code: GuardedSource) -> str:
        """Return source of the value, valid if no guard is None, with the canonical NaN."""
        ...

    def truth_test(self, term: Term) -> str:
        """Return source that is truthy exactly if a bool is true."""
        ...

    def falsity_test(self, term: Term) -> str:
        """Return source that is truthy exactly if a bool is false."""
        ...

    def is_null(self, term: Term) -> str:
        """Return source that tests for null. A term that is never null is evaluated only for its errors."""
        ...

    def is_not_null(self, term: Term) -> str:
        """Return source that tests for non-null. A term that is never null is evaluated, as in `is_null`."""
        ...


@dataclass(frozen=True, slots=True)
class StrictFunction(Function):
    """Function that is null exactly if an argument is.

    python:   source of the value from non-null operands, each an atom or in brackets;
              `Emitter.name_value` binds one that is used twice.
    fallible: whether it can raise for some row, for all calls or for a given one.
    keeps_nan: whether floats in the result are as canonical as those of the arguments.
    last_first: whether the last argument is evaluated first (Spark checks divisors first).
    """

    python: Callable[[Emitter, CallTerm, tuple[str, ...]], str]
    fallible: bool | Callable[[CallTerm], bool] = False
    keeps_nan: bool = False
    last_first: bool = False


@dataclass(frozen=True, slots=True)
class FixedFunction(StrictFunction):
    """Strict function of fixed types, whose name and meaning are Spark's; `ps.functions` has it.

    takes: the argument types; int32 parameters accept integers of any width, float64 ones any number.
    meaning: for its documentation.
    """

    takes: tuple[DataType, ...] = ()
    result: DataType = STR
    meaning: str = ""


def fixed(
    name: str,
    meaning: str,
    takes: tuple[DataType, ...],
    result: DataType,
    source: str,
    *,
    fallible: bool = False,
) -> FixedFunction:
    """Build a function of fixed types. source: of the value, with the operands as {0}, {1} ..."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        for argument, want in zip(arguments, takes, strict=True):
            fits = argument.type in (want, NULL)
            fits = fits or (want in (INT32, INT64) and is_integer(argument.type))
            if not fits and not (want == FLOAT64 and is_number(argument.type)):
                raise Mismatch(f"{name} needs {want}, got {argument.type}", fix=f"cast it: .cast({want})")
        return Signature(takes, result)

    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        return source.format(*operands)

    return FixedFunction(name, rule, python, fallible, takes=takes, result=result, meaning=meaning)


@dataclass(frozen=True, slots=True)
class LazyFunction(Function):
    """Function that handles nulls itself, or does not evaluate all arguments.

    python: code of the value. true, false: source that is truthy exactly if the call is true, or false; None
    to use the value.
    """

    python: Callable[[Emitter, CallTerm], GuardedSource]
    true: Callable[[Emitter, CallTerm], str] | None = None
    false: Callable[[Emitter, CallTerm], str] | None = None
    fallible: bool = False


def may_raise(term: Term) -> bool:
    """Return whether evaluating a term can raise for some row: overflow, division by zero, a bad cast."""
    if not isinstance(term, CallTerm):
        return False
    own = term.function.fallible if isinstance(term.function, StrictFunction | LazyFunction) else False
    return (own if isinstance(own, bool) else own(term)) or any(may_raise(a) for a in term.arguments)
