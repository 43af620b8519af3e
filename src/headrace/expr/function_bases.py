"""Base classes of catalogue functions, and the emitter interface that generates their code.

A function is data: its name, its typing rule, and its Python source. Its Spark column has the same name in
`headrace.spark.lowering.expressions`; a test checks that every function has one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.types import (
    FLOAT64,
    INTERVAL,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    IntegerType,
    IntervalType,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
    Term,
    TypeAndNullability,
)
from headrace.expr.widening import is_number


@dataclass(frozen=True, slots=True)
class CodeBounds:
    """Bounds that generated code keeps to: those of `headrace.expr.bounds` for each value, and these.

    tick_rows: rows that a tick may make, in all operators together. rounds: of a loop, in a tick.
    """

    tick_rows: int = 1 << 62
    rounds: int = 1 << 62


_bounds: ContextVar[CodeBounds | None] = ContextVar("bounds of generated code", default=None)


@contextmanager
def bounded_code(bounds: CodeBounds = CodeBounds()) -> Generator[None]:
    """Generate code inside this block in which no row may cost much."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def code_bounds() -> CodeBounds | None:
    """Return the bounds of the code that is generated now, if it has any."""
    return _bounds.get()


def is_bounded() -> bool:
    """Return whether the code that is generated now is to be bounded."""
    return _bounds.get() is not None


ATOM = re.compile(r"[A-Za-z_]\w*|\(?-?[\d.]+(e[+-]?\d+)?\)?|b?'[^'\\]*'")
"""Source of a name or a short constant, which is cheap to repeat."""


