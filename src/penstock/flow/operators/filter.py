"""Filter: the rows of which a predicate is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.expr.tree import Expr
from penstock.graph.facts import Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class Filter(Operator):
    """Rows whose predicate is true; false and null drop a row.

    An expression is inlined; a callable is opaque and gets the row.

    >>> from penstock import col
    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.filter(col.value > 1), numbers=[1, 2])
    + 2
    """

    kind: ClassVar[str] = "filter"
    predicate: Expr | Callable[..., bool]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if not isinstance(self.predicate, Expr):
            yield "predicate", self.predicate

    def describe(self) -> str:
        if isinstance(self.predicate, Expr):
            return str(self.predicate)
        return getattr(self.predicate, "__name__", repr(self.predicate))
