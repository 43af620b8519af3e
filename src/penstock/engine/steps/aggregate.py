"""Aggregate: one list per group; per tick a changed group sends its old answer back and a new one out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.row import Row, tuple_source
from penstock.engine.slot import Slot, Thaw, as_it_is
from penstock.engine.steps.accumulator import Accumulator, Target, accumulator_for, null_skips
from penstock.engine.steps.step import Step, step_for
from penstock.expr.check import check
from penstock.expr.tree import Column
from penstock.flow.operators.aggregate import Aggregate

if TYPE_CHECKING:
    from penstock.engine.region_writer import RegionWriter
    from penstock.flow.aggregates import Aggregation
    from penstock.graph.node import Node

ROWS, ANSWER, FIRST_FIELD = 0, 1, 2


def thaw_group(thaws: tuple[Thaw, ...]) -> Thaw:
    """The mutable form of a group's list, field by field."""

    def thaw(group: Any) -> list[Any]:
        return [thaw_field(value) for thaw_field, value in zip(thaws, group, strict=True)]

    return thaw


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
        self.parts: list[tuple[Aggregation, Accumulator, int]] = []
        at = FIRST_FIELD
        for _, aggregation in operator.aggregations:
            accumulator = accumulator_for(aggregation, self.schema, self.appends)
            self.parts.append((aggregation, accumulator, at))
            at += len(accumulator.fields())

    def slots(self) -> tuple[Slot, ...]:
        from_store: list[Thaw] = [as_it_is, as_it_is]
        for _, accumulator, _ in self.parts:
            from_store.extend(field.thaw for field in accumulator.fields())
        return (Slot(f"{self.node.id}.groups", thaw_group(tuple(from_store))),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def _empty_group(self) -> str:
        fields = [f.initial for _, accumulator, _ in self.parts for f in accumulator.fields()]
        return f"[0, None, {', '.join(fields)}]" if fields else "[0, None]"

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        writer.assign_key(key, tuple(e for _, e in self.operator.keys), self.schema, row.columns)
        code.line(f"{group} = {writer.slot_get(self.node.id, 'groups')}({key})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {writer.slot(self.node.id, 'groups')}[{key}] = {self._empty_group()}")
        code.line(f"{self.touched}[{key}] = {group}")
        code.line(f"{group}[{ROWS}] += {row.copies}")
        for aggregation, accumulator, at in self.parts:
            self._update(aggregation, accumulator, Target(writer, group, at), row)

    def _update(self, aggregation: Aggregation, accumulator: Accumulator, to: Target, row: Row) -> None:
        values: list[str] = []
        guards: list[str] = []
        for expr, skips in zip(aggregation.arguments(), null_skips(aggregation), strict=True):
            source = self.writer.value(expr, self.schema, row.columns)
            if not isinstance(expr, Column):
                variable = self.writer.fresh("value")
                self.code.line(f"{variable} = {source}")
                source = variable
            if skips and check(expr, self.schema).nullable:
                guards.append(f"{source} is not None")
            values.append(source)
        if guards:
            with self.code.block(f"if {' and '.join(guards)}:"):
                accumulator.update(to, tuple(values), row.weight)
        else:
            accumulator.update(to, tuple(values), row.weight)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        old, new = writer.fresh("old"), writer.fresh("new")
        with code.block(f"for {key}, {group} in {self.touched}.items():"):
            code.line(f"{old} = {group}[{ANSWER}]")
            for _, accumulator, at in self.parts:
                accumulator.settle(Target(writer, group, at))
            if self.appends:
                self._answer(key, group, old, new)
                return
            with code.block(f"if {group}[{ROWS}] > 0:"):
                self._answer(key, group, old, new)
            with code.block("else:"):
                with code.block(f"if {old} is not None:"):
                    code.line(f"{group}[{ANSWER}] = None")
                    self._emit(old, "-1")
                with code.block(f"if not {group}[{ROWS}] and {group} == {self._empty_group()}:"):
                    code.line(f"del {writer.slot(self.node.id, 'groups')}[{key}]")

    def _answer(self, key: str, group: str, old: str, new: str) -> None:
        writer, code = self.writer, self.code
        keys = len(self.operator.keys)
        columns = [key] if keys == 1 else [f"{key}[{i}]" for i in range(keys)]
        columns += [acc.result(Target(writer, group, at)) for _, acc, at in self.parts]
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
