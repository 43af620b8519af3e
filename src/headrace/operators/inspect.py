"""Inspect operator: call a function on each passing row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import identity_lineage
from headrace.operators.row_by_row import RowFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage


@dataclass(frozen=True, slots=True)
class Inspect(RowFunction):
    """The same rows; `function(row)` is called for each, and its result is ignored.

    The function is called once per change, also for retractions, in order of arrival. A stream that leads to
    no sink does not run, so nothing is inspected; `null()` after it makes it run.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.inspect(lambda n: print("saw", n)), numbers=[1, 2])
    saw 1
    saw 2
    + 1
    + 2
    """

    kind: ClassVar[str] = "inspect"
    function: Callable[..., object]

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def assumptions(self) -> Iterator[str]:
        # The rows do not depend on the function's result.
        yield from ()
