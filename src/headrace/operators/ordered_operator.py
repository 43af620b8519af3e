"""Base class of operators that read rows in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Facts, Need, Placement, Port, place_by_key
from headrace.operators.lifetime import Lifetime, WithLifetime
from headrace.operators.reduce import describe_lifetime

if TYPE_CHECKING:
    from headrace.expr.tree import Expr


class OrderedOperator(WithLifetime):
    """Base of operators whose output for a row depends on the rows before it, per key if there are keys.

    order_reason: clause that says what depends on the earlier rows.
    per:          field defined by each subclass: the keys, none for all rows together.
    """

    __slots__ = ()
    order_reason: ClassVar[str]
    per: tuple[Expr, ...]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def needs(self) -> tuple[Need, ...]:
        why = self.order_reason
        return (
            Need(
                0,
                "append",
                f"{why},\nand a row that is taken back would have been one of them",
                "feed it from a stream that only grows",
            ),
            Need(
                0,
                "ordered",
                why,
                'say what the order is by .assume_ordered(nondet="why it is kept"), or sort a bounded stream',
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(det=rows.det and self.nondet is None)
        return rows

    def placement(self) -> Placement:
        return place_by_key(self.per)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.per:
            yield "per", expr

    def keys_and_lifetime(self) -> list[str]:
        """Render keys and lifetime for `describe`."""
        keys = [f"per {', '.join(str(e) for e in self.per)}"] if self.per else []
        return [*keys, *describe_lifetime(self.lifetime)]
