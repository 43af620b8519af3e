"""Step of the inner join: changes on one side are matched with the rows of the other.

With L, R before a batch of changes l, r the answer changes by
    l x R  +  L x r  +  l x r.
Each row is first matched with what the other side holds and then added to its
own side, so every pair of new rows is met once, by whichever comes second;
the order in which the sides come does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.steps.joins import SIDES, JoinConditionWriter
from headrace.engine.steps.matched_join import MatchedJoinStep
from headrace.engine.steps.semi_anti_join import PresenceStep
from headrace.lowering.row_code import ChangeSelection, Row, weight_product
from headrace.lowering.slot import Slot, as_it_is, thaw_list
from headrace.lowering.step import Step, step_for
from headrace.operators.join import How, Join
from headrace.operators.lifetime import Lifetime
from headrace.operators.retractions_first import must_take_back_first

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


class InnerJoinStep(Step):
    """Step of the inner join. Slot per side: key -> list of rows if append-only, else key -> {row: weight}.

    A side of lifetime TICK has a slot of one tick. Beside it, a table comes whole
    before the tick's rows are matched with it: they answer what holds in the end.
    """

    keeps_state = True
    heavy = True

    def __init__(self, node: Node, writer: StepWriter, operator: Join) -> None:
        super().__init__(node, writer)
        self.rows = JoinConditionWriter(node, writer, operator)
        self.appends = tuple(writer.is_append(i) for i in node.inputs)
        self.of_a_tick = tuple(lifetime is Lifetime.TICK for lifetime in operator.lifetimes)
        self.looked_up = any(self.of_a_tick) and not all(self.appends)
        self.takes_rows = not self.looked_up and not must_take_back_first(writer, node)
        self.sites = 2 if self.takes_rows else 1 if self.looked_up else 2 + self.appends.count(False)

    def slots(self) -> tuple[Slot, ...]:
        return tuple(
            Slot(f"{self.node.id}.{side}", thaw_list if append else as_it_is, "value", transient=of_a_tick)
            for side, append, of_a_tick in zip(SIDES, self.appends, self.of_a_tick, strict=True)
        )

    def consume(self, port: int, row: Row) -> None:
        with self.rows.key_of(port, row) as key:
            row = self.writer.as_whole(row)
            self._match(port, row, key)
            self._add(port, row, key)

    def finish(self) -> None:
        if self.takes_rows:
            return
        if self.looked_up:
            self._look_up()
            return
        self.writer.consolidate_inputs(self.node)
        for only in (ChangeSelection.GOES, ChangeSelection.COMES):
            for port, append in enumerate(self.appends):
                if append and only is ChangeSelection.GOES:
                    continue
                with self.writer.each_row(self.node, port, only) as row:
                    self.consume(port, row)

    def _look_up(self) -> None:
        """Write code that first adds the table's changes, then matches the tick's rows."""
        of_a_tick = self.of_a_tick.index(True)
        table = 1 - of_a_tick
        with self.writer.each_row(self.node, table) as row, self.rows.key_of(table, row) as key:
            self._add(table, self.writer.as_whole(row), key)
        with self.writer.each_row(self.node, of_a_tick) as row, self.rows.key_of(of_a_tick, row) as key:
            self._match(of_a_tick, row, key)

    def _match(self, port: int, row: Row, key: str) -> None:
        writer, other = self.writer, 1 - port
        found = writer.fresh("found")
        self.code.line(f"{found} = {self.slot_getter(SIDES[other])}({key})")
        with self.code.block(f"if {found} is not None:"):
            partner = writer.fresh("row")
            weight: str | None = None
            header = f"for {partner} in {found}:"
            if not self.appends[other]:
                weight = writer.fresh("n")
                header = f"for {partner}, {weight} in {found}.items():"
            with self.code.block(header):
                columns = writer.unpack(self.input_schema(other), partner)
                pair = self.rows.pair(port, row.columns, columns)
                with self.rows.where_residual(pair):
                    joined = Row(self.rows.output(pair), None, weight_product(row.weight, weight))
                    self.writer.emit_copies(self.node.id, joined)

    def _add(self, port: int, row: Row, key: str) -> None:
        side = self.state(SIDES[port])
        if self.appends[port]:
            side.append(key, row.source)
        else:
            side.add_weight(key, row)


@step_for.register(Join)
def _join(operator: Join, node: Node, writer: StepWriter) -> Step:
    if operator.how is How.INNER:
        return InnerJoinStep(node, writer, operator)
    if operator.how is How.LEFT or operator.residual is not None:
        return MatchedJoinStep(node, writer, operator)
    return PresenceStep.of_join(node, writer, operator)
