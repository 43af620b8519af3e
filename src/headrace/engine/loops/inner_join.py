"""Inner join in loops with retractions.

A pair is present in the rounds in which both of its rows are: from the later of the two on. Each change is
matched with the current content of the other side, whatever its round, and then added to its own side. So
every pair of changes is met exactly once, when the second of them arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.loops.feedback import SetStep
from headrace.engine.loops.netting import RoundSumsWriter
from headrace.engine.loops.outside_side import OutsideSide
from headrace.engine.loops.round_side import FirstRoundSide, RoundSide, StoredHistorySide, round_side
from headrace.engine.steps.joins import SIDES, JoinConditionWriter
from headrace.expr.check import can_fail
from headrace.expr.tree import Column
from headrace.lowering.row_code import Row, weight_product
from headrace.lowering.step import LoopStep
from headrace.operators.retractions_first import pair_schema
from headrace.operators.select import Select
from headrace.operators.union import Union

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.engine.loops.first_rounds import FirstRoundsWriter
    from headrace.graph.node import Node
    from headrace.lowering.slot import Slot
    from headrace.lowering.step import Step
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.join import Join


@dataclass(frozen=True, slots=True)
class Destination:
    """Set that a node's rows end up in.

    columns: per column of the set's rows, its position in a row of the node.
    """

    to: FirstRoundsWriter
    columns: tuple[int, ...]


class NestedInnerJoinStep(LoopStep):
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool], operator: Join) -> None:
        super().__init__(node, writer, varies)
        self._rows = JoinConditionWriter(node, writer, operator)
        self._express: Destination | None = None
        # A residual that can fail is asked of pairs that were there: once all of a round are known.
        pairs, residual = pair_schema(writer.graph, node, operator), operator.residual
        self._netting = (
            RoundSumsWriter(node.id, writer, "pairs", pairs)
            if residual is not None and can_fail(residual, pairs)
            else None
        )
        keys = self._rows.keys
        self._sides: list[OutsideSide | RoundSide] = []
        for port, what in enumerate(SIDES):
            if not varies[port]:
                self._sides.append(OutsideSide(node, port, writer, what, keys[port]))
            elif not varies[1 - port]:
                self._sides.append(round_side(node, port, writer, what, keys[port]))
            else:
                self._sides.append(RoundSide(node, port, writer, what))

    def prepare(self, steps: Mapping[int, Step]) -> None:
        """Gather pairs of multiplicity one if the following operators allow it."""
        for outside, round_ in (self._sides, self._sides[::-1]):
            if isinstance(outside, OutsideSide) and isinstance(round_, StoredHistorySide | FirstRoundSide):
                if self._rows.operator.residual is None:
                    self._express = find_destination(self.node.id, self.writer, steps)
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
            with other.open_if_found(key) as found:
                if self._express is not None and self.writer.at == self.writer.round_variable(self.node.id):
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
            with self.writer.at_later(before, self.writer.at):
                self._emit_pair(port, row, partner)

    def _gather(
        self, express: Destination, other: OutsideSide, port: int, row: Row, key: str, found: str
    ) -> None:
        """Write code that gathers pairs for a loop-variant set; most matches have multiplicity one."""
        code, odd = self.code, other.multiplicity_test(key)
        if odd is not None:
            with code.block(f"if {odd}:"), other.each_of(key, found) as partner:
                self._emit_pair(port, row, partner)
        with code.block("else:" if odd is not None else "if True:"):
            into = self.writer.fresh("into")
            code.line(f"{into} = {express.to.came} if {row.copies} > 0 else {express.to.went}")
            other.collect(key, found, into, self._pair_columns(express, port, row))

    def _pair_columns(self, express: Destination, port: int, row: Row) -> list[str | int]:
        """Return the source of each gathered column, or its position in a row of the other side."""
        width = len(self._rows.schemas[0].fields)
        pair = [*range(width), *(width + at for at in self._rows.operator.kept_right)]
        own = range(width) if port == 0 else range(width, width + len(row.columns))
        start = width if port == 0 else 0
        return [
            row.columns[pair[at] - own.start] if pair[at] in own else pair[at] - start
            for at in express.columns
        ]

    def _emit_pair(self, port: int, row: Row, partner: Row) -> None:
        pair = self._rows.pair(port, row.columns, partner.columns)
        found = Row(pair, None, weight_product(row.weight, partner.weight))
        if self._netting is None:
            self._answer(found)
        else:
            self._netting.add(found)

    def _answer(self, pair: Row) -> None:
        with self._rows.where_residual(pair.columns):
            self.emit(Row(self._rows.output(pair.columns), None, pair.weight))

    def write_round(self) -> None:
        if self._netting is not None:
            self._netting.turn(self._answer)


# -- from the join straight into a set of the same loop -------------------------------------------------
#
# Most loops are a join whose pairs become, by choice of columns alone, rows of a feedback. Then nothing has
# to be done per pair but to collect it: pairs of a round are counted together, and each different row is
# looked at once.


def find_destination(node: int, writer: StepWriter, steps: Mapping[int, Step]) -> Destination | None:
    """Find the set that a node's rows reach without being computed, dropped or stored on the way."""
    columns = tuple(range(len(writer.graph.nodes[node].schema.fields)))
    while (edge := writer.inlined_edge(node)) is not None:
        step, target = steps[edge.target], writer.graph.nodes[edge.target]
        if isinstance(step, SetStep):
            own_keys = all(writer.is_own_key(field.type) for field in target.schema.fields)
            return Destination(step.ranks, columns) if own_keys else None
        if isinstance(target.operator, Select):
            names = writer.input_schema(target, 0).names
            chosen = [expr for _, expr in target.operator.columns]
            if not all(isinstance(expr, Column) for expr in chosen):
                return None
            columns = tuple(columns[names.index(expr.name)] for expr in chosen if isinstance(expr, Column))
        elif not isinstance(target.operator, Union):
            return None
        node = target.id
    return None
