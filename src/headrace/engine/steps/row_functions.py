"""Row-by-row steps, on expressions or user functions: filter, map, select, explode, union."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expr.row_classes import from_user, to_user
from headrace.expr.tree import Column, Expr
from headrace.expr.types import AnyType
from headrace.lowering.row_code import Row, item_sources
from headrace.lowering.step import Step, register_step, step_for
from headrace.lowering.user_rows import user_form, write_received
from headrace.operators.assume_ordered import AssumeOrdered
from headrace.operators.explode import Explode
from headrace.operators.filter import Filter
from headrace.operators.filter_map import FilterMap
from headrace.operators.flat_map import FlatMap
from headrace.operators.inspect import Inspect
from headrace.operators.map import Map, VectorisedFunction
from headrace.operators.partition import Partition
from headrace.operators.select import Select
from headrace.operators.union import Union

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


class FilterStep(Step):
    def __init__(self, node: Node, writer: StepWriter, predicate: object) -> None:
        super().__init__(node, writer)
        self.predicate = predicate

    def consume(self, port: int, row: Row) -> None:
        schema = self.writer.input_schema(self.node, port)
        if isinstance(self.predicate, Expr):
            condition = self.writer.predicate(self.predicate, schema, row.columns)
        else:
            function = self.writer.constant("f", self.predicate)
            condition = f"{function}({user_form(self.writer, schema, row)})"
        with self.code.block(f"if {condition}:"):
            self.emit(row)


class OpaqueStep(Step):
    """Step of a user function called on each row, its result checked against the output schema."""

    def __init__(self, node: Node, writer: StepWriter, function: Callable[..., object]) -> None:
        super().__init__(node, writer)
        what = f"a row made by {node.name!r}"
        self._function = writer.constant("f", function)
        self._checked = writer.constant("rows", from_user(node.schema, what=what))

    def call_source(self, port: int, row: Row) -> str:
        """Return the source of the function call on a row."""
        return f"{self._function}({user_form(self.writer, self.writer.input_schema(self.node, port), row)})"


class MapStep(OpaqueStep):
    """Step of map: one output row per input row.

    A result that is exactly a row is passed on; any other is converted or rejected.
    """

    def consume(self, port: int, row: Row) -> None:
        call = self.call_source(port, row)
        self.emit(write_received(self.writer, self.node.schema, call, self._checked, row.weight))


class VectorisedMapStep(Step):
    """Step of map with a vectorised function, which is called once with the tick's rows.

    If it fails, it is called again with a row on which it fails alone, so that the error names that row.
    """

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, function: VectorisedFunction) -> None:
        super().__init__(node, writer)
        seen = to_user(self.input_schema())
        checked = from_user(node.schema, what=f"a row made by {node.name!r}")

        def images(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
            return checked(function.of_rows(list(map(seen, rows))))

        self._images = writer.constant("f", images)
        self._rows = writer.node_variable("pending", node.id)
        self._weights = writer.node_variable("weights", node.id)
        self._appends = writer.is_append(node.inputs[0])

    def begin(self) -> None:
        self.code.line(f"{self._rows} = []")
        if not self._appends:
            self.code.line(f"{self._weights} = []")

    def consume(self, port: int, row: Row) -> None:
        self.code.line(f"{self._rows}.append({row.source})")
        if not self._appends:
            self.code.line(f"{self._weights}.append({row.copies})")

    def finish(self) -> None:
        images, row, image = (self.writer.fresh(name) for name in ("images", "row", "image"))
        weight = None if self._appends else self.writer.fresh("weight")
        with self.code.block(f"if {self._rows}:"):
            with self.code.block("try:"):
                self.code.line(f"{images} = {self._images}({self._rows})")
            with self.code.block("except Exception:"):
                self.code.line(f"{row} = x_row_failing({self._images}, {self._rows})")
                columns = item_sources(row, len(self.input_schema().fields))
                with self.code.attribute_lines(self.node.id, columns):
                    self.code.line(f"{self._images}([{row}])")
                self.code.line("raise")
            each, among = (
                (image, images)
                if weight is None
                else (f"{image}, {weight}", f"zip({images}, {self._weights}, strict=True)")
            )
            with self.code.block(f"for {each} in {among}:"):
                self.emit_unpacked(image, weight)


class FlatMapStep(OpaqueStep):
    def consume(self, port: int, row: Row) -> None:
        out = self.writer.fresh("row")
        with self.code.block(f"for {out} in {self._checked}(list({self.call_source(port, row)})):"):
            columns = self.writer.unpack(self.node.schema, out)
            self.emit(Row(columns, out, row.weight))


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
    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.sites = len(node.inputs)

    def takes_where_made(self, port: int) -> bool:
        # Where the ticks are given, their order means something: that of the ports.
        return port == 0 or not self.writer.graph.given_ticks

    def consume(self, port: int, row: Row) -> None:
        self.emit(row)


@step_for.register(Filter)
def _filter(operator: Filter, node: Node, writer: StepWriter) -> Step:
    return FilterStep(node, writer, operator.predicate)


@step_for.register(Map)
def _map(operator: Map, node: Node, writer: StepWriter) -> Step:
    if isinstance(operator.function, VectorisedFunction):
        return VectorisedMapStep(node, writer, operator.function)
    return MapStep(node, writer, operator.function)


@step_for.register(FlatMap)
def _flat_map(operator: FlatMap, node: Node, writer: StepWriter) -> Step:
    return FlatMapStep(node, writer, operator.function)


@step_for.register(Select)
def _select(operator: Select, node: Node, writer: StepWriter) -> Step:
    return SelectStep(node, writer)


@step_for.register(Union)
def _union(operator: Union, node: Node, writer: StepWriter) -> Step:
    return UnionStep(node, writer)


class FilterMapStep(OpaqueStep):
    def consume(self, port: int, row: Row) -> None:
        made = self.writer.fresh("made")
        self.code.line(f"{made} = {self.call_source(port, row)}")
        with self.code.block(f"if {made} is not None:"):
            self.emit(write_received(self.writer, self.node.schema, made, self._checked, row.weight))


@register_step(Explode)
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


@register_step(Inspect)
class InspectStep(Step):
    operator: Inspect

    def consume(self, port: int, row: Row) -> None:
        function = self.writer.constant("f", self.operator.function)
        self.code.line(f"{function}({user_form(self.writer, self.node.schema, row)})")
        self.emit(row)


@register_step(Partition)
class PartitionStep(Step):
    """Step of partition: rows are routed by tag, looked up among the ports' tags in order."""

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
        return f"{self.writer.constant('f', by)}({user_form(self.writer, schema, row)})"


@register_step(AssumeOrdered)
class AssumeOrderedStep(Step):
    def consume(self, port: int, row: Row) -> None:
        self.emit(row)


@step_for.register(FilterMap)
def _filter_map(operator: FilterMap, node: Node, writer: StepWriter) -> Step:
    return FilterMapStep(node, writer, operator.function)
