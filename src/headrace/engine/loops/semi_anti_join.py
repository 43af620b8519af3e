"""Semi join, anti join and difference in loops with retractions, without a residual.

Where the right side does not go round, it is complete before the first round: a key is
present or not in all of them. Else (a semi join) a key is present from some round on, and
a left row is there from the later of its own round and that one.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from headrace.engine.loops.first_rounds import FirstRoundsWriter
from headrace.engine.loops.inner_join import NestedInnerJoinStep
from headrace.engine.loops.matched_join import NestedMatchedJoinStep
from headrace.engine.loops.outside_side import OutsideSide
from headrace.engine.loops.round_runtime import RANK
from headrace.engine.loops.round_side import RoundSide, round_side
from headrace.engine.steps.joins import JoinConditionWriter
from headrace.lowering.row_code import Row, negated_weight, weight_product
from headrace.lowering.slot import Slot
from headrace.lowering.step import LoopStep, loop_step_for, repeatable_weight
from headrace.operators.difference import Difference
from headrace.operators.join import How, Join

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from contextlib import AbstractContextManager

    from headrace.expr.tree import Expr
    from headrace.graph.node import Node
    from headrace.lowering.step import Step
    from headrace.lowering.step_writer import StepWriter


class JoinKeys:
    """Join keys of both sides, and the treatment of left rows with a null key."""

    def __init__(self, node: Node, writer: StepWriter, operator: Join | None) -> None:
        self._node = node
        self._writer = writer
        self._join = None if operator is None else JoinConditionWriter(node, writer, operator)

    def exprs(self, port: int) -> tuple[Expr, ...]:
        """Return the key expressions of a side; empty if the whole row is the key."""
        if self._join is None:
            return ()
        return self._join.keys[port]

    def open_non_null(self, port: int, row: Row) -> AbstractContextManager[str]:
        """Open a block that runs if no part of the row's key is null, with the key's variable."""
        if self._join is not None:
            return self._join.key_of(port, row)
        writer, key = self._writer, self._writer.fresh("key")
        writer.code.line(f"{key} = {writer.row_key(writer.input_schema(self._node, port), row.columns)}")
        return nullcontext(key)

    def null_test(self, row: Row) -> str | None:
        """Return a test for a left row with a null key; None if every left row has a key."""
        return None if self._join is None else self._join.null_left_key(row)


class OutsidePresenceStep(LoopStep):
    """Semi join, anti join or difference with a loop-invariant right side.

    Slots: right, key -> number of rows; left, as any loop-variant side.


    present: whether a key must be present (semi) or absent (anti, difference).
    """

    heavy = True
    sites = 4

    def __init__(
        self, node: Node, writer: StepWriter, varies: Sequence[bool], keys: JoinKeys, *, present: bool
    ) -> None:
        super().__init__(node, writer, varies)
        self._keys = keys
        self._present = present
        self._left = round_side(node, 0, writer, "left", keys.exprs(0) or ())

    def slots(self) -> tuple[Slot, ...]:
        return (*self._left.slots(), Slot(f"{self.node.id}.right"))

    def write_outside_rows(self, port: int) -> None:
        writer, code = self.writer, self.code
        before = writer.fresh("before")
        code.line(f"{before} = {{}}")
        with writer.each_row(self.node, 1) as row, self._keys.open_non_null(1, row) as key:
            self.state("right").add_count(key, row.copies, before)
        key, old, new = writer.fresh("key"), writer.fresh("old"), writer.fresh("new")
        change = writer.fresh("change")
        with code.block(f"for {key}, {old} in {before}.items():"):
            code.line(f"{new} = {self.slot_getter('right')}({key}) or 0")
            code.line(f"{change} = ({new} > 0) - ({old} > 0)")
            with code.block(f"if {change}:"), self._left.each(key) as row:
                sign = change if self._present else negated_weight(change)
                self.emit(Row(row.columns, row.whole, weight_product(row.weight, sign)))

    def consume(self, port: int, row: Row) -> None:
        with self._left_key(row) as key:
            test = "> 0" if self._present else "<= 0"
            with self.code.block(f"if ({self.slot_getter('right')}({key}) or 0) {test}:"):
                self.emit(row)
            self._left.add(key, row)

    @contextmanager
    def _left_key(self, row: Row) -> Generator[str]:
        nulls = None if self._present else self._keys.null_test(row)
        if nulls is None:
            with self._keys.open_non_null(0, row) as key:
                yield key
            return
        with self.code.block(f"if {nulls}:"):
            self.emit(row)
        with self.code.block("else:"), self._keys.open_non_null(0, row) as key:
            yield key


class RoundPresenceStep(LoopStep):
    """Semi join with a loop-variant right side.

    Slots: keys, key -> rank and how many rows by round; left, as any side; present, where
    both sides go round: key -> {round: change of presence}, as far as left rows have met it.
    """

    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool], keys: JoinKeys) -> None:
        super().__init__(node, writer, varies)
        self._keys = keys
        self._ranks = FirstRoundsWriter(node.id, writer, "keys", shift=0)
        self._left: OutsideSide | RoundSide = (
            RoundSide(node, 0, writer, "left")
            if varies[0]
            else OutsideSide(node, 0, writer, "left", keys.exprs(0))
        )

    def slots(self) -> tuple[Slot, ...]:
        present = (Slot(f"{self.node.id}.present"),) if self.varies[0] else ()
        return (self._ranks.slot(), *self._left.slots(), *present)

    def begin_loop(self) -> None:
        self._ranks.begin_loop()

    def begin_round(self) -> None:
        self._ranks.begin_round()

    def end_round(self) -> None:
        self._ranks.end_round()

    def consume(self, port: int, row: Row) -> None:
        with self._keys.open_non_null(port, row) as key:
            if port == 1:
                self._ranks.add(key, repeatable_weight(self.writer, row))
            elif isinstance(self._left, OutsideSide):
                self._enter_left(self._left, row, key)
            else:
                self._meet_presence(self._left, row, key)

    def _enter_left(self, left: OutsideSide, row: Row, key: str) -> None:
        """Write code for a left row from outside, matched with the keys of earlier ticks."""
        code, writer = self.code, self.writer
        weight = left.change(key, left.entry(row), row)
        own, rank = writer.fresh("own"), writer.fresh("rank")
        code.line(f"{own} = {self.slot_getter('keys')}({key})")
        with code.block(f"if {own} is not None:"):
            code.line(f"{rank} = {own}.get({RANK})")
            test = f"{rank} is not None" if weight is None else f"{rank} is not None and {weight}"
            with code.block(f"if {test}:"), writer.at_round(rank):
                self.emit(Row(row.columns, row.whole, weight))

    def _meet_presence(self, left: RoundSide, row: Row, key: str) -> None:
        code, writer = self.code, self.writer
        row = writer.as_whole(row)
        own, at, n = writer.fresh("present"), writer.fresh("at"), writer.fresh("n")
        code.line(f"{own} = {self.slot_getter('present')}({key})")
        with (
            code.block(f"if {own} is not None:"),
            code.block(f"for {at}, {n} in {own}.items():"),
            writer.at_later(writer.at, at),
        ):
            self.emit(Row(row.columns, row.whole, weight_product(row.weight, n)))
        left.add(key, row)

    def write_round(self) -> None:
        self._ranks.turn(self._emit_crossing)

    def _emit_crossing(self, key: str, weight: str) -> None:
        round_ = self.writer.at
        if isinstance(self._left, OutsideSide):
            with self._left.each(key) as row:
                self.emit(Row(row.columns, row.whole, weight_product(row.weight, weight)))
            return
        with self._left.each(key) as row, self.writer.at_later(round_, self.writer.at):
            self.emit(Row(row.columns, row.whole, weight_product(row.weight, weight)))
        self._remember(key, weight, round_)

    def _remember(self, key: str, weight: str, at: str) -> None:
        self.state("present").add_weight(key, Row((), at, weight))


@loop_step_for.register(Difference)
def _difference(operator: Difference, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    return OutsidePresenceStep(node, writer, varies, JoinKeys(node, writer, None), present=False)


@loop_step_for.register(Join)
def _join(operator: Join, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    if operator.how is How.INNER:
        return NestedInnerJoinStep(node, writer, varies, operator)
    if operator.how is How.LEFT or operator.residual is not None:
        return NestedMatchedJoinStep(node, writer, varies, operator)
    keys = JoinKeys(node, writer, operator)
    if varies[1]:
        return RoundPresenceStep(node, writer, varies, keys)
    return OutsidePresenceStep(node, writer, varies, keys, present=operator.how is How.SEMI)
