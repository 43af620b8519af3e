"""Steps that depend on ticks (rows repeated, compared with the last tick, deferred) or on ended input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lowering.row_code import Row
from headrace.lowering.slot import Slot, thaw_dict, thaw_list
from headrace.lowering.step import Step, register_step
from headrace.operators.deferral import DeferSignal
from headrace.operators.sink import Sink
from headrace.operators.source import Initialize, Null
from headrace.operators.tick_snapshots import EveryTick, MultisetDelta

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_step(EveryTick)
class EveryTickStep(Step):
    """Step of every_tick. Slot, under the key (): the rows so far in order; for a table, {row: copies}."""

    takes_rows = False
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.appends = writer.is_append(node.inputs[0])

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows", thaw_list if self.appends else thaw_dict),)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        own, row = writer.fresh("own"), writer.fresh("row")
        self.state("rows").get_or_add(own, "()", "[]" if self.appends else "{}")
        if not self.appends:
            self._show_table(own)
            return
        fresh, shown = writer.buffer(self.node.inputs[0]), writer.fresh("shown")
        code.line(f"{own}.extend({fresh})")
        in_loop = writer.is_in_loop(self.node.id)
        # Later rounds show what is new in them: the first has shown all the rest.
        code.line(
            f"{shown} = {fresh} if {writer.round_variable(self.node.id)} else {own}"
            if in_loop
            else f"{shown} = {own}"
        )
        with code.block(f"for {row} in {shown}:"):
            self.emit_unpacked(row)

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


@register_step(MultisetDelta)
class MultisetDeltaStep(Step):
    """Step of multiset_delta. Slot, under the key (): {row: copies} of the last tick.

    `before` has those not matched yet in this tick, `now` counts this tick's rows.
    """

    keeps_state = True
    merges = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.before = writer.node_variable("before", node.id)
        self.now = writer.node_variable("now", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows", thaw_dict),)

    def begin(self) -> None:
        with self.writer.in_first_round(self.node.id):
            self.code.line(f"{self.before} = {self.slot_getter('rows')}(()) or {{}}")
            self.code.line(f"{self.now} = {self.slot('rows')}[()] = {{}}")

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


@register_step(DeferSignal)
class DeferSignalStep(Step):
    """Step of defer_signal. Slot, under the key (): the changes since the last signal, in order."""

    takes_rows = False
    keeps_state = True

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.held", thaw_list),)

    def finish(self) -> None:
        writer, code, node = self.writer, self.code, self.node.id
        rows, signals = (writer.buffer(source) for source in self.node.inputs)
        held = writer.fresh("held")
        self.state("held").get_or_add(held, "()", "[]")
        if writer.is_as_given(self.node.inputs[0]):
            with writer.each_row(self.node, 0) as change:
                code.line(f"{held}.append({change.flat(append=False)})")
        else:
            code.line(f"{held}.extend({rows})")
        with code.block(f"if {signals} and {held}:"):
            code.line(f"del {self.slot('held')}[()]")
            row = writer.fresh("row")
            if writer.is_append(node):
                with code.block(f"for {row} in {held}:"):
                    self.emit_unpacked(row)
                return
            columns = tuple(writer.fresh(field.name) for field in self.node.schema.fields)
            weight = writer.fresh("weight")
            with code.block(f"for {', '.join((*columns, weight))} in x_consolidate({held}):"):
                self.emit(Row(columns, None, weight))


@register_step(Null)
class NullStep(Step):
    """Step that emits nothing."""

    def consume(self, port: int, row: Row) -> None:
        pass


@register_step(Initialize)
class InitializeStep(Step):
    """Step of initialize. Slot, under the key (): present after the first tick."""

    keeps_state = True

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.begun"),)

    def finish(self) -> None:
        with self.code.block(f"if {self.slot_getter('begun')}(()) is None:"):
            self.code.line(f"{self.slot('begun')}[()] = True")
            self.emit(Row(("()",)))


@register_step(Sink)
class SinkStep(Step):
    """Step that collects a tick's changes for the region to return."""

    keeps_state = True
    has_result = True

    def begin(self) -> None:
        self.code.line(f"{self.writer.result_variable(self.node.id)} = []")

    def consume(self, port: int, row: Row) -> None:
        append = self.writer.is_append(self.node.id)
        self.code.line(f"{self.writer.result_variable(self.node.id)}.append({row.flat(append=append)})")

    def finish(self) -> None:
        if not self.writer.is_append(self.node.id) and not self.writer.is_consolidated(self.node.inputs[0]):
            name = self.writer.result_variable(self.node.id)
            self.code.line(f"{name} = x_consolidate({name})")
