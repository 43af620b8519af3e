"""Operators that do part of another one's work where the rows are, so that fewer travel.

Nobody writes them: an engine whose rows lie in several places puts a partial
operator before its exchange. It answers each piece of a tick for itself and
remembers nothing; what it answers is never a table, so it has no fact but `append`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.expr.tree import Column
from penstock.graph.facts import ANYWHERE, Facts, KeyedSlot, Placement, Port, keyed
from penstock.graph.node import Operator, unchanged

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema
    from penstock.flow.operators.aggregate import Aggregate
    from penstock.flow.operators.top_k import TopK
    from penstock.graph.check_context import CheckContext
    from penstock.graph.facts import Lineage, SlotLayout, Unservable
    from penstock.graph.monotone_columns import Growth
    from penstock.graph.node import Columns


class Division(Operator):
    """Base of the operators that an engine puts in the place of one that users wrote."""

    __slots__ = ()

    def output(self, context: CheckContext) -> Columns:
        raise context.refused(f"{self.kind} is made by an engine, and not written")

    def unservable(self) -> Unservable | None:
        return None


@dataclass(frozen=True, slots=True)
class PartialAggregate(Division):
    """One row per group of a piece of a tick: its keys, its rows, and what its aggregates sum up.

    of:   the aggregate that this is a part of, over the columns of what this reads.
    said: what that one describes itself as.
    """

    kind: ClassVar[str] = "partial aggregate"
    nets: ClassVar[bool] = True
    of: Aggregate
    said: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could belong to a group"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, ordered=False, once=True)

    @property
    def keys(self) -> tuple[tuple[str, Expr], ...]:
        """The keys as the output names them, and what they are in the input: both are columns."""
        return tuple((expr.name, expr) for _, expr in self.of.keys if isinstance(expr, Column))

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def placement(self) -> Placement:
        return ANYWHERE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        return self.of.expressions()

    def describe(self) -> str:
        return self.said


@dataclass(frozen=True, slots=True)
class MergedAggregate(Division):
    """The answer of an aggregate, from the rows of partial ones. It keeps what the aggregate keeps.

    of:      the aggregate. rows: the schema of what that reads. appends: whether these are never taken back.
    keys:    its keys, in the rows that come here.
    said:    what it described itself as, before it was divided.
    """

    kind: ClassVar[str] = "aggregate"
    of: Aggregate
    keys: tuple[tuple[str, Expr], ...]
    rows: Schema
    appends: bool
    said: str

    def ports(self) -> tuple[Port, ...]:
        return self.of.ports()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=self.appends and rows.bounded, ordered=False, once=True)

    def growth(self, inputs: Sequence[Growth | None]) -> Growth | None:
        return self.of.growth(inputs)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"groups": KeyedSlot()}

    def placement(self) -> Placement:
        return keyed(tuple(expr for _, expr in self.keys))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys

    def describe(self) -> str:
        return self.said


@dataclass(frozen=True, slots=True)
class PartialTopK(Division):
    """Of each group of a piece of a tick the rows that `of` would answer: no other can be among its first.

    Right only of rows that are never taken back.
    """

    kind: ClassVar[str] = "candidates"
    of: TopK

    def ports(self) -> tuple[Port, ...]:
        return self.of.ports()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (unchanged(inputs[0]),)

    def placement(self) -> Placement:
        return ANYWHERE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        return self.of.expressions()

    def describe(self) -> str:
        return self.of.describe()
