"""Lattice folds: merge all items, and in a cycle emit the merge whenever it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.check import check
from headrace.expr.types import AnyType, Field
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import ALTERABLE, Operator, function_name
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.lattice import Merging
from headrace.operators.unservable import LOOP_OF_LATTICES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lattice import Lattice


# --- lattice growth operator: emit the merge of all items each time it grows ----------------------


@dataclass(frozen=True, slots=True)
class LatticeGrowth(Operator):
    """Lattice fold in a cycle within a tick: non-blocking and without retractions.

    Each item that makes the value grow emits the new value, so the cycle ends when no value grows any more.
    If all operators downstream are monotone, the final value does not depend on the order; the intermediate
    ones depend on order and ticks, so a reason is required outside of flows with `ticks="given"`.

    >>> import headrace as hr
    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> def count_up(seed):
    ...     numbers = seed.flow.feedback(int)
    ...     top = seed.union(numbers).lattice_fold(Max(), nondet="only the last one is read")
    ...     more = top.filter(hr.col.value < 3).map(lambda n: n + 1, returns=int)
    ...     numbers.close(more)
    ...     return top
    >>> show(count_up, seed=[1])
    + 1
    + 2
    + 3
    """

    kind: ClassVar[str] = "lattice_fold"
    plan_name: ClassVar[str | None] = ""
    merges_equal: ClassVar[bool] = True
    lattice: Lattice
    keys: tuple[tuple[str, Expr], ...]
    into: str
    item: Expr
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        raise context.unbuildable_error(f"{self.kind} in a loop is made by the graph, and not written")

    def unservable(self) -> Unservable | None:
        return LOOP_OF_LATTICES

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a merged value cannot shrink:\nof an item that is taken back it would not know",
                "feed the loop from streams that only grow",
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True, det=inputs[0].det and self.nondet is None)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        return MonotoneColumns(tuple(name for name, _ in self.keys), {self.into: self.lattice})

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "In a cycle it shows its value each time it has grown, and ticks decide how often that is."

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


def lattice_functions(lattice: Lattice) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the opaque user functions of a lattice."""
    yield "merge", lattice.function if isinstance(lattice, Merging) else lattice.merge


def lattice_claims(lattice: Lattice) -> Iterator[str]:
    """Yield the assumptions about a user's lattice, one clause each. Built-in lattices need none."""
    if isinstance(lattice, Merging):
        yield f"{function_name(lattice.function)} {_MERGES}"
    elif type(lattice).__module__ != Merging.__module__:
        yield f"{function_name(type(lattice))} {_MERGES}"
    for part in lattice.parts:
        yield from lattice_claims(part)


_MERGES = "merges in any order and any number of times alike"


# --- lattice fold operator: maintain the merge of all items ---------------------------------------


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


# --- lattice reduce operator: a lattice fold without a row for empty input ------------------------


@dataclass(frozen=True, slots=True)
class LatticeReduce(LatticeFold):
    """Lattice fold that emits no row before the first item.

    >>> from headrace.lattice import Max
    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.filter(lambda n: n > 9).lattice_reduce(Max()), numbers=[1, 3, 2])
    """

    kind: ClassVar[str] = "lattice_reduce"
    runs_first_tick: ClassVar[bool] = False
