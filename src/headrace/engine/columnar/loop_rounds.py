"""Loops without retractions in large ticks: large rounds run on frames, small ones on rows.

A round is to the operators of a loop what a tick is to others: they answer the rows that the round before
found, and then their slots take these in, until the tick is over beside the state
(`RoundSlots`). The tail of a recursion is many rounds of few rows, so a small round goes on
in rows, with the state as far as it has come; and a loop that runs in rows comes here for its large rounds,
if its state lies in arrangements. State that is Python values is read faster by rows: if the first rounds on
frames turn out to be small, the tick runs in rows and leaves it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import polars as pl

from headrace.arrangement.batch import concat_frames
from headrace.arrangement.spine import Spine, TooManyFound
from headrace.columns.column_stream import ColumnStream, build_stream
from headrace.columns.columns import ColumnarDeclined, Columns, rows_to_columns
from headrace.engine.columnar.arranged_slot import ArrangedSlots
from headrace.engine.loop_code import SHOWN_ROUNDS
from headrace.expr.types import Rows
from headrace.operators.feedback import FeedbackOperator

if TYPE_CHECKING:
    from headrace.arrangement.batch import SortedBatch
    from headrace.engine.runtime_library import TickBudget
    from headrace.graph.node import FlowGraph


WentOn: TypeAlias = "tuple[int, tuple[Rows, ...], tuple[Rows, ...]]"
"""Round reached, the rows it is to begin with per feedback, and the rows that left the loop per node."""

DECLINES = (ColumnarDeclined, TooManyFound, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Exceptions for what must run in rows."""


@dataclass(frozen=True)
class LoopPlan:
    """Plan of a loop whose rounds run on frames.

    nodes:    in the order in which a round runs them; the first one names the loop in generated code.
    closing:  the feedbacks among them. leaving: those whose rows are read outside.
    entering: nodes outside that it reads.
    most_rounds: limit on the rounds of a tick.
    """

    nodes: tuple[int, ...]
    closing: tuple[int, ...]
    leaving: tuple[int, ...]
    entering: tuple[int, ...]
    most_rounds: int


def plan_loop(graph: FlowGraph, loop: tuple[int, ...], read_outside: Set[int]) -> LoopPlan:
    """Plan a loop. read_outside: nodes whose rows are read outside of it."""
    operators = [graph.nodes[n].operator for n in loop]
    feedbacks = [each for each in operators if isinstance(each, FeedbackOperator)]
    closing = tuple(n for n in loop if isinstance(graph.nodes[n].operator, FeedbackOperator))
    # In the order of the generated code: see `write_rounds`.
    leaving = tuple(n for n in (*closing, *(n for n in loop if n not in closing)) if n in read_outside)
    entering = tuple(sorted({s for n in loop for s in graph.nodes[n].inputs if s not in loop}))
    return LoopPlan(loop, closing, leaving, entering, min(each.max_iterations for each in feedbacks))


@dataclass
class RoundSlots(ArrangedSlots):
    """Slots of an operator in a loop, which receive rows round by round.

    branches: of arrangements, with the rows of the rounds so far. before: batches as of the tick's beginning.
    """

    _branches: dict[str, Spine] = field(default_factory=dict["str", Spine], init=False)
    _before: dict[str, Sequence[SortedBatch]] = field(
        default_factory=dict["str", "Sequence[SortedBatch]"], init=False
    )

    def spine(self, name: str) -> Spine:
        """Return the arrangement of a slot as of the current round."""
        return self._branches[name] if name in self._branches else super().spine(name)

    def begin_rounds(self) -> None:
        """Begin rounds: `end_round` adds rows for later rounds; `keep_rounds` makes them permanent."""
        self._branches = {name: self.spine(name).branch() for name in self.forms}

    def end_round(self) -> None:
        """Make the prepared rows visible to later rounds."""
        # No operator of a loop replaces batches, or does anything but add rows.
        assert not self._left
        assert not self._effects
        for name, batch in self._new.items():
            self._branches[name].add_batch(batch)
        self._new = {}

    def keep_rounds(self) -> None:
        """Add the rows of all rounds to the state for row-wise rounds to read, until `add` or `undo`."""
        self.bind()
        branches, self._branches = self._branches, {}
        for name, branch in branches.items():
            spine = self.spine(name)
            self._before.setdefault(name, spine.batches)
            spine.add_batch(branch.grown())
            # Rows may go on from here many times in a tick.
            spine.gather()

    def add(self) -> None:
        self.keep_rounds()
        self._before = {}
        super().add()

    def forget(self) -> None:
        """Forget the rounds since `begin_rounds`."""
        super().forget()
        self._branches = {}

    def undo(self) -> None:
        """Also undo `keep_rounds` and any row-wise changes since."""
        super().undo()
        for name, batches in self._before.items():
            slot = self.arranged(name)
            assert slot is not None
            slot.spine.replace(batches)
            slot.discard()
        self._before = {}


