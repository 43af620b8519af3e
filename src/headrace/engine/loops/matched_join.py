"""Joins in loops that count each left row's matches: left, and semi or anti with a residual.

The right side does not go round, so a left row has the same partners in every round. How
many they are is counted anew where the left row or a right row of its key changes.

Slots: right, as any side that does not; left, as any side that goes round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.loops.outside_side import OutsideSide
from headrace.engine.loops.round_side import round_side
from headrace.engine.steps.joins import JoinConditionWriter
from headrace.lowering.row_code import Row, negated_weight, weight_product
from headrace.lowering.step import LoopStep
from headrace.operators.join import How, Join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.node import Node
    from headrace.lowering.slot import Slot
    from headrace.lowering.step_writer import StepWriter


class NestedMatchedJoinStep(LoopStep):
    heavy = True
    sites = 6

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool], operator: Join) -> None:
        super().__init__(node, writer, varies)
        self._how = operator.how
        self._rows = JoinConditionWriter(node, writer, operator)
        self._left = round_side(node, 0, writer, "left", operator.left_keys)
        self._right = OutsideSide(node, 1, writer, "right", operator.right_keys)

    def slots(self) -> tuple[Slot, ...]:
        return (*self._left.slots(), *self._right.slots())

    # -- the right side, before the first round ----------------------------------------------

    def write_outside_rows(self, port: int) -> None:
        writer, code = self.writer, self.code
        changes, key, own = writer.fresh("changes"), writer.fresh("key"), writer.fresh("own")
        code.line(f"{changes} = {{}}")
        with writer.each_row(self.node, 1) as row, self._rows.key_of(1, row) as at:
            entry = self._right.entry(row)
            change = self._right.change(at, entry, row) or "1"
            code.line(f"{own} = {changes}.setdefault({at}, {{}})")
            code.line(f"{own}[{entry}] = {own}.get({entry}, 0) + {change}")
        with (
            code.block(f"for {key}, {own} in {changes}.items():"),
            self._left.each_row(key) as (left, known),
        ):
            self._change_partners(left, known, key, own)

    def _change_partners(self, left: Row, known: str, key: str, changes: str) -> None:
        """Write code for an old left row whose matches change, perhaps from or to none."""
        writer, code = self.writer, self.code
        entry, n, change = writer.fresh("entry"), writer.fresh("n"), writer.fresh("change")
        code.line(f"{change} = 0")
        with code.block(f"for {entry}, {n} in {changes}.items():"), code.block(f"if {n}:"):
            pair = left.columns + self._right.row_of(key, entry, n).columns
            with self._rows.where_residual(pair):
                code.line(f"{change} += {n}")
                if self._how is How.LEFT:
                    with self._left.each_round(left, known) as row:
                        self.emit(Row(self._rows.output(pair), None, weight_product(row.weight, n)))
        with code.block(f"if {change}:"):
            matches = self._count_matches(left, key)
            crossing = writer.fresh("crossing")
            code.line(f"{crossing} = ({matches} > 0) - ({matches} > {change})")
            with code.block(f"if {crossing}:"), self._left.each_round(left, known) as row:
                sign = crossing if self._how is How.SEMI else negated_weight(crossing)
                self.emit(self._answer(Row(row.columns, row.whole, weight_product(row.weight, sign))))

    def _count_matches(self, row: Row, key: str) -> str:
        matches = self.writer.fresh("matches")
        self.code.line(f"{matches} = 0")
        with self._right.each(key) as right, self._rows.where_residual(row.columns + right.columns):
            self.code.line(f"{matches} += {right.copies}")
        return matches

    # -- the left side ------------------------------------------------------------------------

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        nulls = self._rows.null_left_key(row)
        if nulls is not None and self._how is not How.SEMI:
            with code.block(f"if {nulls}:"):
                self.emit(self._answer(row))
        with self._rows.key_of(0, row) as key:
            matches = writer.fresh("matches")
            code.line(f"{matches} = 0")
            with self._right.each(key) as right:
                pair = row.columns + right.columns
                with self._rows.where_residual(pair):
                    code.line(f"{matches} += {right.copies}")
                    if self._how is How.LEFT:
                        weight = weight_product(row.weight, right.weight)
                        self.emit(Row(self._rows.output(pair), None, weight))
            test = "> 0" if self._how is How.SEMI else "<= 0"
            with code.block(f"if {matches} {test}:"):
                self.emit(self._answer(row))
            self._left.add(key, row)

    def _answer(self, row: Row) -> Row:
        """Return the output for an unmatched row: nulls replace the columns of a match."""
        return self._rows.unmatched(row) if self._how is How.LEFT else row
