"""Steps for lattice folds, which merge once per tick or, in a cycle, emit whenever a value grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expr.compile_python import key_of
from headrace.expr.row_classes import from_user
from headrace.expr.types import Schema
from headrace.lowering.row_code import MappingCode, Row, key_columns
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.lowering.user_rows import merged_item, write_received
from headrace.operators.lattice_fold import LatticeFold, LatticeGrowth

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


class LatticeStep(Step):
    """Base of both steps of lattice folds. Slot: key -> (the merge so far,)."""

    operator: LatticeFold | LatticeGrowth
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.keys = tuple(expr for _, expr in self.operator.keys)
        self.bottom = writer.constant("bottom", self.operator.lattice.bottom)
        self.merged = Schema(node.schema.fields[-1:], scalar=True)
        what = f"the value that {node.name!r} merged"
        self.checked = writer.constant("rows", from_user(self.merged, what=what))

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.merged", tuple),)

    def assign_key(self, row: Row) -> str:
        key = self.writer.fresh("key")
        self.writer.assign_key(key, self.keys, self.input_schema(), row.columns)
        return key

    def value_of(self, call: str) -> str:
        """Return the source of a lattice call's result, checked against the column's type."""
        value = write_received(self.writer, self.merged, call, self.checked).columns[0]
        (field,) = self.merged.fields
        source = key_of(field.type, field.nullable, value)
        if source != value:
            value = self.writer.fresh("value")
            self.code.line(f"{value} = {source}")
        return value

    def emit_value(self, key: str, value: str, weight: str | None) -> None:
        self.emit(Row((*key_columns(key, len(self.keys)), value), None, weight))


@register_step(LatticeFold)
class LatticeFoldStep(LatticeStep):
    """Fold that gathers a tick's items per key in `touched` and merges them together."""

    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.absorb_all = writer.constant("absorb_all", self.operator.lattice.absorb_all)
        self.touched = writer.node_variable("touched", node.id)
        self.sites = 1 if writer.is_append(node.id) else 2

    def begin(self) -> None:
        shown = self.operator.runs_first_tick and not self.keys
        missing = f"{self.slot_getter('merged')}(()) is None"
        self.code.line(f"{self.touched} = {f'{{(): []}} if {missing} else {{}}' if shown else '{}'}")

    def consume(self, port: int, row: Row) -> None:
        code, items = self.code, self.writer.fresh("items")
        key = self.assign_key(row)
        MappingCode(self.writer, self.touched).get_or_add(items, key, "[]")
        code.line(f"{items}.append({merged_item(self.writer, self.node, self.operator.item, row)})")

    def finish(self) -> None:
        code, writer = self.code, self.writer
        key, items, old, new = (writer.fresh(n) for n in ("key", "items", "old", "new"))
        slot = self.slot("merged")
        with code.block(f"for {key}, {items} in {self.touched}.items():"):
            code.line(f"{old} = {self.slot_getter('merged')}({key})")
            before = f"{self.bottom} if {old} is None else {old}[0]"
            value = self.value_of(f"{self.absorb_all}({before}, {items})")
            code.line(f"{new} = ({value},)")
            with code.block(f"if {new} != {old}:"):
                code.line(f"{slot}[{key}] = {new}")
                if not writer.is_append(self.node.id):
                    with code.block(f"if {old} is not None:"):
                        self.emit_value(key, f"{old}[0]", "-1")
                self.emit_value(key, f"{new}[0]", "1")


@register_step(LatticeGrowth)
class LatticeGrowthStep(LatticeStep):
    """Fold that emits the value whenever an item makes it grow."""

    def consume(self, port: int, row: Row) -> None:
        code, writer = self.code, self.writer
        absorb = writer.constant("absorb", self.operator.lattice.absorb)
        old = writer.fresh("old")
        key = self.assign_key(row)
        code.line(f"{old} = {self.slot_getter('merged')}({key})")
        item = merged_item(writer, self.node, self.operator.item, row)
        new = self.value_of(f"{absorb}({self.bottom} if {old} is None else {old}[0], {item})")
        with code.block(f"if {old} is None or ({new},) != {old}:"):
            code.line(f"{self.slot('merged')}[{key}] = ({new},)")
            self.emit_value(key, new, None)
