"""Checked expressions: the tree with a type, a nullability and a rule at every node.

`penstock.expr.check.elaborate` makes them from an `Expr` and a `Schema`. All
conversions that the rules ask for are nodes here (calls of "cast"), so both
lowerings see the same operations on the same types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.expr.types import DataType

if TYPE_CHECKING:
    from penstock.expr.catalogue import Function


@dataclass(frozen=True, slots=True)
class Typed:
    """The type of an expression and whether it can be null."""

    type: DataType
    nullable: bool

    def __str__(self) -> str:
        return f"{self.type}{'?' if self.nullable else ''}"


@dataclass(frozen=True, slots=True)
class NullType(DataType):
    """The type of a bare null: it becomes whatever is asked of it."""


NULL = NullType()


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A checked expression."""

    type: DataType
    nullable: bool


@dataclass(frozen=True, slots=True, eq=False)
class ColumnTerm(Term):
    """Column number `position` of the schema."""

    position: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class LiteralTerm(Term):
    """A constant, as it is inside rows. `adapts`: a bare number takes the type of what it meets."""

    value: object
    adapts: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CallTerm(Term):
    """A function of the catalogue on checked arguments."""

    function: Function
    arguments: tuple[Term, ...]
    options: tuple[object, ...] = ()
