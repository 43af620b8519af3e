"""Steps of joins and of difference in loops with retractions.

A pair is present in the rounds in which both of its rows are: from the later of the two on. An inner join
matches each change with the current content of the other side, whatever its round, and then adds it to its
own side. So every pair of changes is met exactly once, when the second of them arrives.

The other joins depend on whether a left row has a partner. If the right side is loop-invariant, it is
complete before the first round: a left row has the same partners in all of them. If it is loop-variant (a
semi join), a key is present from some round on, and a left row is there from the later of its own round and
that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.expr.check import can_fail
from headrace.expr.tree import Column
from headrace.lowering.round_history import RANK, FirstRoundsWriter, RoundSumsWriter, SetLoopStep
from headrace.lowering.row_code import RowCode, negated_weight, weight_product
from headrace.lowering.slot import Slot
from headrace.lowering.step import LoopStep, loop_step_for, register_loop_step, repeatable_weight
from headrace.operators.join.join import Difference, How, Join
from headrace.operators.join.loop_sides import (
    FirstRoundSide,
    InvariantSide,
    StoredHistorySide,
    VariantSide,
    variant_side,
)
from headrace.operators.join.steps import JoinConditionWriter, MatchCounting, keeps_present, key_writer
from headrace.operators.rows import Select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from headrace.graph.node import Node
    from headrace.lowering.step import RowStep
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class Destination:
    """Set that a node's rows end up in.

    columns: per column of the set's rows, its position in a row of the node.
    """

    to: FirstRoundsWriter
    columns: tuple[int, ...]


class InnerJoinLoopStep(LoopStep):
    """Inner join in a loop with retractions. Slots: those of its two sides."""

    operator: Join
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self._rows = JoinConditionWriter(node, writer, self.operator)
        self._destination: Destination | None = None
        # A residual that can fail is asked of pairs that were there: once all of a round are known.
        pairs, residual = self.operator.pair_schema(self._rows.schemas), self.operator.residual
        self._pair_sums = (
            RoundSumsWriter(node.id, writer, "pairs", pairs)
            if residual is not None and can_fail(residual, pairs)
            else None
        )
        self._sides: list[InvariantSide | VariantSide] = [
            variant_side(node, port, writer, keys, varies)
            if varies[port]
            else InvariantSide(node, port, writer, keys)
            for port, keys in enumerate(self._rows.keys)
        ]

    def prepare(self, steps: Mapping[int, RowStep]) -> None:
        """Gather pairs of multiplicity one if the following operators allow it."""
        for outside, other in (self._sides, self._sides[::-1]):
            if isinstance(outside, InvariantSide) and isinstance(other, StoredHistorySide | FirstRoundSide):
                if self.operator.residual is None:
                    self._destination = find_destination(self.node.id, self.writer, steps)
                if self._destination is not None:
                    self._destination.to.gathers = True
                    outside.counts_odd = True

    def begin_loop(self) -> None:
        if self._pair_sums is not None:
            self._pair_sums.begin_loop()

    def slots(self) -> tuple[Slot, ...]:
        return tuple(slot for side in self._sides for slot in side.slots())

    def consume(self, port: int, row: RowCode) -> None:
        side, code = self._sides[port], self.code
        with self._rows.key_of(port, row) as key:
            if isinstance(side, InvariantSide):
                weight = side.change(key, side.entry(row), row)
                changed = RowCode(row.columns, row.whole, weight)
                if weight is None:
                    self._match(port, changed, key)
                    return
                with code.block(f"if {weight}:"):
                    self._match(port, changed, key)
                return
            self._match(port, row, key)
            side.add(key, row)

    def _match(self, port: int, row: RowCode, key: str) -> None:
        other = self._sides[1 - port]
        if isinstance(other, InvariantSide):
            with other.if_found(key) as found:
                if self._destination is not None and self.writer.at == self.writer.round_variable(
                    self.node.id
                ):
                    self._gather(self._destination, other, port, row, key, found)
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
        self, destination: Destination, other: InvariantSide, port: int, row: RowCode, key: str, found: str
    ) -> None:
        """Write code that gathers pairs for a loop-variant set; most matches have multiplicity one."""
        code, odd = self.code, other.multiplicity_test(key)
        if odd is not None:
            with code.block(f"if {odd}:"), other.each_of(key, found) as partner:
                self._emit_pair(port, row, partner)
        with code.block("else:" if odd is not None else "if True:"):
            into = self.writer.fresh("into")
            code.line(f"{into} = {destination.to.came} if {row.copies} > 0 else {destination.to.went}")
            other.collect(key, found, into, self._pair_columns(destination, port, row))

    def _pair_columns(self, destination: Destination, port: int, row: RowCode) -> list[str | int]:
        """Return the source of each gathered column, or its position in a row of the other side."""
        width = len(self._rows.schemas[0].fields)
        pair = [*range(width), *(width + at for at in self.operator.kept_right)]
        own = range(width) if port == 0 else range(width, width + len(row.columns))
        start = width if port == 0 else 0
        return [
            row.columns[pair[at] - own.start] if pair[at] in own else pair[at] - start
            for at in destination.columns
        ]

    def _emit_pair(self, port: int, row: RowCode, partner: RowCode) -> None:
        pair = self._rows.pair(port, row.columns, partner.columns)
        found = RowCode(pair, None, weight_product(row.weight, partner.weight))
        if self._pair_sums is None:
            self._emit_matching(found)
        else:
            self._pair_sums.add(found)

    def _emit_matching(self, pair: RowCode) -> None:
        with self._rows.where_residual(pair.columns):
            self.emit(RowCode(self._rows.output(pair.columns), None, pair.weight))

    def write_round(self) -> None:
        if self._pair_sums is not None:
            self._pair_sums.write_round(self._emit_matching)


# --- from the join straight into a set of the same loop -------------------------------------------

# Most loops are a join whose pairs become, by choice of columns alone, rows of a feedback. Then nothing has
# to be done per pair but to collect it: pairs of a round are counted together, and each different row is
# looked at once.


def find_destination(node: int, writer: StepWriter, steps: Mapping[int, RowStep]) -> Destination | None:
    """Find the set that a node's rows reach without being computed, dropped or stored on the way."""
    columns = tuple(range(len(writer.graph.nodes[node].schema.fields)))
    while (edge := writer.inlined_edge(node)) is not None:
        step, target = steps[edge.target], writer.graph.nodes[edge.target]
        if isinstance(step, SetLoopStep):
            own_keys = all(writer.is_own_key(field.type) for field in target.schema.fields)
            return Destination(step.ranks, columns) if own_keys else None
        if isinstance(target.operator, Select):
            names = writer.input_schema(target, 0).names
            chosen = [expr for _, expr in target.operator.columns]
            if not all(isinstance(expr, Column) for expr in chosen):
                return None
            columns = tuple(columns[names.index(expr.name)] for expr in chosen if isinstance(expr, Column))
        elif not target.operator.is_union:
            return None
        node = target.id
    return None


