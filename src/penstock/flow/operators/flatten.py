"""Flatten: a row for each item of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.graph.facts import Port
from penstock.graph.node import Operator


@dataclass(frozen=True, slots=True)
class Flatten(Operator):
    """The row once for each item of the list in column `at`, which the item replaces.

    at: the position of the column. Its type is a list, or any value; a value that is
        then no tuple, list or frozenset stops the tick (`EvaluationError`).

    Items keep their order, members of a set come in the order of values; they have the
    weight of their row. A null and an empty list have no items, so that their rows are
    gone. A tick without rows answers nothing.

    >>> from penstock.testing import show
    >>> def words(line: str) -> list[str]:
    ...     return line.split()
    >>> show(lambda lines: lines.map(words).flatten(), lines=["a b", "", "c"])
    + 'a'
    + 'b'
    + 'c'
    """

    kind: ClassVar[str] = "flatten"
    linear: ClassVar[bool] = True
    at: int

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)
