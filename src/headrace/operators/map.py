"""Map operator: map each row to one row, by an opaque function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.operators.row_by_row import RowFunction

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


class VectorisedFunction(ABC):
    """Function of a row that maps many rows faster together than one by one, with equal results."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, row: Any) -> object:
        """Map one row."""

    @abstractmethod
    def of_rows(self, rows: list[Any]) -> list[object]:
        """Map one or more rows: the results in order, each as a call on the row alone would return it."""


@dataclass(frozen=True, slots=True)
class Map(RowFunction):
    """`function(row)` for each row; a retracted row retracts its image.

    So `function` must return the same result for the same row every time. Rows are passed as instances of
    their row class, and results are checked against the output type. A `VectorisedFunction` is called once
    per tick with all rows, in a loop once per round; in a loop with retractions, for each row.

    >>> from headrace.testing import show
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
