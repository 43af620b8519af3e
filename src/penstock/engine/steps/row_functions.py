"""Row by row: what users' functions and values say of each row. No state, no waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Row
from penstock.engine.steps.rows import OpaqueStep
from penstock.engine.steps.step import Step, step_for
from penstock.engine.steps.user_rows import users_view, write_received
from penstock.expr.tree import Expr
from penstock.expr.types import AnyType
from penstock.flow.operators.assume_ordered import AssumeOrdered
from penstock.flow.operators.explode import Explode
from penstock.flow.operators.filter_map import FilterMap
from penstock.flow.operators.inspect import Inspect
from penstock.flow.operators.partition import Partition

if TYPE_CHECKING:
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


class FilterMapStep(OpaqueStep):
    def consume(self, port: int, row: Row) -> None:
        made = self.writer.fresh("made")
        self.code.line(f"{made} = {self.call(port, row)}")
        with self.code.block(f"if {made} is not None:"):
            self.emit(write_received(self.writer, self.node.schema, made, self._checked, row.weight))


class ExplodeStep(Step):
    def __init__(self, node: Node, writer: StepWriter, operator: Explode) -> None:
        super().__init__(node, writer)
        self._operator = operator

    def consume(self, port: int, row: Row) -> None:
        at, numbered = self._operator.at, self._operator.position is not None
        column = self.writer.input_schema(self.node, port).fields[at]
        elements, element = row.columns[at], self.writer.fresh("element")
        made: tuple[str, ...] = (element,)
        if isinstance(column.type, AnyType):
            elements = f"x_items({elements})"
        elif column.nullable and not self._operator.outer:
            elements = f"({elements} or ())"
        if numbered:
            made = (self.writer.fresh("position"), element)
        if numbered and self._operator.outer:
            held = self.writer.fresh("elements")
            self.code.line(f"{held} = {elements}")
            elements = f"enumerate({held}) if {held} else ((None, None),)"
        elif numbered:
            elements = f"enumerate({elements})"
        elif self._operator.outer:
            elements = f"{elements} or (None,)"
        with self.code.block(f"for {', '.join(made)} in {elements}:"):
            self.emit(Row((*row.columns[:at], *made, *row.columns[at + 1 :]), None, row.weight))


class InspectStep(Step):
    def __init__(self, node: Node, writer: StepWriter, operator: Inspect) -> None:
        super().__init__(node, writer)
        self._function = writer.constant("f", operator.function)

    def consume(self, port: int, row: Row) -> None:
        self.code.line(f"{self._function}({users_view(self.writer, self.node.schema, row)})")
        self.emit(row)


class PartitionStep(Step):
    """The tag is looked up among the ports' tags, which are in the order of their numbers."""

    def __init__(self, node: Node, writer: StepWriter, operator: Partition) -> None:
        super().__init__(node, writer)
        self.by = operator.by
        self._ports = writer.constant("ports", {tag: at for at, tag in enumerate(operator.tags)})

    def consume(self, port: int, row: Row) -> None:
        tag, at = self.writer.fresh("tag"), self.writer.fresh("port")
        self.code.line(f"{tag} = {self._tag(port, row)}")
        self.code.line(f"{at} = {self._ports}.get({tag})")
        with self.code.block(f"if {at} is None:"):
            self.code.line(f"x_unknown_port({tag}, {self._ports})")
        self.emit(Row((*row.columns, at), None, row.weight))

    def _tag(self, port: int, row: Row) -> str:
        schema = self.writer.input_schema(self.node, port)
        if isinstance(self.by, Expr):
            return self.writer.value(self.by, schema, row.columns)
        return f"{self.writer.constant('f', self.by)}({users_view(self.writer, schema, row)})"


class AssumeOrderedStep(Step):
    def consume(self, port: int, row: Row) -> None:
        self.emit(row)


@step_for.register(FilterMap)
def _filter_map(operator: FilterMap, node: Node, writer: StepWriter) -> Step:
    return FilterMapStep(node, writer, operator.function)


@step_for.register(Explode)
def _explode(operator: Explode, node: Node, writer: StepWriter) -> Step:
    return ExplodeStep(node, writer, operator)


@step_for.register(Inspect)
def _inspect(operator: Inspect, node: Node, writer: StepWriter) -> Step:
    return InspectStep(node, writer, operator)


@step_for.register(Partition)
def _partition(operator: Partition, node: Node, writer: StepWriter) -> Step:
    return PartitionStep(node, writer, operator)


@step_for.register(AssumeOrdered)
def _assume_ordered(operator: AssumeOrdered, node: Node, writer: StepWriter) -> Step:
    return AssumeOrderedStep(node, writer)
