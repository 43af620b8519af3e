"""What windows of every shape share: keys, the group's list, the watermark, and how an answer leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Row, tuple_source
from penstock.engine.steps.group import Group
from penstock.engine.steps.step import Step
from penstock.expr.check import check
from penstock.flow.operators.window import Emit, Window

if TYPE_CHECKING:
    from penstock.engine.step_writer import StepWriter
    from penstock.expr.tree import Expr
    from penstock.graph.node import Node


class WindowStep(Step):
    """Base of the steps of windows.

    `risen` holds the watermark of this tick, if it rose.
    """

    keeps_state = True
    consolidates = True
    heavy = True

    def __init__(self, node: Node, writer: StepWriter, operator: Window, group: Group | None = None) -> None:
        super().__init__(node, writer)
        self.operator = operator
        self.schema = writer.input_schema(node, 0)
        self.type = check(operator.time, self.schema).type
        self.updates = operator.emit is Emit.UPDATES
        self.sites = 1 if writer.is_append(node.id) else 4
        self.risen = writer.named("risen", node.id)
        self.touched = writer.named("touched", node.id)
        aggregations = tuple(aggregation for _, aggregation in operator.aggregations)
        self.group = group or Group(writer, self.schema, aggregations, appends=True)

    def begin(self) -> None:
        self.code.line(f"{self.risen} = False")
        if self.updates:
            self.code.line(f"{self.touched} = {{}}")

    def consume(self, port: int, row: Row) -> None:
        if port == 0:
            self.take(row)
        else:
            # The watermarks of a tick rise, so the last is the one that counts.
            self.code.line(f"{self.risen} = True")
            self.code.line(f"{self.mark} = {row.columns[0]}")

    def take(self, row: Row) -> None:
        """Write what is done with one row on time."""
        raise NotImplementedError

    @property
    def mark(self) -> str:
        return self.writer.named("mark", self.node.id)

    def get(self, what: str) -> str:
        return self.writer.slot_get(self.node.id, what)

    def slot(self, what: str) -> str:
        return self.writer.slot(self.node.id, what)

    def assign_key(self, row: Row) -> str:
        key = self.writer.fresh("key")
        keys: tuple[Expr, ...] = tuple(expr for _, expr in self.operator.keys)
        self.writer.assign_key(key, keys, self.schema, row.columns)
        return key

    def assign_time(self, row: Row) -> str:
        time = self.writer.value(self.operator.time, self.schema, row.columns)
        time = self.writer.key_source(self.type, time)
        if time.isidentifier():
            return time
        variable = self.writer.fresh("time")
        self.code.line(f"{variable} = {time}")
        return variable

    def answer(self, key: str, start: str, end: str, group: str) -> str:
        """Write the answer of a window that has rows; the variable that holds it."""
        new, count = self.writer.fresh("new"), len(self.operator.keys)
        keys = [key] if count == 1 else [f"{key}[{i}]" for i in range(count)]
        self.code.line(f"{new} = {tuple_source([*keys, start, end, *self.group.results(group)])}")
        return new

    def emit_answer(self, answer: str, weight: str | None) -> None:
        columns = tuple(f"{answer}[{i}]" for i in range(len(self.node.schema.fields)))
        self.emit(Row(columns, answer, weight))

    def emit_update(self, old: str, new: str) -> None:
        """Write the change from an answer, None where there was none, to another."""
        with self.code.block(f"if {old} != {new}:"):
            if not self.writer.is_append(self.node.id):
                with self.code.block(f"if {old} is not None:"):
                    self.emit_answer(old, "-1")
            self.emit_answer(new, None if self.writer.is_append(self.node.id) else "1")
