"""Aggregate: one list per group; each tick retracts a changed group's old result and emits the new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.steps.group_code import ANSWER, ROWS, Group
from headrace.lowering.row_code import key_columns, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, step_for
from headrace.operators.aggregate import Aggregate
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.graph.node import Node
    from headrace.lowering.row_code import Row
    from headrace.lowering.step_writer import StepWriter


class AggregateStep(Step):
    """Step of aggregate. Slot: key -> [rows, last answer, fields of the accumulators].

    `touched` holds the groups of this tick, so that each emits once, in the order of first touch.
    """

    keeps_state = True
    consolidates = True

    def __init__(
        self, node: Node, writer: StepWriter, keys: tuple[Expr, ...], lifetime: Lifetime, group: Group
    ) -> None:
        super().__init__(node, writer)
        self.keys = keys
        self.lifetime = lifetime
        self.group = group
        self.schema = self.input_schema()
        self.touched = writer.node_variable("touched", node.id)
        self.sites = 1 if writer.is_append(node.id) else 4

    def slots(self) -> tuple[Slot, ...]:
        of_a_tick = self.lifetime is Lifetime.TICK
        return (Slot(f"{self.node.id}.groups", self.group.thaw, "fields", transient=of_a_tick),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")
        if not self.keys:
            self.code.line(f"{self.writer.node_variable('group', self.node.id)} = None")

    def consume(self, port: int, row: Row) -> None:
        if not self.keys:
            self._consume_ungrouped(row)
            return
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        writer.assign_key(key, self.keys, self.schema, row.columns)
        self.state("groups").get_or_add(group, key, self.group.empty)
        code.line(f"{self.touched}[{key}] = {group}")
        self.fold(group, row)

    def _consume_ungrouped(self, row: Row) -> None:
        """Write the code for an aggregate without keys, whose group is looked up once per tick."""
        writer, code = self.writer, self.code
        group = writer.node_variable("group", self.node.id)
        with code.block(f"if {group} is None:"):
            self.state("groups").get_or_add(group, "()", self.group.empty)
            code.line(f"{self.touched}[()] = {group}")
        self.fold(group, row)

    def fold(self, group: str, row: Row) -> None:
        """Write code that adds a row to its group's list."""
        self.group.add(group, row)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        old, new = writer.fresh("old"), writer.fresh("new")
        with code.block(f"for {key}, {group} in {self.touched}.items():"):
            code.line(f"{old} = {group}[{ANSWER}]")
            self.group.settle(group)
            if self.group.appends:
                self._answer(key, group, old, new)
                return
            with code.block(f"if {group}[{ROWS}] > 0:"):
                self._answer(key, group, old, new)
            with code.block("else:"):
                with code.block(f"if {old} is not None:"):
                    code.line(f"{group}[{ANSWER}] = None")
                    self.emit_tuple(old, "-1")
                with code.block(f"if not {group}[{ROWS}] and {group} == {self.group.empty}:"):
                    code.line(f"del {self.slot('groups')}[{key}]")

    def _answer(self, key: str, group: str, old: str, new: str) -> None:
        writer, code = self.writer, self.code
        columns = (*key_columns(key, len(self.keys)), *self.group.aggregate_sources(group))
        code.line(f"{new} = {tuple_source(columns)}")
        if writer.is_append(self.node.id):
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_tuple(new, "1")
            return
        with code.block(f"if {old} is None:"):
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_tuple(new, "1")
        with code.block(f"elif {old} != {new}:"):
            code.line(f"{group}[{ANSWER}] = {new}")
            self.emit_tuple(old, "-1")
            self.emit_tuple(new, "1")


def group_keys(operator: Aggregate) -> tuple[Expr, ...]:
    """Return the key expressions of an aggregate, without their names."""
    return tuple(expr for _, expr in operator.keys)


def group_writer(operator: Aggregate, node: Node, writer: StepWriter) -> Group:
    """Create the group writer of an aggregate over its node's input rows."""
    aggregations = [aggregation for _, aggregation in operator.aggregations]
    appends = writer.is_append(node.inputs[0])
    return Group(writer, writer.input_schema(node, 0), aggregations, appends=appends)


@step_for.register(Aggregate)
def _aggregate(operator: Aggregate, node: Node, writer: StepWriter) -> Step:
    group = group_writer(operator, node, writer)
    return AggregateStep(node, writer, group_keys(operator), operator.lifetime, group)
