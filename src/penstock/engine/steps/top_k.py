"""Top k: each group's rows in order; per tick the first k before and after are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.row_codegen import Row
from penstock.engine.slot import Slot
from penstock.engine.steps.step import Step, step_for
from penstock.expr.check import check
from penstock.expr.order import order_key
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.top_k import TopK

if TYPE_CHECKING:
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


def thaw_group(group: Any) -> list[Any]:
    """The mutable form of a group's list."""
    rows, counts, moved, top = group
    return [list(rows), dict(counts), dict(moved), dict(top)]


class TopKStep(Step):
    """Slot: group -> [rows in order, {row: copies}, rows of this tick, {row: copies} as last emitted].

    Where rows are never taken back, only those that can still be among the first are kept.
    """

    keeps_state = True
    consolidates = True
    sites = 1

    def __init__(self, node: Node, writer: StepWriter, operator: TopK) -> None:
        super().__init__(node, writer)
        self.operator = operator
        self.touched = writer.named("touched", node.id)
        self.appends = writer.is_append(node.inputs[0])

    def slots(self) -> tuple[Slot, ...]:
        of_a_tick = self.operator.lifetime is Lifetime.TICK
        return (Slot(f"{self.node.id}.groups", thaw_group, "fields", transient=of_a_tick),)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def _order(self) -> str:
        """Constant: the function from a row to what it is sorted by, the whole row last."""
        schema = self.node.schema
        row = self.writer.fresh("row")
        columns = tuple(f"{row}[{i}]" for i in range(len(schema.fields)))
        parts: list[str] = []
        for ordering in self.operator.by:
            typed = check(ordering.expr, schema)
            source = self.writer.value(ordering.expr, schema, columns)
            parts.append(self._comparable(source, typed.type, typed.nullable, ordering.descending))
        for column, field in zip(columns, schema.fields, strict=True):
            parts.append(self._comparable(column, field.type, field.nullable, False))
        function = self.writer.named("order", self.node.id)
        self.writer.function(f"def {function}({row}):", f"return ({', '.join(parts)},)")
        return function

    def _comparable(self, source: str, dtype: Any, nullable: bool, descending: bool) -> str:
        key = order_key(dtype, nullable, descending)
        return source if key is None else f"{self.writer.constant('order', key)}({source})"

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        slot, get = writer.slot(self.node.id, "groups"), writer.slot_get(self.node.id, "groups")
        key, group, whole = writer.fresh("key"), writer.fresh("group"), writer.fresh("row")
        writer.assign_key(key, self.operator.per, self.node.schema, row.columns)
        code.line(f"{whole} = {writer.row_key(self.node.schema, row.columns)}")
        code.line(f"{group} = {get}({key})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {slot}[{key}] = [[], {{}}, {{}}, {{}}]")
        code.line(f"{self.touched}[{key}] = {group}")
        code.line(f"x_order_value({group}, 0, {whole}, {row.copies})")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        key, group, top = writer.fresh("key"), writer.fresh("group"), writer.fresh("top")
        row, n = writer.fresh("row"), writer.fresh("n")
        with code.block(f"for {key}, {group} in {self.touched}.items():"):
            code.line(f"x_settle({group}, 0, {self._order()})")
            if self.appends:
                code.line(f"x_drop_beyond({group}[0], {group}[1], {self.operator.count})")
            code.line(f"{top} = x_first_copies({group}[0], {group}[1], {self.operator.count})")
            changes = writer.fresh("changes")
            code.line(f"{changes} = x_top_changes({group}[3], {top})")
            code.line(f"{group}[3] = {top}")
            with code.block(f"if not {group}[1]:"):
                code.line(f"del {writer.slot(self.node.id, 'groups')}[{key}]")
            with code.block(f"for {row}, {n} in {changes}:"):
                columns = writer.unpack(self.node.schema, row)
                writer.emit_copies(self.node.id, Row(columns, row, n))


@step_for.register(TopK)
def _top_k(operator: TopK, node: Node, writer: StepWriter) -> Step:
    return TopKStep(node, writer, operator)
