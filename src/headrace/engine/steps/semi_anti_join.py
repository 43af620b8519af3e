"""Steps that test a key's presence on the other side: semi join, anti join, difference.

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

from headrace.engine.steps.joins import JoinConditionWriter, RightFirstStep
from headrace.lowering.row_code import ChangeSelection, Row, negated_weight
from headrace.lowering.slot import Slot
from headrace.lowering.step import step_for
from headrace.operators.difference import Difference
from headrace.operators.join import How, Join

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.lifetime import Lifetime

KeyOf = Callable[[int, Row], AbstractContextManager[str]]


class PresenceStep(RightFirstStep):
    """Step of these operators. Slots: left, key -> {row: weight}; right, key -> number of rows.

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
        null_keys: JoinConditionWriter | None,
    ) -> None:
        super().__init__(node, writer, lifetimes)
        self.key_of = key_of
        self.present = present
        self.null_keys = null_keys
        self.test = "> 0" if present else "<= 0"

    @classmethod
    def of_join(cls, node: Node, writer: StepWriter, operator: Join) -> PresenceStep:
        rows = JoinConditionWriter(node, writer, operator)
        anti = operator.how is How.ANTI
        null_keys = rows if anti else None
        return cls(node, writer, rows.key_of, operator.lifetimes, present=not anti, null_keys=null_keys)

    @classmethod
    def of_difference(cls, operator: Difference, node: Node, writer: StepWriter) -> PresenceStep:
        def key_of(port: int, row: Row) -> AbstractContextManager[str]:
            key = writer.fresh("key")
            writer.code.line(f"{key} = {writer.row_key(writer.input_schema(node, port), row.columns)}")
            return nullcontext(key)

        return cls(node, writer, key_of, operator.lifetimes, present=False, null_keys=None)

    def slots(self) -> tuple[Slot, ...]:
        left = Slot(f"{self.node.id}.left", divides="value", transient=self.of_a_tick[0])
        right = Slot(f"{self.node.id}.right", transient=self.of_a_tick[1])
        return (left, right) if self.stores_left else (right,)

    def write_right_changes(self, before: str) -> None:
        with self.writer.each_row(self.node, 1) as row, self.key_of(1, row) as key:
            self.state("right").add_count(key, row.copies, before)

    def emit_crossings(self, before: str) -> None:
        writer, code = self.writer, self.code
        key, old, new = writer.fresh("key"), writer.fresh("old"), writer.fresh("new")
        with code.block(f"for {key}, {old} in {before}.items():"):
            code.line(f"{new} = {self.slot_getter('right')}({key}) or 0")
            with code.block(f"if ({old} > 0) != ({new} > 0):"):
                found = writer.fresh("found")
                code.line(f"{found} = {self.slot_getter('left')}({key})")
                with code.block(f"if {found} is not None:"):
                    row, n = writer.fresh("row"), writer.fresh("n")
                    with code.block(f"for {row}, {n} in {found}.items():"):
                        columns = writer.unpack(self.node.schema, row)
                        self._emit_crossing(Row(columns, row, n), new)

    def _emit_crossing(self, row: Row, new: str) -> None:
        with self.code.block(f"if {new} {self.test}:"):
            # On an append edge every stored copy is one that was never retracted.
            self.writer.emit_copies(self.node.id, row)
        if not self.writer.is_append(self.node.id):
            with self.code.block("else:"):
                self.emit(Row(row.columns, row.whole, negated_weight(row.weight)))

    def write_left_changes(self, only: ChangeSelection) -> None:
        writer, code = self.writer, self.code
        with writer.each_row(self.node, 0, only) as row:
            row = self.writer.as_whole(row)
            with self._left_key(row) as key:
                with code.block(f"if ({self.slot_getter('right')}({key}) or 0) {self.test}:"):
                    self.emit(row)
                if self.stores_left:
                    self.state("left").add_weight(key, row)

    @contextmanager
    def _left_key(self, row: Row) -> Generator[str]:
        """Open a block for rows with a key; emit rows with null keys at once if those count as absent."""
        nulls = None if self.null_keys is None else self.null_keys.null_left_key(row)
        if nulls is None:
            with self.key_of(0, row) as key:
                yield key
            return
        with self.code.block(f"if {nulls}:"):
            self.emit(row)
        with self.code.block("else:"), self.key_of(0, row) as key:
            yield key


step_for.register(Difference, PresenceStep.of_difference)
