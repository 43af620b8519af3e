"""Inner join in a loop whose rows may be taken back.

A pair is there in the rounds in which both of its rows are: from the later of the two
on. Each change meets what the other side holds, at whatever rounds, and is then added
to its own side; so every pair of changes is met once, by whichever comes second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.loops.express import Express, express_from
from penstock.engine.loops.netting import Netting
from penstock.engine.loops.outside_side import OutsideSide
from penstock.engine.loops.round_side import KnownSide, RankSide, RoundSide, round_side
from penstock.engine.loops.step import NestedStep
from penstock.engine.retraction_order import pair_schema
from penstock.engine.row_codegen import Row, times
from penstock.engine.steps.joins import JoinedRows
from penstock.expr.check import can_fail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engine.slot import Slot
    from penstock.engine.step_writer import StepWriter
    from penstock.engine.steps.step import Step
    from penstock.flow.operators.join import Join
    from penstock.graph.node import Node

SIDES = ("left", "right")


class NestedInnerJoinStep(NestedStep):
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool], operator: Join) -> None:
        super().__init__(node, writer, varies)
        self._rows = JoinedRows(node, writer, operator)
        self._express: Express | None = None
        # A residual that can fail is asked of pairs that were there: once all of a round are known.
        pairs, residual = pair_schema(writer.graph, node, operator), operator.residual
        self._netting = (
            Netting(node.id, writer, "pairs", pairs)
            if residual is not None and can_fail(residual, pairs)
            else None
        )
        keys = (operator.left_keys, operator.right_keys)
        self._sides: list[OutsideSide | RoundSide] = []
        for port, what in enumerate(SIDES):
            if not varies[port]:
                self._sides.append(OutsideSide(node, port, writer, what, keys[port]))
            elif not varies[1 - port]:
                self._sides.append(round_side(node, port, writer, what, keys[port]))
            else:
                self._sides.append(RoundSide(node, port, writer, what))

    def prepare(self, steps: Mapping[int, Step]) -> None:
        """Let pairs of rows that are there once be gathered, where what follows allows it."""
        for outside, round_ in (self._sides, self._sides[::-1]):
            if isinstance(outside, OutsideSide) and isinstance(round_, KnownSide | RankSide):
                if self._rows.operator.residual is None:
                    self._express = express_from(self.node.id, self.writer, steps)
                if self._express is not None:
                    self._express.to.gathers = True
                    outside.tells_odd = True

    def begin_loop(self) -> None:
        if self._netting is not None:
            self._netting.begin_loop()

    def slots(self) -> tuple[Slot, ...]:
        return tuple(slot for side in self._sides for slot in side.slots())

    def consume(self, port: int, row: Row) -> None:
        side, code = self._sides[port], self.code
        with self._rows.key_of(port, row) as key:
            if isinstance(side, OutsideSide):
                weight = side.change(key, side.entry(row), row)
                changed = Row(row.columns, row.whole, weight)
                if weight is None:
                    self._match(port, changed, key)
                    return
                with code.block(f"if {weight}:"):
                    self._match(port, changed, key)
                return
            self._match(port, row, key)
            side.add(key, row)

    def _match(self, port: int, row: Row, key: str) -> None:
        other = self._sides[1 - port]
        if isinstance(other, OutsideSide):
            with other.found(key) as found:
                if self._express is not None and self.writer.at == self.writer.round(self.node.id):
                    self._gather(self._express, other, port, row, key, found)
                    return
                with other.each_of(key, found) as partner:
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

    def _gather(
        self, express: Express, other: OutsideSide, port: int, row: Row, key: str, found: str
    ) -> None:
        """What goes round is a set: a row comes or goes once, and mostly meets rows that are there once."""
        code, odd = self.code, other.odd(key)
        if odd is not None:
            with code.block(f"if {odd}:"), other.each_of(key, found) as partner:
                self._emit_pair(port, row, partner)
        with code.block("else:" if odd is not None else "if True:"):
            into = self.writer.fresh("into")
            code.line(f"{into} = {express.to.came} if {row.copies} > 0 else {express.to.went}")
            other.collect(key, found, into, self._pair_columns(express, port, row))

    def _pair_columns(self, express: Express, port: int, row: Row) -> list[str | int]:
        """Per column of what is gathered, a source, or the position in a row of the other side."""
        width = len(self._rows.schemas[0].fields)
        pair = [*range(width), *(width + at for at in self._rows.operator.kept_right)]
        own = range(width) if port == 0 else range(width, width + len(row.columns))
        start = width if port == 0 else 0
        return [
            row.columns[pair[at] - own.start] if pair[at] in own else pair[at] - start
            for at in express.columns
        ]

    def _emit_pair(self, port: int, row: Row, partner: Row) -> None:
        pair = row.columns + partner.columns if port == 0 else partner.columns + row.columns
        found = Row(pair, None, times(row.weight, partner.weight))
        if self._netting is None:
            self._answer(found)
        else:
            self._netting.add(found)

    def _answer(self, pair: Row) -> None:
        with self._rows.where_residual(pair.columns):
            self.emit(Row(self._rows.output(pair.columns), None, pair.weight))

    def turn(self) -> None:
        if self._netting is not None:
            self._netting.turn(self._answer)