def is_constant(source: str) -> bool:
    """Return whether a source is a number or string literal, which must not be compared by `is`."""
    return bool(ATOM.fullmatch(source)) and not source.isidentifier()


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

    @property
    def bounded(self) -> bool:
        """Whether no row may cost much (see `headrace.expr.bounds`)."""
        ...

    def prepare(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Return what prepares a value, such as a pattern, in this code."""
        ...

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
    """Function that is null if an argument is.

    nullable: whether it can also be None for arguments that are not, for all calls or for a given one.
    python:   source of the value from non-null operands, each an atom or in brackets;
              `Emitter.name_value` binds one that is used twice.
    fallible: whether it can raise for some row, for all calls or for a given one.
    keeps_nan: whether floats in the result are as canonical as those of the arguments.
    last_first: whether the last argument is evaluated first (Spark checks divisors of numbers first), for all
        calls or for a given one.
    """

    python: Callable[[Emitter, CallTerm, tuple[str, ...]], str]
    fallible: bool | Callable[[CallTerm], bool] = False
    keeps_nan: bool = False
    last_first: bool | Callable[[CallTerm], bool] = False
    nullable: bool | Callable[[CallTerm], bool] = False


Parameter: TypeAlias = DataType | type[DecimalType] | tuple["DataType | type[DecimalType]", ...]
"""Type that an argument converts to, or several of which it has one; `DecimalType` is any decimal."""


@dataclass(frozen=True, slots=True)
class FixedFunction(StrictFunction):
    """Strict function of fixed types, whose name and meaning are Spark's; `hr.functions` has it.

    takes: the argument types; parameters of integers accept those of any width, float64 ones any number.
    result: None: the type of the first argument.
    prepared: by position, how a value becomes what the function works with, such as a compiled pattern: once
              for a constant, for a row's value if that was not seen lately. Raises `EvaluationError`.
    constant: positions of arguments that must be constants.
    approximate: whether its last digit depends on the library of mathematics.
    """

    takes: tuple[Parameter, ...] = ()
    result: DataType | None = STR
    prepared: Mapping[int, Callable[[Any], object]] = field(
        default_factory=dict[int, Callable[[Any], object]], compare=False
    )
    constant: tuple[int, ...] = ()
    approximate: bool = False


def check_count(name: str, arguments: Arguments, count: int) -> None:
    """Raise `Mismatch` unless there are as many arguments as a function takes."""
    if len(arguments) != count:
        raise Mismatch(f"{name} takes {count} arguments, got {len(arguments)}")


def fixed(
    name: str,
    meaning: str,
    takes: tuple[Parameter, ...],
    result: DataType | None,
    source: str,
    *,
    fallible: bool = False,
    nullable: bool = False,
    approximate: bool = False,
    prepared: Mapping[int, Callable[[Any], object]] | None = None,
    constant: tuple[int, ...] = (),
) -> FixedFunction:
    """Build a function of fixed types.

    source: of the value, with the operands as {0}, {1} ...; {bits} is the width of an integer result.
    """
    prepare = prepared or {}

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        check_count(name, arguments, len(takes))
        types = tuple(fitting_type(name, a.type, want) for a, want in zip(arguments, takes, strict=True))
        for at in constant:
            if not isinstance(arguments[at], LiteralTerm):
                raise Mismatch(f"argument {at + 1} of {name} must be a constant")
        for at, make in prepare.items():
            given = arguments[at]
            if isinstance(given, LiteralTerm) and given.value is not None:
                try:
                    make(given.value)
                except EvaluationError as error:
                    raise Mismatch(f"{name}: {error.what}", why=error.why, fix=error.fix) from error
        return Signature(types, types[0] if result is None else result, True if nullable else None)

    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        found = list(operands)
        for at, usual in prepare.items():
            given, make = call.arguments[at], emitter.prepare(usual)
            if isinstance(given, LiteralTerm) and given.value is not None:
                found[at] = emitter.constant(make(given.value))
            else:
                found[at] = f"{emitter.constant(make)}({found[at]})"
        return source.format(*found, bits=call.type.bits if isinstance(call.type, IntegerType) else 64)

    def may_fail(call: CallTerm) -> bool:
        return fallible or any(not isinstance(call.arguments[at], LiteralTerm) for at in prepare)

    return FixedFunction(
        name,
        rule,
        python,
        may_fail if prepare else fallible,
        nullable=nullable,
        takes=takes,
        result=result,
        prepared=prepare,
        constant=constant,
        approximate=approximate,
        arity=(len(takes), len(takes)),
        meaning=meaning,
    )


def fitting_type(name: str, found: DataType, parameter: Parameter) -> DataType:
    """Return the type that an argument converts to. Raises `Mismatch` if it fits none."""
    wanted = parameter if isinstance(parameter, tuple) else (parameter,)
    if found in wanted:
        return found
    if found == NULL:
        first = wanted[0]
        return first if isinstance(first, DataType) else DecimalType(38, 18)
    if DecimalType in wanted and isinstance(found, DecimalType):
        return found
    for want in wanted:
        if isinstance(want, IntegerType) and isinstance(found, IntegerType):
            widths = sorted((w for w in wanted if isinstance(w, IntegerType)), key=lambda width: width.bits)
            return next((width for width in widths if width.bits >= found.bits), widths[-1])
        if want == TIMESTAMP and found == TIMESTAMP_NTZ:
            return TIMESTAMP
        if want == INTERVAL and isinstance(found, IntervalType):
            return INTERVAL
        if (want == FLOAT64 or isinstance(want, DecimalType)) and is_number(found):
            assert isinstance(want, DataType)
            return want
    names = " or ".join("decimal" if want is DecimalType else str(want) for want in wanted)
    raise Mismatch(f"{name} needs {names}, got {found}", fix=f"cast it: .cast({wanted[0]})")


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


@dataclass(frozen=True, slots=True)
class HigherOrderFunction(LazyFunction):
    """Function of which some arguments are functions themselves, which `headrace.expr.lambdas` builds.

    parameters: of the next function, by the arguments before it; it may take fewer of them.
    most_variables: the largest number of them.
    """

    parameters: Callable[[Arguments], tuple[TypeAndNullability, ...]] = field(kw_only=True)
    most_variables: int = field(default=2, kw_only=True)


def holds_for(fact: bool | Callable[[CallTerm], bool], call: CallTerm) -> bool:
    """Return whether a fact of a function, for all calls or for a given one, holds for a call."""
    return fact if isinstance(fact, bool) else fact(call)


def may_raise(term: Term) -> bool:
    """Return whether evaluating a term can raise for some row: overflow, division by zero, a bad cast."""
    if not isinstance(term, CallTerm):
        return False
    own = term.function.fallible if isinstance(term.function, StrictFunction | LazyFunction) else False
    return holds_for(own, term) or any(may_raise(a) for a in term.arguments)
