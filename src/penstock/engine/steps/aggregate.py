"""Aggregate: one list per group; per tick a changed group sends its old answer back and a new one out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row import Row, tuple_source
from penstock.engine.slot import Slot
from penstock.engine.steps.group import ANSWER, ROWS, Group
from penstock.engine.steps.step import Step, step_for
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.aggregate import Aggregate

if TYPE_CHECKING:
    from penstock.engine.region_writer import RegionWriter
    from penstock.graph.node import Node


class AggregateStep(Step):
    """Slot: key -> [rows, last answer, fields of the accumulators].

    `touched` holds the groups of this tick, so that each answers once, in the
    order in which they were first touched.
    """

    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: RegionWriter, operator: Aggregate) -> None:
        super().__init__(node, writer)
        self.operator = operator
        self.schema = writer.input_schema(node, 0)
        self.touched = writer.named("touched", node.id)
        self.appends = writer.is_append(node.inputs[0])
        self.sites = 1 if writer.is_append(node.id) else 4
        aggregations = tuple(aggregation for _, aggregation in operator.aggregations)
        self.group = Group(writer, self.schema, aggregations, appends=self.appends)

    def slots(self) -> tuple[Slot, ...]:
        of_a_tick = self.operator.lifetime is Lifetime.TICK
        return (Slot(f"{self.node.id}.groups", self.group.thaw, transient=of_a_tick),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")
        if not self.operator.keys:
            self.code.line(f"{self.writer.named('group', self.node.id)} = None")

    def consume(self, port: int, row: Row) -> None:
        if not self.operator.keys:
            self._consume_ungrouped(row)
            return
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        writer.assign_key(key, tuple(e for _, e in self.operator.keys), self.schema, row.columns)
        code.line(f"{group} = {writer.slot_get(self.node.id, 'groups')}({key})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {writer.slot(self.node.id, 'groups')}[{key}] = {self.group.empty}")
        code.line(f"{self.touched}[{key}] = {group}")
        self.group.add(group, row)

    def _consume_ungrouped(self, row: Row) -> None:
        """The one group is looked up once per tick, and only if a row comes."""
        writer, code = self.writer, self.code
        group = writer.named("group", self.node.id)
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {writer.slot_get(self.node.id, 'groups')}(())")
            with code.block(f"if {group} is None:"):
                code.line(f"{group} = {writer.slot(self.node.id, 'groups')}[()] = {self.group.empty}")
            code.line(f"{self.touched}[()] = {group}")
        self.group.add(group, row)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        old, new = writer.fresh("old"), writer.fresh("new")
        with code.block(f"for {key}, {group} in {self.touched}.items():"):
            code.line(f"{old} = {group}[{ANSWER}]")
            self.group.settle(group)
            if self.appends:
                self._answer(key, group, old, new)
                return
            with code.block(f"if {group}[{ROWS}] > 0:"):
                self._answer(key, group, old, new)
            with code.block("else:"):
                with code.block(f"if {old} is not None:"):
                    code.line(f"{group}[{ANSWER}] = None")
                    self._emit(old, "-1")
                with code.block(f"if not {group}[{ROWS}] and {group} == {self.group.empty}:"):
                    code.line(f"del {writer.slot(self.node.id, 'groups')}[{key}]")

    def _answer(self, key: str, group: str, old: str, new: str) -> None:
        writer, code = self.writer, self.code
        keys = len(self.operator.keys)
        columns = [key] if keys == 1 else [f"{key}[{i}]" for i in range(keys)]
        columns += self.group.results(group)
        code.line(f"{new} = {tuple_source(columns)}")
        if writer.is_append(self.node.id):
            code.line(f"{group}[{ANSWER}] = {new}")
            self._emit(new, "1")
            return
        with code.block(f"if {old} is None:"):
            code.line(f"{group}[{ANSWER}] = {new}")
            self._emit(new, "1")
        with code.block(f"elif {old} != {new}:"):
            code.line(f"{group}[{ANSWER}] = {new}")
            self._emit(old, "-1")
            self._emit(new, "1")

    def _emit(self, row: str, weight: str) -> None:
        columns = tuple(f"{row}[{i}]" for i in range(len(self.node.schema.fields)))
        self.emit(Row(columns, row, weight))


@step_for.register(Aggregate)
def _aggregate(operator: Aggregate, node: Node, writer: RegionWriter) -> Step:
    return AggregateStep(node, writer, operator)
