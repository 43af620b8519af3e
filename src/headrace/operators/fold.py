"""Fold operator: combine all rows into one value, by an opaque function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.lattice import Max
from headrace.operators.function_claims import NO_CLAIMS, Claims
from headrace.operators.unservable import UNCLAIMED

if TYPE_CHECKING:
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class Fold(Operator):
    """The result of `function(accumulated, row)` over all rows so far, in order, starting from `init`.

    The output is a table of exactly one row, which exists from the first tick on, even without input. In each
    tick that changes the value, the old one is retracted and the new one emitted. An empty tick changes
    nothing.

    init:        a value, or a function without arguments that returns one.
    accumulated: schema of the accumulated value.

    >>> from headrace.testing import show
    >>> show(lambda words: words.fold("", lambda all, word: all + word[0]), words=["ab", "cd"])
    + 'ac'
    """

    kind: ClassVar[str] = "fold"
    merges_equal: ClassVar[bool] = True
    runs_first_tick: ClassVar[bool] = True
    init: object
    function: Callable[..., object]
    accumulated: Schema
    claims: Claims = NO_CLAIMS

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the value"),)

    def output(self, context: CheckContext) -> Columns:
        return self.accumulated.fields

    def unservable(self) -> Unservable | None:
        return None if self.claims.commutative else UNCLAIMED

    def at_most_one_row(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if not self.claims.monotone:
            return None
        return MonotoneColumns(
            (), dict.fromkeys(self.accumulated.names, Max()) if self.accumulated.scalar else {}
        )

    def placement(self) -> Placement:
        return WHOLE

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)

    def assumptions(self) -> Iterator[str]:
        yield from Operator.assumptions(self)
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        return described(self.function, self.claims)


def named_functions(
    init: object, function: Callable[..., object]
) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the opaque functions of a fold, each with a label."""
    if callable(init):
        yield "init", init
    yield "function", function


def described(function: Callable[..., object], claims: Claims) -> str:
    """Render a fold function and its claims."""
    name = getattr(function, "__name__", type(function).__name__)
    return f"{name}, {claims}" if str(claims) else name
