"""Flat map: any number of rows out for each row in, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.row_by_row import RowFunction

if TYPE_CHECKING:
    from penstock.graph.check_context import CheckContext
    from penstock.graph.node import Columns


@dataclass(frozen=True, slots=True)
class FlatMap(RowFunction):
    """Every item of `function(row)`, in its order; each with the weight of `row`.

    >>> from penstock.testing import show
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
