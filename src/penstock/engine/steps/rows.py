"""Row by row: filter, map, flat_map, select, union. No state, no waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row import Row
from penstock.engine.steps.step import Step, step_for
from penstock.expr.rows import from_user, to_user
from penstock.expr.tree import Column, Expr
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.flat_map import FlatMap
from penstock.flow.operators.map import Map
from penstock.flow.operators.select import Select
from penstock.flow.operators.union import Union

if TYPE_CHECKING:
    from penstock.engine.region_writer import RegionWriter
    from penstock.graph.node import Node


class FilterStep(Step):
    def __init__(self, node: Node, writer: RegionWriter, predicate: object) -> None:
        super().__init__(node, writer)
        self.predicate = predicate

    def consume(self, port: int, row: Row) -> None:
        schema = self.writer.input_schema(self.node, port)
        if isinstance(self.predicate, Expr):
            condition = self.writer.predicate(self.predicate, schema, row.columns)
        else:
            function = self.writer.constant("f", self.predicate)
            user = self.writer.constant("user", to_user(schema))
            condition = f"{function}({user}({row.source}))"
        with self.code.block(f"if {condition}:"):
            self.emit(row)


class MapStep(Step):
    def consume(self, port: int, row: Row) -> None:
        assert isinstance(self.node.operator, Map)
        function = self.writer.constant("f", self.node.operator.function)
        user = self.writer.constant("user", to_user(self.writer.input_schema(self.node, port)))
        result = f"{function}({user}({row.source}))"
        self._emit_result(f"[{result}]", row)

    def _emit_result(self, results: str, row: Row) -> None:
        """Loop over `results`, values of the user's making, as rows of the output."""
        what = f"a row made by {self.node.name!r}"
        checked = self.writer.constant("rows", from_user(self.node.schema, what=what))
        out = self.writer.fresh("row")
        with self.code.block(f"for {out} in {checked}({results}):"):
            columns = self.writer.unpack(self.node.schema, out)
            self.emit(Row(columns, out, row.weight))


class FlatMapStep(MapStep):
    def consume(self, port: int, row: Row) -> None:
        assert isinstance(self.node.operator, FlatMap)
        function = self.writer.constant("f", self.node.operator.function)
        user = self.writer.constant("user", to_user(self.writer.input_schema(self.node, port)))
        self._emit_result(f"list({function}({user}({row.source})))", row)


class SelectStep(Step):
    def consume(self, port: int, row: Row) -> None:
        assert isinstance(self.node.operator, Select)
        schema = self.writer.input_schema(self.node, port)
        columns: list[str] = []
        for name, expr in self.node.operator.columns:
            source = self.writer.value(expr, schema, row.columns)
            if not isinstance(expr, Column):
                variable = self.writer.fresh(name)
                self.code.line(f"{variable} = {source}")
                source = variable
            columns.append(source)
        self.emit(Row(tuple(columns), None, row.weight))


class UnionStep(Step):
    def __init__(self, node: Node, writer: RegionWriter) -> None:
        super().__init__(node, writer)
        self.sites = len(node.inputs)

    def consume(self, port: int, row: Row) -> None:
        self.emit(row)


@step_for.register(Filter)
def _filter(operator: Filter, node: Node, writer: RegionWriter) -> Step:
    return FilterStep(node, writer, operator.predicate)


@step_for.register(Map)
def _map(operator: Map, node: Node, writer: RegionWriter) -> Step:
    return MapStep(node, writer)


@step_for.register(FlatMap)
def _flat_map(operator: FlatMap, node: Node, writer: RegionWriter) -> Step:
    return FlatMapStep(node, writer)


@step_for.register(Select)
def _select(operator: Select, node: Node, writer: RegionWriter) -> Step:
    return SelectStep(node, writer)


@step_for.register(Union)
def _union(operator: Union, node: Node, writer: RegionWriter) -> Step:
    return UnionStep(node, writer)