ROUND = 1_500
"""New rows of a round that take as long in rows, where the state is Python values."""

PATIENCE = 8
"""Rows that a tick must have for each that its small rounds have too few."""


class NarrowLoop(ColumnarDeclined):
    """Exception for a loop with so many small rounds that its state should stay Python values."""


class ColumnarLoop:
    """Loop in large ticks.

    nothing: returns the stream of a node without rows.
    apply:   returns a node's answer to its inputs of a round.
    slots:   of the operators that have some.
    in_rows: the generated loop, from a round with the rows of the feedbacks on.
    least:   returns the new rows of a round below which the next one runs in rows.
    most_rounds: limit on the rounds of a tick.
    limit:   on the rows that a tick makes; None for no limit. count: counts rows against it.
    always:  run on frames even if there are many small rounds.
    """

    def __init__(
        self,
        graph: FlowGraph,
        plan: LoopPlan,
        nothing: Callable[[int], ColumnStream],
        apply: Callable[[int, Sequence[ColumnStream]], ColumnStream],
        slots: Sequence[RoundSlots],
        in_rows: Callable[..., tuple[Rows, ...]],
        *,
        least: Callable[[], int],
        most_rounds: int,
        limit: TickBudget | None,
        count: Callable[[int], None],
        always: bool,
    ) -> None:
        self._graph = graph
        self._plan = plan
        self._nothing = nothing
        self._apply = apply
        self._slots = slots
        self._in_rows = in_rows
        self._least = least
        self._limit = limit
        self._count = count
        self._always = always
        self._most_rounds = most_rounds - SHOWN_ROUNDS
        self._left: dict[int, list[pl.DataFrame]] | None = None

    def answer(self, entering: Mapping[int, ColumnStream]) -> dict[int, ColumnStream]:
        """Return the rows that leave the loop, by node. Raises one of `DECLINES`."""
        plan = self._plan
        left: dict[int, list[pl.DataFrame]] = {n: [] for n in plan.leaving}
        self._left = left
        try:
            for slots in self._slots:
                slots.begin_rounds()
            rounds, news = self._rounds(0, entering, dict.fromkeys(plan.closing, None), left)
            if any(map(len, news.values())):
                self._go_on_in_rows(rounds, news, left)
        finally:
            self._left = None
        return {n: self._stream(n, frames) for n, frames in left.items()}

    def go_on(self, rounds: int, *news: Rows) -> WentOn | None:
        """Run the next rounds of a row-wise loop on frames until they are small; None if it must stay so.

        Then nothing has changed.
        """
        if self._limit is not None or not all(slots.are_arranged for slots in self._slots):
            return None
        plan, nodes = self._plan, self._graph.nodes
        left: dict[int, list[pl.DataFrame]] = {n: [] for n in plan.leaving}
        try:
            for slots in self._slots:
                slots.arrange()
                slots.begin_rounds()
            given = {
                n: rows_to_columns(nodes[n].schema, True, rows).frame
                for n, rows in zip(plan.closing, news, strict=True)
            }
            rounds, found = self._rounds(rounds, {}, given, left)
            following = tuple(self._rows(n, [found[n]]) for n in plan.closing)
            leaving = tuple(self._rows(n, left[n]) for n in plan.leaving) if self._left is None else None
        except DECLINES:
            for slots in self._slots:
                slots.forget()
            return None
        if leaving is not None:
            for slots in self._slots:
                slots.add()
            return rounds, following, leaving
        # A large tick takes frames, and may still be declined.
        for slots in self._slots:
            slots.keep_rounds()
        assert self._left is not None
        for n, frames in left.items():
            self._left[n] += frames
        nothing: Rows = []
        return rounds, following, (nothing,) * len(plan.leaving)

    def _rounds(
        self,
        rounds: int,
        entering: Mapping[int, ColumnStream],
        news: Mapping[int, pl.DataFrame | None],
        left: dict[int, list[pl.DataFrame]],
    ) -> tuple[int, dict[int, pl.DataFrame]]:
        """Run rounds until one has few input rows; return the next round's number and its input.

        news: rows of the feedbacks; None without any. left: takes the rows that leave.
        """
        plan, nodes = self._plan, self._graph.nodes
        is_new = not self._always and any(slots.are_new for slots in self._slots)
        met, missing = sum(stream.most for stream in entering.values()), 0
        while True:
            streams = {n: self._stream(n, [] if rows is None else [rows]) for n, rows in news.items()}
            streams |= {n: entering.get(n) or self._nothing(n) for n in plan.entering}
            for n in plan.nodes:
                if n not in news:
                    streams[n] = self._apply(n, [streams[source] for source in nodes[n].inputs])
            made = {n: self._closed(n, streams[nodes[n].inputs[0]]) for n in plan.closing}
            for n in plan.leaving:
                if streams[n].most:
                    left[n].append(streams[n].collected())
            for slots in self._slots:
                slots.end_round()
            rounds += 1
            count = sum(map(len, made.values()))
            if count and rounds > self._most_rounds:
                # Rows tell how the loop grew in its last rounds.
                raise ColumnarDeclined
            met += count
            missing += max(0, ROUND - count)
            if is_new and count and missing * PATIENCE > met:
                raise NarrowLoop
            if not count or (count < self._least() and not is_new):
                return rounds, made
            news, entering = made, {}

    def _closed(self, node: int, stream: ColumnStream) -> pl.DataFrame:
        """Return the rows that a feedback passes to the next round."""
        return self._apply(node, [stream]).collected()

    def _stream(self, node: int, frames: Sequence[pl.DataFrame]) -> ColumnStream:
        there = [frame for frame in frames if frame.height]
        if not there:
            return self._nothing(node)
        return build_stream(Columns(self._graph.nodes[node].schema, True, concat_frames(there)))

    def _rows(self, node: int, frames: Sequence[pl.DataFrame]) -> Rows:
        there = [frame for frame in frames if frame.height]
        return Columns(self._graph.nodes[node].schema, True, concat_frames(there)).rows() if there else []

    def _go_on_in_rows(
        self, rounds: int, news: Mapping[int, pl.DataFrame], left: dict[int, list[pl.DataFrame]]
    ) -> None:
        """Run the remaining rounds row by row. Raises `ColumnarDeclined` if that fails."""
        nodes, before = self._graph.nodes, 0 if self._limit is None else self._limit.made
        for slots in self._slots:
            slots.keep_rounds()
        try:
            found = self._in_rows(rounds, *(self._rows(n, [news[n]]) for n in self._plan.closing))
        except Exception as error:
            # From the start in rows, it fails as ever.
            raise ColumnarDeclined from error
        finally:
            made = 0
            if self._limit is not None:
                made, self._limit.made = self._limit.made - before, before
        self._count(made + sum(map(len, found)))
        for n, rows in zip(self._plan.leaving, found, strict=True):
            left[n].append(rows_to_columns(nodes[n].schema, True, rows).frame)
