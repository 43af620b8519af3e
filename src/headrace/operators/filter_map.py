"""Filter-map operator: map each row to at most one row, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.operators.row_by_row import RowFunction

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class FilterMap(RowFunction):
    """`function(row)` for each row, unless the result is None, with the weight of `row`.

    Rows keep their order. A tick without rows emits nothing. To make rows that are None themselves, use
    `map`.

    >>> from headrace.testing import show
    >>> def number(text: str) -> int | None:
    ...     return int(text) if text.isdigit() else None
    >>> show(lambda texts: texts.filter_map(number), texts=["1", "x", "2"])
    + 1
    + 2
    """

    kind: ClassVar[str] = "filter_map"
    function: Callable[..., object]

    def output(self, context: CheckContext) -> Columns:
        return None
