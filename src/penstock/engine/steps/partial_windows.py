"""Windows in two pieces: rows summed up by group and pane, and windows over those."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.partial_windows import MergedWindow, PartialWindow, panes_of
from penstock.engine.row_codegen import Row
from penstock.engine.steps.grid_windows import GridStep
from penstock.engine.steps.group import FIRST_FIELD, ROWS, Group
from penstock.engine.steps.step import Step, step_for
from penstock.flow.windows import Grid

if TYPE_CHECKING:
    from penstock.engine.slot import Slot
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


class PartialWindowStep(GridStep):
    """`sums`: (key, pane) -> the list of the group, forgotten when the tick ends."""

    def __init__(self, node: Node, writer: StepWriter, operator: PartialWindow) -> None:
        assert isinstance(operator.of.shape, Grid), "only windows on a grid have panes"
        panes = panes_of(operator.of.shape)
        super().__init__(node, writer, replace(operator.of, shape=panes), panes)
        self.updates = False
        self._sums = writer.named("sums", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def begin(self) -> None:
        super().begin()
        self.code.line(f"{self._sums} = {{}}")

    def fold(self, key: str, row: Row) -> None:
        writer, code = self.writer, self.code
        pane, group = writer.fresh("pane"), writer.fresh("group")
        code.line(f"{pane} = ({key}, {self.start})")
        code.line(f"{group} = {self._sums}.get({pane})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {self._sums}[{pane}] = {self.group.empty}")
        self.group.add(group, row)

    def finish(self) -> None:
        key, pane, group = (self.writer.fresh(name) for name in ("key", "pane", "group"))
        keys = len(self.operator.keys)
        fields = len(self.node.schema.fields) - keys - 2
        columns = [key] if keys == 1 else [f"{key}[{i}]" for i in range(keys)]
        columns += [pane, f"{group}[{ROWS}]", *(f"{group}[{FIRST_FIELD + i}]" for i in range(fields))]
        with self.code.block(f"for ({key}, {pane}), {group} in {self._sums}.items():"):
            self.emit(Row(tuple(columns)))


class MergedWindowStep(GridStep):
    """Windows whose rows are lists of groups, each of the rows of a pane."""

    def __init__(self, node: Node, writer: StepWriter, operator: MergedWindow) -> None:
        assert isinstance(operator.of.shape, Grid), "only windows on a grid have panes"
        aggregations = tuple(aggregation for _, aggregation in operator.of.aggregations)
        group = Group(writer, operator.rows, aggregations, appends=True)
        super().__init__(node, writer, operator.over_panes, operator.of.shape, group)

    def add(self, group: str, row: Row) -> None:
        self.group.merge(group, row.columns[len(self.operator.keys) + 1 :])


@step_for.register(PartialWindow)
def _(operator: PartialWindow, node: Node, writer: StepWriter) -> Step:
    return PartialWindowStep(node, writer, operator)


@step_for.register(MergedWindow)
def _(operator: MergedWindow, node: Node, writer: StepWriter) -> Step:
    return MergedWindowStep(node, writer, operator)
