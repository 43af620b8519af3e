"""Operators that carry a value from row to row, in order: scan, enumerate, state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.types import INT64, Field
from headrace.graph.node import ALTERABLE, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.operators.fold import described, named_functions
from headrace.operators.function_claims import NO_CLAIMS
from headrace.operators.lattice_fold import lattice_claims, lattice_functions
from headrace.operators.lifetime import Lifetime, WithLifetime, describe_lifetime
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lattice import Lattice


# --- base class of operators that read rows in order ----------------------------------------------


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


# --- scan operator: map rows one by one with a carried value --------------------------------------


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


# --- enumerate operator: number the rows ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Enumerate(OrderedOperator):
    """Each row with its number in front: `start`, `start + 1`, ... in row order.

    The operator is non-blocking. With keys `per`, each key is numbered separately, so `start=1` makes a
    running count. With lifetime TICK, numbers start again in each tick. An empty tick emits nothing. A number
    beyond 64 bits stops the tick with `EvaluationError`.

    >>> from headrace.testing import show
    >>> show(lambda words: words.enumerate(start=1, per="value"), words=["a", "b", "a"])
    + (index=1, value='a')
    + (index=1, value='b')
    + (index=2, value='a')
    """

    kind: ClassVar[str] = "enumerate"
    order_reason: ClassVar[str] = "a row's number counts the rows before it"
    start: int = 0
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        context.require(-(2**63) <= self.start < 2**63, "numbers begin beyond 64 bits")
        context.check_keys(self.per)
        return (Field(context.output.names[0], INT64), *context.input.fields)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"count": KeyedSlot()}

    def describe(self) -> str:
        return ", ".join([f"from {self.start}", *self.keys_and_lifetime()])


# --- state operator: the rows that make a merged value grow ---------------------------------------


@dataclass(frozen=True, slots=True)
class State(OrderedOperator):
    """The rows whose item is not yet contained in the merge of the earlier ones.

    The operator is non-blocking, and rows keep their order. With keys `per`, each key has a value of its own.
    With lifetime TICK, the value starts from the bottom in each tick. An empty tick emits nothing.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.state(Max()), numbers=[3, 1, 5, 5])
    + 3
    + 5
    """

    kind: ClassVar[str] = "state"
    order_reason: ClassVar[str] = "which rows are news depends on the rows before"
    lattice: Lattice
    item: Expr
    per: tuple[Expr, ...] = ()
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output(self, context: CheckContext) -> Columns:
        typed = check(self.item, context.input)
        self.lattice.column(Field("item", typed.type, typed.nullable))
        context.check_keys(self.per)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"merged": KeyedSlot()}

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield "item", self.item
        # Not `super()`, because a dataclass with slots is a different class from the one defined here.
        yield from OrderedOperator.expressions(self)

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from lattice_functions(self.lattice)

    def assumptions(self) -> Iterator[str]:
        yield from lattice_claims(self.lattice)

    def describe(self) -> str:
        return ", ".join([f"{self.lattice} of {self.item}", *self.keys_and_lifetime()])
