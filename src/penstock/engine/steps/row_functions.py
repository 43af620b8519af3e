"""Row by row: what users' functions and values say of each row. No state, no waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Row
from penstock.engine.steps.rows import OpaqueStep
from penstock.engine.steps.step import Step, step_for, step_of
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


@step_of(Explode)
class ExplodeStep(Step):
    operator: Explode

    def consume(self, port: int, row: Row) -> None:
        at, numbered = self.operator.at, self.operator.position is not None
        column = self.input_schema(port).fields[at]
        elements, element = row.columns[at], self.writer.fresh("element")
        made: tuple[str, ...] = (element,)
        if isinstance(column.type, AnyType):
            elements = f"x_items({elements})"
        elif column.nullable and not self.operator.outer:
            elements = f"({elements} or ())"
        if numbered:
            made = (self.writer.fresh("position"), element)
        if numbered and self.operator.outer:
            held = self.writer.fresh("elements")
            self.code.line(f"{held} = {elements}")
            elements = f"enumerate({held}) if {held} else ((None, None),)"
        elif numbered:
            elements = f"enumerate({elements})"
        elif self.operator.outer:
            elements = f"{elements} or (None,)"
        with self.code.block(f"for {', '.join(made)} in {elements}:"):
            self.emit(Row((*row.columns[:at], *made, *row.columns[at + 1 :]), None, row.weight))


@step_of(Inspect)
class InspectStep(Step):
    operator: Inspect

    def consume(self, port: int, row: Row) -> None:
        function = self.writer.constant("f", self.operator.function)
        self.code.line(f"{function}({users_view(self.writer, self.node.schema, row)})")
        self.emit(row)


@step_of(Partition)
class PartitionStep(Step):
    """The tag is looked up among the ports' tags, which are in the order of their numbers."""

    operator: Partition

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self._ports = writer.constant("ports", {tag: at for at, tag in enumerate(self.operator.tags)})

    def consume(self, port: int, row: Row) -> None:
        tag, at = self.writer.fresh("tag"), self.writer.fresh("port")
        self.code.line(f"{tag} = {self._tag(port, row)}")
        self.code.line(f"{at} = {self._ports}.get({tag})")
        with self.code.block(f"if {at} is None:"):
            self.code.line(f"x_unknown_port({tag}, {self._ports})")
        self.emit(Row((*row.columns, at), None, row.weight))

    def _tag(self, port: int, row: Row) -> str:
        schema, by = self.input_schema(port), self.operator.by
        if isinstance(by, Expr):
            return self.writer.value(by, schema, row.columns)
        return f"{self.writer.constant('f', by)}({users_view(self.writer, schema, row)})"


@step_of(AssumeOrdered)
class AssumeOrderedStep(Step):
    def consume(self, port: int, row: Row) -> None:
        self.emit(row)


@step_for.register(FilterMap)
def _filter_map(operator: FilterMap, node: Node, writer: StepWriter) -> Step:
    return FilterMapStep(node, writer, operator.function)
