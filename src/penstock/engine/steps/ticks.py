"""Operators about ticks: shown again, compared with the last, held back; and the ends of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Row
from penstock.engine.slot import Slot, as_dict, as_list
from penstock.engine.steps.step import Step, step_for
from penstock.flow.operators.defer_signal import DeferSignal
from penstock.flow.operators.every_tick import EveryTick
from penstock.flow.operators.initialize import Initialize
from penstock.flow.operators.multiset_delta import MultisetDelta
from penstock.flow.operators.null import Null

if TYPE_CHECKING:
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


class EveryTickStep(Step):
    """Slot, under the key (): the rows so far in their order; of a table {row: copies}."""

    takes_rows = False
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.appends = writer.is_append(node.inputs[0])

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows", as_list if self.appends else as_dict),)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        own, row = writer.fresh("own"), writer.fresh("row")
        code.line(f"{own} = {writer.slot_get(self.node.id, 'rows')}(())")
        with code.block(f"if {own} is None:"):
            code.line(f"{own} = {writer.slot(self.node.id, 'rows')}[()] = {'[]' if self.appends else '{}'}")
        if not self.appends:
            self._show_table(own)
            return
        fresh, shown = writer.buffer(self.node.inputs[0]), writer.fresh("shown")
        code.line(f"{own}.extend({fresh})")
        in_loop = writer.is_in_loop(self.node.id)
        # Later rounds show what is new in them: the first has shown all the rest.
        code.line(
            f"{shown} = {fresh} if {writer.round(self.node.id)} else {own}" if in_loop else f"{shown} = {own}"
        )
        with code.block(f"for {row} in {shown}:"):
            self.emit(Row(writer.unpack(self.node.schema, row), row))

    def _show_table(self, own: str) -> None:
        writer, code = self.writer, self.code
        with writer.each_row(self.node, 0) as change:
            total, key = writer.fresh("n"), writer.fresh("row")
            code.line(f"{key} = {writer.row_key(self.node.schema, change.columns)}")
            code.line(f"{total} = {own}.get({key}, 0) + {change.copies}")
            with code.block(f"if {total}:"):
                code.line(f"{own}[{key}] = {total}")
            with code.block("else:"):
                code.line(f"del {own}[{key}]")
        row, copies = writer.fresh("row"), writer.fresh("n")
        with code.block(f"for {row}, {copies} in {own}.items():"):
            writer.emit_copies(self.node.id, Row(writer.unpack(self.node.schema, row), row, copies))


class MultisetDeltaStep(Step):
    """Slot, under the key (): {row: copies} of the last tick.

    `before` is what of it was not met yet in this tick, `now` counts this tick's rows.
    """

    keeps_state = True
    merges = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.before = writer.named("before", node.id)
        self.now = writer.named("now", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows", as_dict),)

    def begin(self) -> None:
        node = self.node.id
        with self.writer.in_first_round(node):
            self.code.line(f"{self.before} = {self.writer.slot_get(node, 'rows')}(()) or {{}}")
            self.code.line(f"{self.now} = {self.writer.slot(node, 'rows')}[()] = {{}}")

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        key, copies = writer.fresh("row"), writer.fresh("n")
        code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        code.line(f"{self.now}[{key}] = {self.now}.get({key}, 0) + 1")
        code.line(f"{copies} = {self.before}.get({key})")
        with code.block(f"if {copies}:"):
            code.line(f"{self.before}[{key}] = {copies} - 1")
        with code.block("else:"):
            self.emit(row)


class DeferSignalStep(Step):
    """Slot, under the key (): the changes since the last signal, in their order."""

    takes_rows = False
    keeps_state = True

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.held", as_list),)

    def finish(self) -> None:
        writer, code, node = self.writer, self.code, self.node.id
        rows, signals = (writer.buffer(source) for source in self.node.inputs)
        held = writer.fresh("held")
        code.line(f"{held} = {writer.slot_get(node, 'held')}(())")
        with code.block(f"if {held} is None:"):
            code.line(f"{held} = {writer.slot(node, 'held')}[()] = []")
        if writer.is_as_given(self.node.inputs[0]):
            with writer.each_row(self.node, 0) as change:
                code.line(f"{held}.append({change.flat(append=False)})")
        else:
            code.line(f"{held}.extend({rows})")
        with code.block(f"if {signals} and {held}:"):
            code.line(f"del {writer.slot(node, 'held')}[()]")
            row = writer.fresh("row")
            if writer.is_append(node):
                with code.block(f"for {row} in {held}:"):
                    self.emit(Row(writer.unpack(self.node.schema, row), row))
                return
            columns = tuple(writer.fresh(field.name) for field in self.node.schema.fields)
            weight = writer.fresh("weight")
            with code.block(f"for {', '.join((*columns, weight))} in x_consolidate({held}):"):
                self.emit(Row(columns, None, weight))


class NullStep(Step):
    """Nothing comes of it."""

    def consume(self, port: int, row: Row) -> None:
        pass


class InitializeStep(Step):
    """Slot, under the key (): there once the first tick has been."""

    keeps_state = True

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.begun"),)

    def finish(self) -> None:
        with self.code.block(f"if {self.writer.slot_get(self.node.id, 'begun')}(()) is None:"):
            self.code.line(f"{self.writer.slot(self.node.id, 'begun')}[()] = True")
            self.emit(Row(("()",)))


@step_for.register(EveryTick)
def _every_tick(operator: EveryTick, node: Node, writer: StepWriter) -> Step:
    return EveryTickStep(node, writer)


@step_for.register(MultisetDelta)
def _multiset_delta(operator: MultisetDelta, node: Node, writer: StepWriter) -> Step:
    return MultisetDeltaStep(node, writer)


@step_for.register(DeferSignal)
def _defer_signal(operator: DeferSignal, node: Node, writer: StepWriter) -> Step:
    return DeferSignalStep(node, writer)


@step_for.register(Null)
def _null(operator: Null, node: Node, writer: StepWriter) -> Step:
    return NullStep(node, writer)


@step_for.register(Initialize)
def _initialize(operator: Initialize, node: Node, writer: StepWriter) -> Step:
    return InitializeStep(node, writer)
