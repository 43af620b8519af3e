"""Checked expressions: typed terms, catalogue functions, their typing rules, and the interface of their code.

`headrace.expr.check.checked_tree` builds terms from an `Expr` and a `Schema`. All implicit conversions are
explicit nodes here (calls of "cast"), so both lowerings see the same operations on the same types.
Functions generate their Python as `Code`: sources, their guards, and the bounds they keep to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace.expr.types import (
    DATE,
    FLOAT64,
    INT32,
    INT64,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    AnyType,
    DataType,
    DecimalType,
    Field,
    FloatingType,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.polars_columns import Lowering


@dataclass(frozen=True, slots=True)
class TypeAndNullability:
    """Type of an expression, and whether it can be null."""

    type: DataType
    nullable: bool

    def __str__(self) -> str:
        return f"{self.type}{'?' if self.nullable else ''}"


class NullType(DataType):
    """Type of a bare null, which converts to any other type."""

    __slots__ = ()


NULL = NullType()


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """An expression after type checking."""

    type: DataType
    nullable: bool


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTerm(Term):
    """Column number `position` of the schema."""

    position: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class LiteralTerm(Term):
    """Constant as an internal value. `adapts`: a bare number adapts to the type of other operands."""

    value: object
    adapts: bool = False


class Mismatch(Exception):
    """Raised by a typing rule whose arguments do not fit. `check` turns it into a `WrongType`."""

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Signature:
    """Result of a typing rule: the types that arguments convert to, the result type, and its nullability.

    `nullable` None: the result is nullable if an argument is.
    """

    arguments: tuple[DataType, ...]
    result: DataType
    nullable: bool | None = None


Arguments: TypeAlias = tuple[Term, ...]
Rule: TypeAlias = Callable[[Arguments, tuple[object, ...]], Signature]


SparkForm: TypeAlias = "Callable[[CallTerm, tuple[Any, ...]], Column]"
"""Spark column of a call, from the columns of its arguments; of one that is a function, a Python function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRecord:
    """Properties of a function besides its name, types and Python form.

    arity:    the least and greatest number of arguments; None: unlimited. step: increment above the least.
    options:  test of each option's value.
    meaning:  for its documentation; `hr.functions` has the functions with one, whose names are Spark's.
    shown_parameters: its parameters as documentation shows them, if their types don't say it.
    defaults: of its last parameters.
    example:  arguments of a call that documentation shows and tests make, on rows, on columns and on Spark.
    catalyst: Catalyst's classes whose children are the arguments, or static methods (`Base64.encode`) that
              take them first.
    columns:  its form for Polars; None: it runs on rows. takes_lists: whether that form takes lists.
    spark:    its form for Spark.
    keeps_size: whether no result is larger than the limits of `headrace.expr.bounds` where no argument is;
              otherwise bounded code checks the result.
    runtime:  names that its generated code uses.
    """

    arity: tuple[int, int | None] = (0, None)
    step: int = 1
    options: tuple[Callable[[object], bool], ...] = ()
    meaning: str = ""
    shown_parameters: str = ""
    defaults: tuple[object, ...] = ()
    example: str = ""
    catalyst: tuple[str, ...] = ()
    columns: Lowering | None = None
    takes_lists: bool = False
    spark: SparkForm | None = None
    keeps_size: bool = False
    runtime: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False)


