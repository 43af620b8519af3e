"""Checked expressions: typed terms, catalogue functions and their typing rules.

`headrace.expr.check.checked_tree` builds terms from an `Expr` and a `Schema`. All implicit conversions are
explicit nodes here (calls of "cast"), so both lowerings see the same operations on the same types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from headrace.expr.types import DataType


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


@dataclass(frozen=True, slots=True)
class Function:
    """Base of catalogue functions: a name and its typing rule.

    arity:   for functions with a meaning, the least and greatest number of arguments; None: unlimited.
    meaning: for its documentation; `hr.functions` has the functions with one, whose names are Spark's.
    """

    name: str
    rule: Rule
    arity: tuple[int, int | None] = field(default=(0, None), kw_only=True)
    meaning: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class CallTerm(Term):
    """Catalogue function applied to checked arguments."""

    function: Function
    arguments: tuple[Term, ...]
    options: tuple[object, ...] = ()
