"""Inner join in a loop whose rows may be taken back.

A pair is there in the rounds in which both of its rows are: from the later of the two
on. Each change meets what the other side holds, at whatever rounds, and is then added
to its own side; so every pair of changes is met once, by whichever comes second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.loops.sides import OutsideSide, RoundSide, round_side
from penstock.engine.loops.step import NestedStep
from penstock.engine.row import Row, times
from penstock.engine.steps.joined_rows import JoinedRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.engine.region_writer import RegionWriter
    from penstock.engine.slot import Slot
    from penstock.flow.operators.join import Join
    from penstock.graph.node import Node

SIDES = ("left", "right")


class NestedInnerJoinStep(NestedStep):
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: RegionWriter, varies: Sequence[bool], operator: Join) -> None:
        super().__init__(node, writer, varies)
        self._rows = JoinedRows(node, writer, operator)
        keys = (operator.left_keys, operator.right_keys)
        self._sides: list[OutsideSide | RoundSide] = []
        for port, what in enumerate(SIDES):
            if not varies[port]:
                self._sides.append(OutsideSide(node, port, writer, what))
            elif not varies[1 - port]:
                self._sides.append(round_side(node, port, writer, what, keys[port]))
            else:
                self._sides.append(RoundSide(node, port, writer, what))

    def slots(self) -> tuple[Slot, ...]:
        return tuple(slot for side in self._sides for slot in side.slots())

    def consume(self, port: int, row: Row) -> None:
        side, code = self._sides[port], self.code
        with self._rows.key_of(port, row) as key:
            if isinstance(side, OutsideSide):
                row = side.whole(row)
                weight = side.change(key, row)
                changed = Row(row.columns, row.whole, weight)
                if weight is None:
                    self._match(port, changed, key)
                    return
                with code.block(f"if {weight}:"):
                    self._match(port, changed, key)
                return
            self._match(port, row, key)
            side.add(key, side.whole(row))

    def _match(self, port: int, row: Row, key: str) -> None:
        other = self._sides[1 - port]
        if isinstance(other, OutsideSide):
            with other.each(key) as partner:
                self._emit_pair(port, row, partner)
            return
        before, both_vary = self.writer.at, self.varies[port]
        with other.each(key) as partner:
            if not both_vary:
                self._emit_pair(port, row, partner)
                return
            at = self.writer.fresh("at")
            self.code.line(f"{at} = {before} if {before} > {self.writer.at} else {self.writer.at}")
            with self.writer.at_round(at):
                self._emit_pair(port, row, partner)

    def _emit_pair(self, port: int, row: Row, partner: Row) -> None:
        pair = row.columns + partner.columns if port == 0 else partner.columns + row.columns
        with self._rows.where_residual(pair):
            self.emit(Row(self._rows.output(pair), None, times(row.weight, partner.weight)))

