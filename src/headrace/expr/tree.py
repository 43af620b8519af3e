"""Expression trees: frozen data, built by Python operators.

`col.price * 2` builds a tree and computes nothing. The tree is checked against a row type
(`headrace.expr.check`), and lowered to Python source (`headrace.expr.compile_python`) and to Spark columns
(`headrace.spark.native_expressions`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast

from headrace.errors import SourceLocation, WrongType
from headrace.expr.expression_errors import ValueMisuse
from headrace.expr.expression_text import ATOM, Rendered, call_text, literal_text
from headrace.expr.time_texts import duration
from headrace.expr.types import DATE, TIMESTAMP, DataType, as_type
from headrace.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


MAX_DIGITS = 400
"""Limit on the digits of rounding, before and after the point: more than any column's numbers have."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr(ValueMisuse, Shown):
    """Row expression. Compare trees with `same`, not `==`, which builds a tree.

    The methods follow Spark 4 ANSI: null in, null out, unless stated otherwise; errors of Spark on a row
    (overflow, division by zero, a bad cast) raise `EvaluationError`.
    """

    def children(self) -> tuple[Expr, ...]:
        return ()

    def walk(self) -> Iterator[Expr]:
        """Yield all expressions of the tree, children first."""
        for child in self.children():
            yield from child.walk()
        yield self

    def same(self, other: Expr) -> bool:
        """Whether both trees are equal, node by node."""
        raise NotImplementedError

    def __str__(self) -> str:
        return self._rendered()[0]

    def _rendered(self) -> Rendered:
        """Text of the expression, with its binding strength."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self}>"

    __hash__ = object.__hash__

    # -- comparison -------------------------------------------------------------------

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return FunctionCall("eq", (self, _comparable(other)))

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return FunctionCall("ne", (self, _comparable(other)))

    def __lt__(self, other: object) -> Expr:
        return FunctionCall("lt", (self, operand(other)))

    def __le__(self, other: object) -> Expr:
        return FunctionCall("le", (self, operand(other)))

    def __gt__(self, other: object) -> Expr:
        return FunctionCall("gt", (self, operand(other)))

    def __ge__(self, other: object) -> Expr:
        return FunctionCall("ge", (self, operand(other)))

    def eq_null_safe(self, other: object) -> Expr:
        """Null-safe equality: null equals null and nothing else."""
        return FunctionCall("eq_null_safe", (self, operand(other)))

    def is_in(self, *values: object) -> Expr:
        """Whether the value is one of `values`; null if none is equal and one is null."""
        if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset | range):
            values = tuple(cast("Iterable[object]", values[0]))
        return FunctionCall("is_in", (self, *(operand(v) for v in values)))

    def between(self, low: object, high: object) -> Expr:
        """Whether `low <= self <= high`."""
        return FunctionCall("and", (self >= low, self <= high))

    # -- truth and null ---------------------------------------------------------------

    def __and__(self, other: object) -> Expr:
        return FunctionCall("and", (self, operand(other)))

    def __rand__(self, other: object) -> Expr:
        return FunctionCall("and", (operand(other), self))

    def __or__(self, other: object) -> Expr:
        return FunctionCall("or", (self, operand(other)))

    def __ror__(self, other: object) -> Expr:
        return FunctionCall("or", (operand(other), self))

    def __invert__(self) -> Expr:
        return FunctionCall("not", (self,))

    def is_null(self) -> Expr:
        """Whether the value is null."""
        return FunctionCall("is_null", (self,))

    def is_not_null(self) -> Expr:
        """Whether the value is not null."""
        return FunctionCall("is_not_null", (self,))

    def is_nan(self) -> Expr:
        """Whether a float is NaN; false for null."""
        return FunctionCall("is_nan", (self,))

    # -- arithmetic -------------------------------------------------------------------

    def __add__(self, other: object) -> Expr:
        if isinstance(other, timedelta):
            return _moved(self, "add", other)
        return FunctionCall("add", (self, operand(other)))

    def __radd__(self, other: object) -> Expr:
        if isinstance(other, timedelta):
            return _moved(self, "add", other)
        return FunctionCall("add", (operand(other), self))

    def __sub__(self, other: object) -> Expr:
        if isinstance(other, timedelta):
            return _moved(self, "subtract", other)
        return FunctionCall("subtract", (self, operand(other)))

    def __rsub__(self, other: object) -> Expr:
        return FunctionCall("subtract", (operand(other), self))

    def __mul__(self, other: object) -> Expr:
        return FunctionCall("multiply", (self, operand(other)))

    def __rmul__(self, other: object) -> Expr:
        return FunctionCall("multiply", (operand(other), self))

    def __truediv__(self, other: object) -> Expr:
        return FunctionCall("divide", (self, operand(other)))

    def __rtruediv__(self, other: object) -> Expr:
        return FunctionCall("divide", (operand(other), self))

    def __floordiv__(self, other: object) -> Expr:
        """Whole quotient, truncated towards zero as by Spark's `div`, unlike Python's `//`.

        `-7 // 2` is -3 (in Python -4), `-1 // 4` is 0 (in Python -1).
        """
        return FunctionCall("div", (self, operand(other)))

    def __rfloordiv__(self, other: object) -> Expr:
        return FunctionCall("div", (operand(other), self))

    def __mod__(self, other: object) -> Expr:
        """Remainder with the sign of the left side, as in Spark: `-7 % 3` is -1 (in Python 2)."""
        return FunctionCall("modulo", (self, operand(other)))

    def __rmod__(self, other: object) -> Expr:
        return FunctionCall("modulo", (operand(other), self))

    def __neg__(self) -> Expr:
        return FunctionCall("negate", (self,))

    def __abs__(self) -> Expr:
        return FunctionCall("abs", (self,))

    def abs(self) -> Expr:
        """Absolute value."""
        return FunctionCall("abs", (self,))

    def round(self, digits: int = 0) -> Expr:
        """Value rounded half away from zero to `digits` after the point, or before it if negative.

        A number without further digits is unchanged. digits: an int32, as in Spark.
        """
        return FunctionCall("round", (self,), (_digits(digits),))

    def floor(self, digits: int | None = None) -> Expr:
        """Greatest whole number not above the value; int64 for a float.

        digits: of a decimal or an integer, how many to keep after the point, or to clear before it if
        negative. The result is a decimal.
        """
        return (
            FunctionCall("floor", (self,))
            if digits is None
            else FunctionCall("round_floor", (self,), (_digits(digits),))
        )

    def ceil(self, digits: int | None = None) -> Expr:
        """Least whole number not below the value; int64 for a float. digits: as in `floor`."""
        return (
            FunctionCall("ceil", (self,))
            if digits is None
            else FunctionCall("round_ceil", (self,), (_digits(digits),))
        )

    def cast(self, type: Any) -> Expr:
        """Value converted to another type: a `DataType`, an annotation such as `int`, or its name ("int32").

        Raises `EvaluationError` on a row whose value the type cannot hold.
        """
        return FunctionCall("cast", (self,), (as_type(type),))

    # -- strings ----------------------------------------------------------------------

    def upper(self) -> Expr:
        """String in upper case."""
        return FunctionCall("upper", (self,))

    def lower(self) -> Expr:
        """String in lower case."""
        return FunctionCall("lower", (self,))

    def length(self) -> Expr:
        """Number of code points of a string, bytes of a binary, or elements of a list: int32."""
        return FunctionCall("length", (self,))

    def substring(self, start: object, length: object) -> Expr:
        """Substring of `length` characters from `start`, counted from 1, or from the end if negative."""
        return FunctionCall("substring", (self, operand(start), operand(length)))

    def contains(self, part: object) -> Expr:
        """Whether a string contains another."""
        return FunctionCall("contains", (self, operand(part)))

    def starts_with(self, part: object) -> Expr:
        """Whether a string starts with another."""
        return FunctionCall("starts_with", (self, operand(part)))

    def ends_with(self, part: object) -> Expr:
        """Whether a string ends with another."""
        return FunctionCall("ends_with", (self, operand(part)))

    def like(self, pattern: object, *, escape: str = "\\") -> Expr:
        """Whether the whole string matches a pattern: % is any text, _ any character, `escape` escapes.

        Raises `EvaluationError` on a row whose pattern has the escape character before another character.
        """
        escapes = () if escape == "\\" else (operand(escape),)
        return FunctionCall("like", (self, operand(pattern), *escapes))

    def trim(self) -> Expr:
        """String without spaces (U+0020 only) at both ends."""
        return FunctionCall("trim", (self,))

    def replace(self, search: object, by: object) -> Expr:
        """String with every `search` replaced; an empty `search` replaces nothing."""
        return FunctionCall("replace", (self, operand(search), operand(by)))

    def split_part(self, delimiter: object, number: object) -> Expr:
        """Part `number`, counted from 1 (from the end if negative); "" beyond the last."""
        return FunctionCall("split_part", (self, operand(delimiter), operand(number)))

    # -- time ---------------------------------------------------------------------------

    def micros_since(self, other: object) -> Expr:
        """Microseconds from `other` to this timestamp: int64."""
        return FunctionCall("micros_since", (self, operand(other)))

    def seconds_since(self, other: object) -> Expr:
        """Seconds from `other` to this timestamp, with their fraction: float64."""
        return FunctionCall("seconds_since", (self, operand(other)))

    def days_since(self, other: object) -> Expr:
        """Days from `other` to this date: int32."""
        return FunctionCall("days_since", (self, operand(other)))

    def truncate(self, unit: str) -> Expr:
        """Start of the second, minute, hour, day, week (Monday), month, quarter or year."""
        return FunctionCall("truncate", (self,), (unit,))

    def tumble(self, width: timedelta | str) -> Expr:
        """Start of the tumbling window that contains the timestamp; windows are aligned to 1970.

        width: a `timedelta`, or text such as "10s", "5 min", "1h", "1d".
        """
        return FunctionCall("tumble", (self,), (duration(width),))

    def year(self) -> Expr:
        """Year: int32."""
        return FunctionCall("year", (self,))

    def quarter(self) -> Expr:
        """Quarter of the year, from 1: int32."""
        return FunctionCall("quarter", (self,))

    def month(self) -> Expr:
        """Month, from 1: int32."""
        return FunctionCall("month", (self,))

    def day(self) -> Expr:
        """Day of the month, from 1: int32."""
        return FunctionCall("day", (self,))

    def day_of_week(self) -> Expr:
        """Day of the week as Spark counts: Sunday is 1, Saturday 7."""
        return FunctionCall("day_of_week", (self,))

    def weekday(self) -> Expr:
        """Day of the week as Python counts: Monday is 0, Sunday 6."""
        return FunctionCall("weekday", (self,))

    def day_of_year(self) -> Expr:
        """Day of the year, from 1: int32."""
        return FunctionCall("day_of_year", (self,))

    def hour(self) -> Expr:
        """Hour of a timestamp in UTC: int32."""
        return FunctionCall("hour", (self,))

    def minute(self) -> Expr:
        """Minute of a timestamp: int32."""
        return FunctionCall("minute", (self,))

    def second(self) -> Expr:
        """Whole second of a timestamp: int32."""
        return FunctionCall("second", (self,))

    def microsecond(self) -> Expr:
        """Microsecond within the second of a timestamp: int32."""
        return FunctionCall("microsecond", (self,))

    def to_timestamp(self) -> Expr:
        """Timestamp from ISO-8601 text, UTC if no zone is given; from a date, its midnight."""
        return FunctionCall("cast", (self,), (TIMESTAMP,))

    def to_date(self) -> Expr:
        """Date from ISO-8601 text, or the UTC date of a timestamp."""
        return FunctionCall("cast", (self,), (DATE,))

    # -- parts ----------------------------------------------------------------------------

    def field(self, name: str) -> Expr:
        """Field of a struct."""
        return FunctionCall("field", (self,), (name,))

    def __getitem__(self, item: object) -> Expr:
        """Field of a struct by name, element of a list by position from 0, or value of a map by key."""
        if isinstance(item, str):
            return self.field(item)
        return FunctionCall("element", (self, operand(item)))

    # -- order ------------------------------------------------------------------------------

    def asc(self) -> Ordering:
        """Ascending order: nulls first, NaN last."""
        return Ordering(self)

    def desc(self) -> Ordering:
        """Descending order: NaN first, nulls last."""
        return Ordering(self, descending=True)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Column(Expr):
    """Column by name. `side` is "left" or "right" only inside a join condition."""

    name: str
    side: str | None = None

    def same(self, other: Expr) -> bool:
        return isinstance(other, Column) and (self.name, self.side) == (other.name, other.side)

    def _rendered(self) -> Rendered:
        return (f"{self.side}.{self.name}" if self.side else self.name), ATOM


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(Expr):
    """Constant. `type` None means the type of the value (None is null of any type)."""

    value: object
    type: DataType | None = None

    def same(self, other: Expr) -> bool:
        # By text, so that 1, 1.0 and True differ, as do -0.0 and 0.0, and NaN equals itself.
        return isinstance(other, Literal) and (repr(self.value), self.type) == (repr(other.value), other.type)

    def _rendered(self) -> Rendered:
        return literal_text(self.value), ATOM


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FunctionCall(Expr):
    """Function of the catalogue applied to expressions.

    `function` is the name in the catalogue (`headrace.expr.functions`);
    `options` are build-time constants such as a target type or a time unit.
    """

    described_as: ClassVar[str] = "Call"
    function: str
    arguments: tuple[Expr, ...]
    options: tuple[object, ...] = ()

    def children(self) -> tuple[Expr, ...]:
        return self.arguments

    def same(self, other: Expr) -> bool:
        return (
            isinstance(other, FunctionCall)
            and (self.function, self.options) == (other.function, other.options)
            and len(self.arguments) == len(other.arguments)
            and all(a.same(b) for a, b in zip(self.arguments, other.arguments, strict=True))
        )

    def _rendered(self) -> Rendered:
        return call_text(self.function, [a._rendered() for a in self.arguments], self.options)


@dataclass(frozen=True, slots=True)
class Ordering:
    """Expression to sort by. Nulls come first ascending and last descending; NaN is greatest."""

    expr: Expr
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.expr}{' desc' if self.descending else ''}"


def _moved(expr: Expr, function: str, span: timedelta) -> Expr:
    # Of a plain number, since pandas has spans of its own.
    micros = span // timedelta(microseconds=1)
    step = -micros if function == "subtract" else micros
    if -(2**63) <= step < 2**63:
        return FunctionCall("shift", (expr,), (timedelta(microseconds=step),))
    return FunctionCall(function, (expr, Literal(span)))  # checked as other constants are


def operand(value: object) -> Expr:
    """Return an expression unchanged; wrap any other value as a constant."""
    return value if isinstance(value, Expr) else Literal(value)


def _comparable(value: object) -> Expr:
    if value is None:
        raise WrongType(
            "an expression is compared with None",
            where=[SourceLocation.of_caller()],
            why="Null equals nothing, not even null, so the answer would always be null.",
            fix=".is_null() or .is_not_null()",
        )
    return operand(value)


def _digits(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool):
        raise WrongType(
            f"round needs a whole number of digits, got {given!r}",
            where=[SourceLocation.of_caller()],
            fix="write .round(2), or .round(-2) for hundreds",
        )
    if not -(2**31) <= given < 2**31:
        raise WrongType(
            f"round needs digits between {-(2**31)} and {2**31 - 1}",
            where=[SourceLocation.of_caller()],
            why="The number of digits is an int32, as in Spark.",
            fix="write .round(2), or .round(-2) for hundreds",
        )
    return max(-MAX_DIGITS, min(given, MAX_DIGITS))


def columns_of(expr: Expr) -> tuple[str, ...]:
    """List the names of the columns that an expression reads, in the order of first use."""
    return tuple(dict.fromkeys(part.name for part in expr.walk() if isinstance(part, Column)))
