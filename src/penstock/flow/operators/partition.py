"""Partition: each row to exactly one of several ports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.expr.tree import Expr
from penstock.graph.facts import Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class Partition(Operator):
    """The row with the number of its port as a further, last column.

    by:    an expression or a function of the row; its value is one of `tags`.
    tags:  what a port is called by, in the order of the ports. Any other value stops
           the tick with an error that names it, the row and the place (`UnknownPort`).

    The streams of the ports are this one, filtered by its last column: so they are
    disjoint, together they are the input, and each keeps its order. A tick without
    rows answers nothing.

    >>> from penstock.testing import show
    >>> def half(n: int) -> str:
    ...     return "small" if n < 5 else "large"
    >>> show(lambda numbers: numbers.partition(half, ["small", "large"])["large"], numbers=[1, 7, 5])
    + 7
    + 5
    """

    kind: ClassVar[str] = "partition"
    linear: ClassVar[bool] = True
    by: Expr | Callable[..., object]
    tags: tuple[object, ...]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if isinstance(self.by, Expr):
            yield "by", self.by

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if not isinstance(self.by, Expr):
            yield "by", self.by

    def describe(self) -> str:
        by = str(self.by) if isinstance(self.by, Expr) else getattr(self.by, "__name__", repr(self.by))
        return f"by {by}: {', '.join(map(str, self.tags))}"
