"""Scan: a row out for each row in, by a function that carries a value along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.flow.claims import NO_CLAIMS
from penstock.flow.lifetime import Lifetime, WithLifetime
from penstock.flow.operators.fold import described, named_functions
from penstock.flow.operators.reduce import of_lifetime
from penstock.graph.facts import WHOLE, Facts, Need, Placement, Port, keyed
from penstock.graph.node import ALTERABLE

if TYPE_CHECKING:
    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema


@dataclass(frozen=True, slots=True)
class Scan(WithLifetime):
    """`function(carried, row)` gives the next carried value and the row to send, or None to end.

    Nothing waits: each row is answered as it comes, in order. Where the function gave None,
    no further row is answered: of the key, if it is `per` key; for ever, or with lifetime
    TICK until the tick ends, when all is as in the beginning. An empty tick says nothing.

    init:    a value, or a function without arguments that makes one (for each key).
    carried: schema of the carried value, as which it is kept from tick to tick.

    >>> from penstock.testing import show
    >>> def total(sum: int, n: int) -> tuple[int, int] | None:
    ...     return (sum + n, sum + n) if sum + n < 10 else None
    >>> show(lambda numbers: numbers.scan(0, total), numbers=[1, 2, 3, 9, 1])
    + 1
    + 3
    + 6
    """

    kind: ClassVar[str] = "scan"
    init: object
    function: Callable[..., object]
    carried: Schema
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def needs(self) -> tuple[Need, ...]:
        return in_order("what is carried along depends on the rows before")

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return one_by_one(inputs[0], self.lifetime, self.nondet)

    def placement(self) -> Placement:
        return keyed(self.per) if self.per else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.per:
            yield "per", expr

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)

    def describe(self) -> str:
        what = described(self.function, NO_CLAIMS)
        return ", ".join([what, *per_key(self.per), *of_lifetime(self.lifetime)])


def in_order(why: str) -> tuple[Need, ...]:
    """The needs of an operator that reads the order of its rows."""
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


def one_by_one(rows: Facts, lifetime: Lifetime, nondet: str | None) -> Facts:
    """Facts of rows that are answered one by one, in their order."""
    return rows.but(det=rows.det and nondet is None) if lifetime is Lifetime.TICK else rows


def per_key(per: Sequence[Expr]) -> list[str]:
    """What `describe` says of keys."""
    return [f"per {', '.join(str(e) for e in per)}"] if per else []
