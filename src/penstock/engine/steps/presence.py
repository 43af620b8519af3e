"""Rows whose key is, or is not, present on the other side: semi join, anti join, difference.

Nothing of the other side matters but how many rows it has per key. With L, R
before this tick and R' after it, the change in the answer is
    l where R' says so  +  L where R' newly says so  -  L where R' no longer does.
So the right side is applied first and the left side last; where what follows
could notice a row that goes in this tick, such rows go before the right side.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from penstock.engine.row_codegen import Only, Row, negated
from penstock.engine.slot import Slot
from penstock.engine.steps.joined_rows import JoinedRows
from penstock.engine.steps.right_first import RightFirstStep, remembers_left
from penstock.engine.steps.step import Step, step_for
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.join import How, Join

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node

KeyOf = Callable[[int, Row], AbstractContextManager[str]]


class PresenceStep(RightFirstStep):
    """Slots: left, key -> {row: weight}; right, key -> number of rows.

    present:      whether a key must be present (semi) or absent (anti, difference).
    nulls_absent: a left row whose key is null counts as absent, not as unequal to all.
    """

    sites = 4

    def __init__(
        self,
        node: Node,
        writer: StepWriter,
        key_of: KeyOf,
        lifetimes: tuple[Lifetime, Lifetime],
        *,
        present: bool,
        null_keys: JoinedRows | None,
    ) -> None:
        super().__init__(node, writer)
        self.of_a_tick = tuple(lifetime is Lifetime.TICK for lifetime in lifetimes)
        self.stores_left = remembers_left(node, writer, lifetimes[0])
        self.key_of = key_of
        self.present = present
        self.null_keys = null_keys
        self.test = "> 0" if present else "<= 0"

    @classmethod
    def of_join(cls, node: Node, writer: StepWriter, operator: Join) -> PresenceStep:
        rows = JoinedRows(node, writer, operator)
        anti = operator.how is How.ANTI
        null_keys = rows if anti else None
        return cls(node, writer, rows.key_of, operator.lifetimes, present=not anti, null_keys=null_keys)

    @classmethod
    def of_difference(cls, node: Node, writer: StepWriter, operator: Difference) -> PresenceStep:
        def key_of(port: int, row: Row) -> AbstractContextManager[str]:
            key = writer.fresh("key")
            writer.code.line(f"{key} = {writer.row_key(writer.input_schema(node, port), row.columns)}")
            return nullcontext(key)

        return cls(node, writer, key_of, operator.lifetimes, present=False, null_keys=None)

    def slots(self) -> tuple[Slot, ...]:
        left = Slot(f"{self.node.id}.left", divides="value", transient=self.of_a_tick[0])
        right = Slot(f"{self.node.id}.right", transient=self.of_a_tick[1])
        return (left, right) if self.stores_left else (right,)

    def apply_right(self, before: str) -> None:
        writer, code, node = self.writer, self.code, self.node.id
        slot = writer.slot(node, "right")
        with writer.each_row(self.node, 1) as row, self.key_of(1, row) as key:
            old, new = writer.fresh("old"), writer.fresh("new")
            code.line(f"{old} = {writer.slot_get(node, 'right')}({key}) or 0")
            with code.block(f"if {key} not in {before}:"):
                code.line(f"{before}[{key}] = {old}")
            code.line(f"{new} = {old} + {row.copies}")
            with code.block(f"if {new}:"):
                code.line(f"{slot}[{key}] = {new}")
            with code.block(f"elif {old}:"):
                code.line(f"del {slot}[{key}]")

    def emit_crossings(self, before: str) -> None:
        if not self.stores_left:
            return
        writer, code, node = self.writer, self.code, self.node.id
        key, old, new = writer.fresh("key"), writer.fresh("old"), writer.fresh("new")
        with code.block(f"for {key}, {old} in {before}.items():"):
            code.line(f"{new} = {writer.slot_get(node, 'right')}({key}) or 0")
            with code.block(f"if ({old} > 0) != ({new} > 0):"):
                found = writer.fresh("found")
                code.line(f"{found} = {writer.slot_get(node, 'left')}({key})")
                with code.block(f"if {found} is not None:"):
                    row, n = writer.fresh("row"), writer.fresh("n")
                    with code.block(f"for {row}, {n} in {found}.items():"):
                        columns = writer.unpack(self.node.schema, row)
                        self._emit_crossing(Row(columns, row, n), new)

    def _emit_crossing(self, row: Row, new: str) -> None:
        with self.code.block(f"if {new} {self.test}:"):
            # On an append edge every stored copy is one that was never taken back.
            self.writer.emit_copies(self.node.id, row)
        if not self.writer.is_append(self.node.id):
            with self.code.block("else:"):
                self.emit(Row(row.columns, row.whole, negated(row.weight)))

    def apply_left(self, only: Only) -> None:
        writer, code, node = self.writer, self.code, self.node.id
        with writer.each_row(self.node, 0, only) as row:
            whole = writer.fresh("row")
            code.line(f"{whole} = {row.source}")
            row = Row(row.columns, whole, row.weight)
            with self._left_key(row) as key:
                with code.block(f"if ({writer.slot_get(node, 'right')}({key}) or 0) {self.test}:"):
                    self.emit(row)
                if self.stores_left:
                    writer.add_weight(writer.slot(node, "left"), writer.slot_get(node, "left"), key, row)

    @contextmanager
    def _left_key(self, row: Row) -> Generator[str]:
        """Inside: rows with a key. A row with a null key is answered right away where it counts as absent."""
        if self.null_keys is None:
            with self.key_of(0, row) as key:
                yield key
            return
        nulls = self.writer.null_key_test(self.null_keys.operator.left_keys, self.node, 0, row.columns)
        if nulls is None:
            with self.key_of(0, row) as key:
                yield key
            return
        with self.code.block(f"if {nulls}:"):
            self.emit(row)
        with self.code.block("else:"), self.key_of(0, row) as key:
            yield key


@step_for.register(Difference)
def _difference(operator: Difference, node: Node, writer: StepWriter) -> Step:
    return PresenceStep.of_difference(node, writer, operator)
