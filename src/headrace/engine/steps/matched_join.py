"""Steps of joins that count each left row's matches: left, and semi or anti with a residual.

Slots: left, key -> {row: [copies, matches]}; right, key -> {row: weight}.
`matches` is the weight of the right rows for which the residual is true.
The right side is applied first, so that a left row that comes in this tick
meets a complete right side and is counted once. Where a pair could be noticed
that no tick ends with, left rows that go do so before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.engine.steps.joins import JoinConditionWriter, RightFirstStep
from headrace.lowering.row_code import ChangeSelection, Row, negated_weight, weight_product
from headrace.lowering.slot import Slot
from headrace.operators.join import How

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.join import Join


def thaw_left(rows: dict[Any, Any]) -> dict[Any, Any]:
    """Thaw function for {row: [copies, matches]}."""
    return {row: list(entry) for row, entry in rows.items()}


class MatchedJoinStep(RightFirstStep):
    sites = 6

    def __init__(self, node: Node, writer: StepWriter, operator: Join) -> None:
        super().__init__(node, writer, operator.lifetimes)
        self.how = operator.how
        self.rows = JoinConditionWriter(node, writer, operator)

    def slots(self) -> tuple[Slot, ...]:
        left = Slot(f"{self.node.id}.left", thaw_left, "value", transient=self.of_a_tick[0])
        right = Slot(f"{self.node.id}.right", divides="value", transient=self.of_a_tick[1])
        return (left, right) if self.stores_left else (right,)

    # -- the right side ---------------------------------------------------------------------

    def write_right_changes(self, before: str) -> None:
        with self.writer.each_row(self.node, 1) as row, self.rows.key_of(1, row) as key:
            row = self.writer.as_whole(row)
            if self.stores_left:
                self._match_left(row, key, before)
            self.state("right").add_weight(key, row)

    def _match_left(self, row: Row, key: str, before: str) -> None:
        writer, code = self.writer, self.code
        found = writer.fresh("found")
        code.line(f"{found} = {self.slot_getter('left')}({key})")
        with code.block(f"if {found} is not None:"):
            left, entry = writer.fresh("row"), writer.fresh("entry")
            with code.block(f"for {left}, {entry} in {found}.items():"):
                pair = writer.unpack(self.rows.schemas[0], left) + row.columns
                with self.rows.where_residual(pair):
                    with code.block(f"if ({key}, {left}) not in {before}:"):
                        code.line(f"{before}[{key}, {left}] = ({entry}, {entry}[1])")
                    code.line(f"{entry}[1] += {row.copies}")
                    if self.how is How.LEFT:
                        self._emit_pair(pair, weight_product(f"{entry}[0]", row.weight))

    def emit_crossings(self, before: str) -> None:
        writer, code = self.writer, self.code
        left, entry, old = writer.fresh("row"), writer.fresh("entry"), writer.fresh("old")
        with code.block(f"for (_, {left}), ({entry}, {old}) in {before}.items():"):
            columns = writer.unpack(self.rows.schemas[0], left)
            row = Row(columns, left, f"{entry}[0]")
            gained, lost = f"if {entry}[1] > 0 >= {old}:", f"{entry}[1] <= 0 < {old}:"
            with code.block(gained):
                self._emit_unmatched_or_matched(row, matched=True)
            with code.block("elif " + lost):
                self._emit_unmatched_or_matched(row, matched=False)

    def _emit_unmatched_or_matched(self, row: Row, *, matched: bool) -> None:
        """Emit the change of a stored left row that has gained its first match or lost its last."""
        arrives = matched if self.how is How.SEMI else not matched
        if arrives:
            self.writer.emit_copies(self.node.id, self._answer(row))
        elif not self.writer.is_append(self.node.id):
            self.emit(self._answer(Row(row.columns, row.whole, negated_weight(row.weight))))

    # -- the left side ------------------------------------------------------------------------

    def write_left_changes(self, only: ChangeSelection) -> None:
        writer, code = self.writer, self.code
        with writer.each_row(self.node, 0, only) as row:
            row = writer.as_whole(row)
            nulls = self.rows.null_left_key(row)
            if nulls is not None and self.how is not How.SEMI:
                with code.block(f"if {nulls}:"):
                    self.emit(self._answer(row))
            with self.rows.key_of(0, row) as key:
                matches = self._count_matches(row, key)
                test = "> 0" if self.how is How.SEMI else "<= 0"
                with code.block(f"if {matches} {test}:"):
                    self.emit(self._answer(row))
                if self.stores_left:
                    self._store_left(row, key, matches)

    def _count_matches(self, row: Row, key: str) -> str:
        writer, code = self.writer, self.code
        matches, found = writer.fresh("matches"), writer.fresh("found")
        code.line(f"{matches} = 0")
        code.line(f"{found} = {self.slot_getter('right')}({key})")
        with code.block(f"if {found} is not None:"):
            right, n = writer.fresh("row"), writer.fresh("n")
            with code.block(f"for {right}, {n} in {found}.items():"):
                pair = row.columns + writer.unpack(self.rows.schemas[1], right)
                with self.rows.where_residual(pair):
                    code.line(f"{matches} += {n}")
                    if self.how is How.LEFT:
                        self._emit_pair(pair, weight_product(row.weight, n))
        return matches

    def _store_left(self, row: Row, key: str, matches: str) -> None:
        writer, code = self.writer, self.code
        slot = self.slot("left")
        own, entry = writer.fresh("own"), writer.fresh("entry")
        code.line(f"{own} = {self.slot_getter('left')}({key})")
        with code.block(f"if {own} is None:"):
            code.line(f"{slot}[{key}] = {{{row.whole}: [{row.copies}, {matches}]}}")
        with code.block("else:"):
            code.line(f"{entry} = {own}.get({row.whole})")
            with code.block(f"if {entry} is None:"):
                code.line(f"{own}[{row.whole}] = [{row.copies}, {matches}]")
            with code.block("else:"):
                code.line(f"{entry}[0] += {row.copies}")
                with code.block(f"if not {entry}[0]:"):
                    self.state("left").delete(key, own, row.source)

    # -- the answer -------------------------------------------------------------------------------

    def _emit_pair(self, pair: tuple[str, ...], weight: str | None) -> None:
        row = Row(self.rows.output(pair), None, weight)
        if self.writer.is_append(self.node.id):
            self.writer.emit_copies(self.node.id, row)
        else:
            self.emit(row)

    def _answer(self, row: Row) -> Row:
        return self.rows.unmatched(row) if self.how is How.LEFT else row
