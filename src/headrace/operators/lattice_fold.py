"""Lattice fold operator: maintain the merge of all items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.types import AnyType, Field
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.operators.lattice_merge import LatticeGrowth, lattice_claims, lattice_functions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lattice import Lattice


@dataclass(frozen=True, slots=True)
class LatticeFold(Operator):
    """The merge in `lattice` of all items so far, per key if there are keys.

    Without keys, the output is a table of exactly one row, which exists from the first tick on, with the
    bottom until the first item. In each tick that grows the value, the old one is retracted and the new one
    emitted. An empty tick changes nothing.

    The order and the number of copies of items do not matter. In a cycle within a tick, the operator is
    non-blocking: see `operators.lattice_growth`.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.lattice_fold(Max()), numbers=[1, 3, 2])
    + 3
    """

    kind: ClassVar[str] = "lattice_fold"
    merges_equal: ClassVar[bool] = True
    runs_first_tick: ClassVar[bool] = True
    lattice: Lattice
    keys: tuple[tuple[str, Expr], ...]
    into: str
    item: Expr
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further item could make the value grow"),)

    def output(self, context: CheckContext) -> Columns:
        typed = check(self.item, context.input)
        merged = self.lattice.column(Field(self.into, typed.type, typed.nullable))
        if self.keys or not self.runs_first_tick:
            merged = Field(self.into, merged.type, typed.nullable or isinstance(merged.type, AnyType))
        return (*context.computed_columns(self.keys), merged)

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"merged": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a merged value cannot shrink:\nof an item that is taken back it would not know",
                "group_by(...).agg(...) with hr.max, hr.collect and the like, which take rows back",
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        return MonotoneColumns(tuple(name for name, _ in self.keys), {self.into: self.lattice})

    def inside_loop(self) -> Operator:
        return LatticeGrowth(self.lattice, self.keys, self.into, self.item, self.nondet)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        yield self.into, self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from lattice_functions(self.lattice)

    def assumptions(self) -> Iterator[str]:
        yield from lattice_claims(self.lattice)

    def describe(self) -> str:
        keys = f" per {', '.join(name for name, _ in self.keys)}" if self.keys else ""
        return f"{self.lattice} of {self.item}{keys}"