# --- joins that count each left row's matches -----------------------------------------------------


class MatchedJoinLoopStep(MatchCounting, LoopStep):
    """Left join, or semi or anti join with a residual, with a loop-invariant right side.

    How many matches a left row has is counted anew where it or a right row of its key changes. Slots: those
    of a loop-variant left and a loop-invariant right side.
    """

    operator: Join
    heavy = True
    sites = 6

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self.rows = JoinConditionWriter(node, writer, self.operator)
        self._left = variant_side(node, 0, writer, self.operator.left_keys, varies)
        self._right = InvariantSide(node, 1, writer, self.operator.right_keys)

    def slots(self) -> tuple[Slot, ...]:
        return (*self._left.slots(), *self._right.slots())

    def write_outside_rows(self, port: int) -> None:
        writer, code = self.writer, self.code
        changes, key, own = writer.fresh("changes"), writer.fresh("key"), writer.fresh("own")
        code.line(f"{changes} = {{}}")
        with writer.each_row(self.node, 1) as row, self.rows.key_of(1, row) as at:
            entry = self._right.entry(row)
            change = self._right.change(at, entry, row) or "1"
            code.line(f"{own} = {changes}.setdefault({at}, {{}})")
            code.line(f"{own}[{entry}] = {own}.get({entry}, 0) + {change}")
        with (
            code.block(f"for {key}, {own} in {changes}.items():"),
            self._left.each_row(key) as (left, known),
        ):
            self._change_partners(left, known, key, own)

    def _change_partners(self, left: RowCode, known: str, key: str, changes: str) -> None:
        """Write code for an old left row whose matches change, perhaps from or to none."""
        writer, code, how = self.writer, self.code, self.operator.how
        entry, n, change = writer.fresh("entry"), writer.fresh("n"), writer.fresh("change")
        code.line(f"{change} = 0")
        with code.block(f"for {entry}, {n} in {changes}.items():"), code.block(f"if {n}:"):
            pair = left.columns + self._right.row_of(key, entry, n).columns
            with self.rows.where_residual(pair):
                code.line(f"{change} += {n}")
                if how is How.LEFT:
                    with self._left.each_round(left, known) as row:
                        self.emit_pair(pair, weight_product(row.weight, n))
        with code.block(f"if {change}:"):
            matches = self.count_matches(left, key, emits=False)
            crossing = writer.fresh("crossing")
            code.line(f"{crossing} = ({matches} > 0) - ({matches} > {change})")
            with code.block(f"if {crossing}:"), self._left.each_round(left, known) as row:
                sign = crossing if how is How.SEMI else negated_weight(crossing)
                changed = RowCode(row.columns, row.whole, weight_product(row.weight, sign))
                self.emit(self.rows.unmatched(changed))

    def consume(self, port: int, row: RowCode) -> None:
        self.write_left_row(row)

    def right_rows(self, key: str) -> AbstractContextManager[RowCode]:
        return self._right.each(key)

    def store_left(self, row: RowCode, key: str, matches: str) -> None:
        self._left.add(key, row)


