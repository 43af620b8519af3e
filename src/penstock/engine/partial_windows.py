"""Windows in two pieces: one sums up rows where they are, the other keeps the windows.

Windows on a grid that begin at every n-th part of their size share *panes*: the pieces of time between
two beginnings. All times of a pane are in the same windows, so a row per group and pane tells as much as
the rows in it. (Li et al., "No pane, no gain", SIGMOD Record 2005.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from penstock.engine.partials import Division
from penstock.expr.tree import Column
from penstock.flow.operators.window import Window, grid_slots
from penstock.flow.windows import Grid
from penstock.graph.facts import ANYWHERE, WHOLE, Facts, Placement, Port, keyed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema
    from penstock.graph.facts import Lineage, SlotLayout

PANE = "pane"
"""The column that holds the beginning of a pane."""


def panes_of(grid: Grid) -> Grid:
    """The panes of windows on a grid, as windows side by side."""
    return Grid(grid.every, grid.every, grid.offset)


@dataclass(frozen=True, slots=True)
class PartialWindow(Division):
    """One row per group and pane of a piece of a tick: keys, pane, rows, and what the aggregates sum up."""

    kind: ClassVar[str] = "partial window"
    of: Window

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows", blocking=True, why="a further row could belong to a group"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, ordered=False, once=True)

    def placement(self) -> Placement:
        return ANYWHERE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        return self.of.expressions()

    def describe(self) -> str:
        return self.of.describe()


@dataclass(frozen=True, slots=True)
class MergedWindow(Division):
    """The answer of a window, from the rows of partial ones. It keeps what the window keeps.

    of:   the window. keys: its keys, in the rows that come here. rows: the schema of what `of` reads.
    """

    kind: ClassVar[str] = "window"
    of: Window
    keys: tuple[tuple[str, Expr], ...]
    rows: Schema

    @property
    def over_panes(self) -> Window:
        """The window whose rows are those of partial ones; its aggregates are still over the first rows."""
        return replace(self.of, keys=self.keys, time=Column(PANE))

    def ports(self) -> tuple[Port, ...]:
        return self.of.ports()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.of.gives(inputs)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return dict(self.keys), {}

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return grid_slots()

    def placement(self) -> Placement:
        return keyed(tuple(expr for _, expr in self.keys), None) if self.keys else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys

    def describe(self) -> str:
        return self.of.describe()
