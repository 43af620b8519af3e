"""Map operator: map each row to one row, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.row_by_row import RowFunction

if TYPE_CHECKING:
    from penstock.graph.check_context import CheckContext
    from penstock.graph.node import Columns


@dataclass(frozen=True, slots=True)
class Map(RowFunction):
    """`function(row)` for each row; a retracted row retracts its image.

    So `function` must return the same result for the same row every time. Rows are passed as instances of
    their row class, and results are checked against the output type.

    >>> from penstock.testing import show
    >>> def double(n: int) -> int:
    ...     return 2 * n
    >>> show(lambda numbers: numbers.map(double), numbers=[1, 2])
    + 2
    + 4
    """

    kind: ClassVar[str] = "map"
    function: Callable[..., object]

    def output(self, context: CheckContext) -> Columns:
        return None
