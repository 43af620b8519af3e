"""The expression tree: frozen data, built by Python operators.

`col.price * 2` builds a tree and computes nothing. The tree is checked against
a row type (`penstock.expr.check`), lowered to Python source
(`penstock.expr.python`) and to Spark columns (`penstock.spark.columns`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import ExpressionTruthValue, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.expr.types import DataType


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """A row expression. Compare trees with `same`, not `==`, which builds a tree."""

    def children(self) -> tuple[Expr, ...]:
        return ()

    def walk(self) -> Iterator[Expr]:
        """The tree, children first."""
        for child in self.children():
            yield from child.walk()
        yield self

    def __bool__(self) -> bool:
        raise ExpressionTruthValue(
            "an expression has no truth value while the flow is being built",
            where=[Place.of_caller()],
            why="`and`, `or`, `not`, `if` and `in` ask for one; so does a chained comparison.",
            fix="use `&`, `|`, `~`, `ps.when(...)`, `.is_in(...)`, `.between(...)`",
        )


@dataclass(frozen=True, slots=True, eq=False)
class Column(Expr):
    """A column by name. `side` is "left" or "right" only inside a join condition."""

    name: str
    side: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Expr):
    """A constant. `type` None means: from the value (None is null of any type)."""

    value: object
    type: DataType | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """A function of the catalogue applied to expressions.

    `function` is the name in the catalogue (`penstock.expr.functions`);
    `options` are build-time constants such as a target type or a time unit.
    """

    function: str
    arguments: tuple[Expr, ...]
    options: tuple[object, ...] = ()

    def children(self) -> tuple[Expr, ...]:
        return self.arguments


@dataclass(frozen=True, slots=True)
class Ordering:
    """An expression to sort by. Nulls come first ascending and last descending, NaN is greatest."""

    expr: Expr
    descending: bool = False

    def __str__(self) -> str:
        return f"{self.expr}{' desc' if self.descending else ''}"
