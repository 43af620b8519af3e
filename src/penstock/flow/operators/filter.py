"""Filter: the rows of which a predicate is true."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.expr.tree import Column, Expr
from penstock.graph.facts import Port
from penstock.graph.monotone_columns import Growth
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
    linear: ClassVar[bool] = True
    predicate: Expr | Callable[..., bool]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def growth(self, inputs: Sequence[Growth | None]) -> Growth | None:
        (before,) = inputs
        if before is None or not isinstance(self.predicate, Expr):
            return None
        # By its keys alone a value is let through always or never.
        read = {part.name for part in self.predicate.walk() if isinstance(part, Column)}
        return before if read <= set(before.keys) else None

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