@dataclass(frozen=True, slots=True)
class Function(FunctionRecord):
    """Base of catalogue functions: name, typing rule and record."""

    name: str
    rule: Rule

    def accepts(self, arguments: int, options: Sequence[object]) -> bool:
        """Return whether a call may have this many arguments and these options.

        Rules take that for granted: the methods that build expressions guarantee it. A plan doesn't.
        """
        least, most = self.arity
        if arguments < least or (most is not None and arguments > most) or (arguments - least) % self.step:
            return False
        if len(options) != len(self.options):
            return False
        return all(test(option) for test, option in zip(self.options, options, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class CallTerm(Term):
    """Catalogue function applied to checked arguments."""

    function: Function
    arguments: tuple[Term, ...]
    options: tuple[object, ...] = ()


# --- implicit widening of types to a common type, as in Spark ANSI --------------------------------

# int8 -> int16 -> int32 -> int64 -> float64, and float32 -> float64, also beside an integer. An integer
# combined with a decimal becomes a decimal of its digits, a decimal combined with a float becomes a float64,
# and a date combined with a timestamp becomes a timestamp; so does a timestamp without a zone, which is taken
# for one in UTC. A bare int constant takes the type of an integer beside it that holds it, and is an
# int32 or int64 otherwise. Strings are never converted implicitly.


MAX_PRECISION = 38
_MIN_SCALE_KEPT = 6
_DIGITS: dict[int, int] = {8: 3, 16: 5, 32: 10, 64: 20}
"""Decimal digits of integers, by their bits, as Spark counts them."""


def is_number(type: DataType) -> bool:
    return isinstance(type, IntegerType | DecimalType | FloatingType)


def is_float(type: DataType) -> bool:
    return isinstance(type, FloatingType)


def is_integer(type: DataType) -> bool:
    return isinstance(type, IntegerType)


_TIMES: tuple[DataType, ...] = (DATE, TIMESTAMP_NTZ, TIMESTAMP)


def common_type(terms: Iterable[Term]) -> DataType:
    """Return the narrowest type that all terms implicitly convert to. Raises `Mismatch`."""
    found: DataType = NULL
    numbers: list[int] = []
    for term in terms:
        if isinstance(term, LiteralTerm) and term.adapts and isinstance(term.value, int):
            numbers.append(term.value)
        else:
            found = wider_type(found, term.type)
    for number in numbers:
        found = wider_type(found, _constant_type(number, found))
    return found


def _constant_type(number: int, beside: DataType) -> DataType:
    if isinstance(beside, DecimalType):
        return DecimalType(len(str(abs(number))), 0)
    if isinstance(beside, IntegerType):
        return smallest_integer(number, beside)
    return FLOAT64 if is_float(beside) else INT64


def smallest_integer(number: int, least: IntegerType) -> IntegerType:
    """Return `least` if it holds a number, else int32 (Spark's smallest constant type), else int64."""
    wide = (least, *(each for each in (INT32, INT64) if each.bits > least.bits))
    return next((each for each in wide if each.range[0] <= number <= each.range[1]), INT64)


def wider_type(a: DataType, b: DataType) -> DataType:
    """Return the narrowest type that both types convert to. Raises `Mismatch`."""
    if a == b or b == NULL:
        return a
    if a == NULL:
        return b
    if is_number(a) and is_number(b):
        return _wider_number(a, b)
    if a in _TIMES and b in _TIMES:
        return max(a, b, key=_TIMES.index)
    holding_both = _holding_both(a, b)
    if holding_both is not None:
        return holding_both
    fix = "cast one of them"
    if isinstance(a, AnyType) or isinstance(b, AnyType):
        fix = "give the column a type in the row class, or write a function: filter(lambda row: ...)"
    raise Mismatch(f"{a} and {b} do not go together", fix=fix)


def _holding_both(a: DataType, b: DataType) -> DataType | None:
    """Return the type that holds the values of both types unchanged, or None.

    They differ in what within them may be null and in the units of intervals.
    """
    if a == b:
        return a
    if isinstance(a, IntervalType) and isinstance(b, IntervalType):
        return IntervalType(min(a.first, b.first), max(a.last, b.last))
    if isinstance(a, ListType) and isinstance(b, ListType):
        element = _holding_both(a.element, b.element)
        return None if element is None else ListType(element, a.nullable or b.nullable)
    if isinstance(a, MapType) and isinstance(b, MapType):
        key, value = _holding_both(a.key, b.key), _holding_both(a.value, b.value)
        return None if key is None or value is None else MapType(key, value, a.nullable or b.nullable)
    if not isinstance(a, StructType) or not isinstance(b, StructType) or len(a.fields) != len(b.fields):
        return None
    fields: list[Field] = []
    for one, other in zip(a.fields, b.fields, strict=True):
        type = _holding_both(one.type, other.type)
        if type is None or one.name != other.name:
            return None
        fields.append(Field(one.name, type, one.nullable or other.nullable))
    return StructType(tuple(fields), a.row_class)


def holds_all_of(target: DataType, source: DataType) -> bool:
    """Return whether `target` holds all values of `source` unchanged. It may allow more nulls."""
    return _holding_both(target, source) == target


def nullable_within(type: DataType) -> DataType:
    """Return a type that allows nulls at any depth."""
    if isinstance(type, ListType):
        return ListType(nullable_within(type.element), True)
    if isinstance(type, MapType):
        return MapType(nullable_within(type.key), nullable_within(type.value), True)
    if not isinstance(type, StructType):
        return type
    fields = tuple(Field(field.name, nullable_within(field.type), True) for field in type.fields)
    return StructType(fields, type.row_class)


def _wider_number(a: DataType, b: DataType) -> DataType:
    if is_float(a) or is_float(b):
        # As on Spark, a float32 has room for neither the digits of an integer nor those of a decimal.
        return FLOAT64
    if isinstance(a, DecimalType) or isinstance(b, DecimalType):
        left, right = exact_as_decimal(a), exact_as_decimal(b)
        scale = max(left.scale, right.scale)
        whole = max(left.precision - left.scale, right.precision - right.scale)
        precision = min(whole + scale, MAX_PRECISION)
        return DecimalType(precision, min(scale, max(precision - whole, 0)))
    return max(a, b, key=lambda type: type.bits if isinstance(type, IntegerType) else 0)


def exact_as_decimal(type: DataType) -> DecimalType:
    """Return the decimal type that holds every value of an exact number type."""
    if isinstance(type, DecimalType):
        return type
    assert isinstance(type, IntegerType)
    return DecimalType(_DIGITS[type.bits], 0)


def decimal_of(term: Term) -> DecimalType:
    """Return the decimal type of a term combined with a decimal. A bare int constant stays narrow."""
    if isinstance(term, LiteralTerm) and term.adapts and isinstance(term.value, int):
        return DecimalType(len(str(abs(term.value))), 0)
    return exact_as_decimal(term.type)


def limit_decimal_digits(precision: int, scale: int) -> DecimalType:
    """Limit a result type to 38 digits by dropping digits after the point, down to six."""
    if precision <= MAX_PRECISION:
        return DecimalType(precision, scale)
    whole = precision - scale
    return DecimalType(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_SCALE_KEPT)))


@dataclass(frozen=True, slots=True)
class CodeBounds:
    """Bounds on generated code, besides the bounds of `headrace.expr.bounds` on each value.

    tick_rows: rows that a tick may make, in all operators together. rounds: of a loop, in a tick.
    """

    tick_rows: int = 1 << 62
    rounds: int = 1 << 62


_bounds: ContextVar[CodeBounds | None] = ContextVar("bounds of generated code", default=None)


@contextmanager
def bounded_code(bounds: CodeBounds = CodeBounds()) -> Generator[None]:
    """Generate code with a bounded cost per row inside this block."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


def code_bounds() -> CodeBounds | None:
    """Return the bounds of the code being generated, if any."""
    return _bounds.get()


def is_bounded() -> bool:
    """Return whether the code being generated must be bounded."""
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
    """Writer of Python source for checked expressions within one scope."""

    @property
    def bounded(self) -> bool:
        """Whether the cost per row is bounded (see `headrace.expr.bounds`)."""
        ...

    def prepare(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that prepares a value, such as a pattern, in this code."""
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