# --- joins that test a key's presence -------------------------------------------------------------


@register_loop_step(Difference)
class PresenceLoopStep(LoopStep):
    """Semi join, anti join or difference with a loop-invariant right side, without a residual.

    Slots: right, key -> number of rows; left, as any loop-variant side.
    """

    heavy = True
    sites = 4

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self._keys = key_writer(node, writer)
        self._present = keeps_present(self.operator)
        self._left = variant_side(node, 0, writer, self._keys.keys[0], varies)

    def slots(self) -> tuple[Slot, ...]:
        return (*self._left.slots(), Slot(f"{self.node.id}.right"))

    def write_outside_rows(self, port: int) -> None:
        writer, code = self.writer, self.code
        before = writer.fresh("before")
        code.line(f"{before} = {{}}")
        with writer.each_row(self.node, 1) as row, self._keys.key_of(1, row) as key:
            self.state("right").add_count(key, row.copies, before)
        key, old, new = writer.fresh("key"), writer.fresh("old"), writer.fresh("new")
        change = writer.fresh("change")
        with code.block(f"for {key}, {old} in {before}.items():"):
            code.line(f"{new} = {self.slot_getter('right')}({key}) or 0")
            code.line(f"{change} = ({new} > 0) - ({old} > 0)")
            with code.block(f"if {change}:"), self._left.each(key) as row:
                sign = change if self._present else negated_weight(change)
                self.emit(RowCode(row.columns, row.whole, weight_product(row.weight, sign)))

    def consume(self, port: int, row: RowCode) -> None:
        with self._keys.left_key(row, None if self._present else self.emit) as key:
            test = "> 0" if self._present else "<= 0"
            with self.code.block(f"if ({self.slot_getter('right')}({key}) or 0) {test}:"):
                self.emit(row)
            self._left.add(key, row)


class SemiJoinLoopStep(LoopStep):
    """Semi join with a loop-variant right side.

    Slots: keys, key -> rank and how many rows by round; left, as any side; present, where
    both sides go round: key -> {round: change of presence}, as far as left rows have met it.
    """

    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self._keys = key_writer(node, writer)
        self._ranks = FirstRoundsWriter(node.id, writer, "keys", shift=0)
        keys = self._keys.keys[0]
        self._left: InvariantSide | VariantSide = (
            variant_side(node, 0, writer, keys, varies) if varies[0] else InvariantSide(node, 0, writer, keys)
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

    def consume(self, port: int, row: RowCode) -> None:
        with self._keys.key_of(port, row) as key:
            if port == 1:
                self._ranks.add(key, repeatable_weight(self.writer, row))
            elif isinstance(self._left, InvariantSide):
                self._enter_left(self._left, row, key)
            else:
                self._meet_presence(self._left, row, key)

    def _enter_left(self, left: InvariantSide, row: RowCode, key: str) -> None:
        """Write code for a left row from outside, matched with the keys of earlier ticks."""
        code, writer = self.code, self.writer
        weight = left.change(key, left.entry(row), row)
        own, rank = writer.fresh("own"), writer.fresh("rank")
        code.line(f"{own} = {self.slot_getter('keys')}({key})")
        with code.block(f"if {own} is not None:"):
            code.line(f"{rank} = {own}.get({RANK})")
            test = f"{rank} is not None" if weight is None else f"{rank} is not None and {weight}"
            with code.block(f"if {test}:"), writer.at_round(rank):
                self.emit(RowCode(row.columns, row.whole, weight))

    def _meet_presence(self, left: VariantSide, row: RowCode, key: str) -> None:
        writer = self.writer
        row = writer.as_whole(row)
        with (
            self.state("present").each_entry(key, "n", "at") as (at, n),
            writer.at_later(writer.at, at),
        ):
            self.emit(RowCode(row.columns, row.whole, weight_product(row.weight, n)))
        left.add(key, row)

    def write_round(self) -> None:
        self._ranks.write_round(self._emit_crossing)

    def _emit_crossing(self, key: str, weight: str) -> None:
        round_ = self.writer.at
        if isinstance(self._left, InvariantSide):
            with self._left.each(key) as row:
                self.emit(RowCode(row.columns, row.whole, weight_product(row.weight, weight)))
            return
        with self._left.each(key) as row, self.writer.at_later(round_, self.writer.at):
            self.emit(RowCode(row.columns, row.whole, weight_product(row.weight, weight)))
        self.state("present").add_weight(key, RowCode((), round_, weight))


@loop_step_for.register(Join)
def _join_step(operator: Join, node: Node, writer: StepWriter, varies: Sequence[bool]) -> RowStep:
    if operator.how is How.INNER:
        return InnerJoinLoopStep(node, writer, varies)
    if operator.how is How.LEFT or operator.residual is not None:
        return MatchedJoinLoopStep(node, writer, varies)
    return (SemiJoinLoopStep if varies[1] else PresenceLoopStep)(node, writer, varies)
