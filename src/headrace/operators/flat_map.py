"""Flat-map operator: map each row to any number of rows, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.operators.row_by_row import RowFunction

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class FlatMap(RowFunction):
    """The items of `function(row)`, in order, each with the weight of `row`.

    >>> from headrace.testing import show
    >>> def words(line: str) -> list[str]:
    ...     return line.split()
    >>> show(lambda lines: lines.flat_map(words), lines=["a b", "c"])
    + 'a'
    + 'b'
    + 'c'
    """

    kind: ClassVar[str] = "flat_map"
    function: Callable[..., Iterable[object]]

    def output(self, context: CheckContext) -> Columns:
        return None
