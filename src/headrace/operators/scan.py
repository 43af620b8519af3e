"""Scan operator: map rows one by one with a carried value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import KeyedSlot
from headrace.operators.fold import described, named_functions
from headrace.operators.function_claims import NO_CLAIMS
from headrace.operators.lifetime import Lifetime
from headrace.operators.ordered_operator import OrderedOperator
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class Scan(OrderedOperator):
    """`function(carried, row)` returns the next carried value and the output row, or None to end.

    The operator is non-blocking: each row is mapped on arrival, in order. Once the function returns None, all
    further rows (of the key, if there are keys `per`) are dropped; with lifetime TICK, only until the end of
    the tick, when the scan starts over. An empty tick emits nothing.

    init:    a value, or a function without arguments that returns one (for each key).
    carried: schema of the carried value, as kept from tick to tick.

    >>> from headrace.testing import show
    >>> def total(sum: int, n: int) -> tuple[int, int] | None:
    ...     return (sum + n, sum + n) if sum + n < 10 else None
    >>> show(lambda numbers: numbers.scan(0, total), numbers=[1, 2, 3, 9, 1])
    + 1
    + 3
    + 6
    """

    kind: ClassVar[str] = "scan"
    order_reason: ClassVar[str] = "what is carried along depends on the rows before"
    init: object
    function: Callable[..., object]
    carried: Schema
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        context.check_keys(self.per)
        return None

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"carried": KeyedSlot()}

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)

    def describe(self) -> str:
        what = described(self.function, NO_CLAIMS)
        return ", ".join([what, *self.keys_and_lifetime()])
