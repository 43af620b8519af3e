"""Rows by round: state of the steps in loops with retractions, within a tick and across ticks.

A history is `{round: weight}`. A set that grows from round to round is kept by the first round of each row,
its rank; other rows that wait for a later round are summed by it.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from headrace.lowering.generated_source import register_runtime
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot
from headrace.lowering.step import LoopStep, repeatable_weight

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


# --- runtime library ------------------------------------------------------------------------------


RANK = -1
"""Key in a history for the first round with a positive weight; absent if there is none."""

History = dict[int, int]
Pending = dict[int, dict[Any, None]]
Sums = dict[int, dict[Any, int]]


def next_round_after(history: History, after: int) -> int:
    """Return the first round of a history after `after` (0 or more); 0 if there is none."""
    found = 0
    for at in history:
        if at > after and (at < found or not found):
            found = at
    return found


def schedule(pending: Pending, times: list[int], at: int, row: Any) -> None:
    """Schedule `row` for a future round `at`."""
    rows = pending.get(at)
    if rows is None:
        pending[at] = {row: None}
        heappush(times, at)
    else:
        rows[row] = None


_MANY = 50


def count_entries(came: list[Any], went: list[Any]) -> dict[Any, int]:
    """Count insertions minus deletions per entry."""
    found: dict[Any, int] = Counter(came) if len(came) > _MANY else {}
    if not found:
        for entry in came:
            found[entry] = found.get(entry, 0) + 1
    for entry in went:
        found[entry] = found.get(entry, 0) - 1
    return found


def sum_by_round(pending: Sums, times: list[int], now: int, at: int, row: Any, weight: int) -> None:
    """Add `weight` copies of a row to round `at`, which must not be over yet."""
    rows = pending.get(at)
    if rows is None:
        pending[at] = {row: weight}
        if at > now:
            heappush(times, at)
    else:
        rows[row] = rows.get(row, 0) + weight


register_runtime(
    {
        "x_counted": count_entries,
        "x_heappop": heappop,
        "x_heappush": heappush,
        "x_later": next_round_after,
        "x_no_rows": {},
        "x_schedule": schedule,
        "x_sum_by_round": sum_by_round,
    }
)


# --- sets that grow from round to round: the rank of each entry ------------------------------------

# Per row a history of what came, with its rank: the first round with a weight above 0.
# (Below 0 is at most what entered before the first round, retracted before it came, which
# counts as absent; a later round only adds.) With the input of a tick fixed, a set of a
# loop only grows from round to round, so a rank says all of what a row gives to later
# rounds, and the change of a tick is at most -1 at the old rank and +1 at the new one. A
# row is looked at, in the order of rounds, in each round up to its rank in which weights
# changed, at its old rank once it has a lower one, and in the rounds of its history that
# follow one in which it was lost.


class FirstRoundsWriter:
    """Writer of code that maintains a set by the ranks of its entries.

    what:  name of the slot, entry -> history with rank.
    shift: how many rounds later than it comes an entry is there: 1 in a feedback, else 0.
    gathers: entries that come or go once, in the present round, may be put into the lists
           `came` and `went`: they are added when all of them are there, which is cheaper.
    """

    def __init__(self, node: int, writer: StepWriter, what: str, shift: int) -> None:
        self._node = node
        self._writer = writer
        self._code = writer.code
        self._what = what
        self._shift = shift
        self._slot, self._get = writer.slot(node, what), writer.slot_get(node, what)
        self.before = writer.node_variable("before", node)
        self._pending = writer.node_variable("pending", node)
        self._soon = writer.node_variable("soon", node)
        self.came, self.went = writer.node_variable("came", node), writer.node_variable("went", node)
        self.gathers = False

    def slot(self) -> Slot:
        return Slot(f"{self._node}.{self._what}")

    @property
    def _times(self) -> str:
        return self._writer.round_heap(self._node)

    def _due(self) -> str:
        """Return the variable with the round that this round's entries are scheduled for."""
        return self._writer.next_round(self._node) if self._shift else self._writer.round_variable(self._node)

    def begin_loop(self) -> None:
        self._code.line(f"{self.before} = {{}}")
        self._code.line(f"{self._soon} = {{}}")
        self._code.line(f"{self._pending} = {{{self._due()}: {self._soon}}}")
        if self.gathers:
            self._code.line(f"{self.came} = []")
            self._code.line(f"{self.went} = []")

    def begin_round(self) -> None:
        self._code.line(f"{self._soon} = {self._pending}.get({self._due()})")
        with self._code.block(f"if {self._soon} is None:"):
            self._code.line(f"{self._soon} = {self._pending}[{self._due()}] = {{}}")

    def end_round(self) -> None:
        """Write the code to run after each round, which makes entries due if there is a shift."""
        if not self._shift:
            return
        self._add_gathered()
        with self._code.block(f"if {self._soon}:"):
            self._code.line(f"x_heappush({self._times}, {self._due()})")
        with self._code.block("else:"):
            self._code.line(f"del {self._pending}[{self._due()}]")

    def _add_gathered(self) -> None:
        """Write code that adds the entries gathered in this round, each once."""
        if not self.gathers:
            return
        code, writer = self._code, self._writer
        entry, weight = writer.fresh("row"), writer.fresh("weight")
        with code.block(f"if {self.came} or {self.went}:"):
            counts = f"x_counted({self.came}, {self.went})"
            with (
                code.block(f"for {entry}, {weight} in {counts}.items():"),
                code.block(f"if {weight}:"),
            ):
                self.add(entry, weight)
            code.line(f"{self.came}.clear()")
            code.line(f"{self.went}.clear()")

    def add(self, entry: str, weight: str) -> None:
        """Write code that adds `weight` to the history of `entry` at the writer's current `at`."""
        code, writer = self._code, self._writer
        own, n, rank = writer.fresh("own"), writer.fresh("n"), writer.fresh("rank")
        due = self._due()
        touch = f"{self._soon}[{entry}] = None"
        if writer.at != writer.round_variable(self._node):
            due = writer.at
            if self._shift:
                due = writer.fresh("due")
                code.line(f"{due} = {writer.at} + {self._shift}")
            touch = f"x_schedule({self._pending}, {self._times}, {due}, {entry})"
        code.line(f"{own} = {self._get}({entry})")
        with code.block(f"if {own} is None:"):
            code.line(f"{self._slot}[{entry}] = {{{due}: {weight}}}")
            code.line(touch)
        with code.block("else:"):
            code.line(f"{n} = {own}.get({due}, 0) + {weight}")
            with code.block(f"if {n}:"):
                code.line(f"{own}[{due}] = {n}")
            with code.block("else:"):
                code.line(f"del {own}[{due}]")
            code.line(f"{rank} = {own}.get({RANK})")
            # Who is there before stays there; what it would lose is looked at in that round.
            with code.block(f"if {rank} is None or {rank} >= {due}:"):
                code.line(touch)

    def write_round(self, emit: Callable[[str, str], None]) -> None:
        """Write the code for this round's entries. `emit(entry, weight)` writes what follows."""
        code, writer = self._code, self._writer
        if not self._shift:
            self._add_gathered()
        round_ = writer.round_variable(self._node)
        entry, own, rank, weight = (writer.fresh(n) for n in ("row", "own", "rank", "weight"))
        present = f"{own}.get({round_}, 0) > 0"
        with code.block(f"for {entry} in {self._pending}.pop({round_}, ()):"):
            code.line(f"{own} = {self._get}({entry})")
            with code.block(f"if {own} is None:"):
                code.line("continue")
            code.line(f"{rank} = {own}.get({RANK})")
            with code.block(f"if {rank} is None:"):
                with code.block(f"if {present}:"):
                    code.line(f"{own}[{RANK}] = {round_}")
                    with code.block(f"if {entry} not in {self.before}:"):
                        code.line(f"{self.before}[{entry}] = None")
                    code.line(f"{weight} = 1")
                with code.block("else:"):
                    self._look_later(entry, own, round_)
                    code.line("continue")
            with code.block(f"elif {rank} < {round_}:"):
                with code.block(f"if {self.before}.get({entry}) != {round_}:"):
                    code.line("continue")
                code.line(f"{weight} = -1")
            with code.block(f"elif {present}:"):
                with code.block(f"if {rank} == {round_}:"):
                    code.line("continue")
                code.line(f"{self.before}[{entry}] = {rank}")
                code.line(f"{own}[{RANK}] = {round_}")
                code.line(f"x_schedule({self._pending}, {self._times}, {rank}, {entry})")
                code.line(f"{weight} = 1")
            with code.block(f"elif {rank} == {round_}:"):
                code.line(f"{self.before}[{entry}] = {rank}")
                code.line(f"del {own}[{RANK}]")
                self._look_later(entry, own, round_)
                code.line(f"{weight} = -1")
            with code.block("else:"):
                code.line("continue")
            emit(entry, weight)

    def _look_later(self, entry: str, own: str, round_: str) -> None:
        """Write code that schedules an absent entry for the next round of its history."""
        code, later = self._code, self._writer.fresh("later")
        code.line(f"{later} = x_later({own}, {round_})")
        with code.block(f"if {later}:"):
            code.line(f"x_schedule({self._pending}, {self._times}, {later}, {entry})")
        with code.block(f"elif not {own}:"):
            code.line(f"del {self._slot}[{entry}]")

    def write_changes(self, out: str, row: str) -> None:
        """Write code that lists the entries inserted and deleted in this tick.

        row: pattern of an entry's row with a weight.
        """
        code, writer = self._code, self._writer
        entry, old, own, present = (writer.fresh(n) for n in ("row", "old", "own", "present"))
        with code.block(f"for {entry}, {old} in {self.before}.items():"):
            code.line(f"{own} = {self._get}({entry})")
            code.line(f"{present} = {own} is not None and {RANK} in {own}")
            with code.block(f"if {present} and {old} is None:"):
                code.line(f"{out}.append({row.format(entry, 1)})")
            with code.block(f"elif {old} is not None and not {present}:"):
                code.line(f"{out}.append({row.format(entry, -1)})")


class SetLoopStep(LoopStep):
    """Set-valued feedback or distinct.

    Slot `history`: row, or its only column -> rank and weights by round.
    """

    makes_set = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer, varies)
        self.ranks = FirstRoundsWriter(node.id, writer, "history", shift=int(self.is_feedback))

    def slots(self) -> tuple[Slot, ...]:
        return (self.ranks.slot(),)

    def begin_loop(self) -> None:
        self.ranks.begin_loop()

    def begin_round(self) -> None:
        self.ranks.begin_round()

    def end_round(self) -> None:
        self.ranks.end_round()

    def consume(self, port: int, row: RowCode) -> None:
        entry = self.writer.entry(self.node.schema, row.columns)
        if not entry.isidentifier():
            key = self.writer.fresh("row")
            self.code.line(f"{key} = {entry}")
            entry = key
        self.ranks.add(entry, repeatable_weight(self.writer, row))

    def write_round(self) -> None:
        def emit(entry: str, weight: str) -> None:
            if len(self.node.schema.fields) == 1:
                self.emit(RowCode((entry,), None, weight))
            else:
                self.emit(RowCode(self.writer.unpack(self.node.schema, entry), entry, weight))

        self.ranks.write_round(emit)

    def write_changes(self, out: str) -> None:
        single = len(self.node.schema.fields) == 1
        self.ranks.write_changes(out, "({}, {})" if single else "{} + ({},)")


# --- sums of rows by round ------------------------------------------------------------------------


class RoundSumsWriter:
    """Writer of code that sums rows per round.

    shift: number of rounds by which a row is delayed.
    """

    def __init__(self, node: int, writer: StepWriter, what: str, schema: Schema, shift: int = 0) -> None:
        self._node = node
        self._writer = writer
        self._schema = schema
        self._shift = shift
        self._pending = writer.node_variable(what, node)

    def begin_loop(self) -> None:
        self._writer.code.line(f"{self._pending} = {{}}")

    def add(self, row: RowCode) -> None:
        """Write code that adds a row's weight at the writer's current `at`."""
        writer = self._writer
        at = f"{writer.at} + {self._shift}" if self._shift else writer.at
        now, times = writer.round_variable(self._node), writer.round_heap(self._node)
        sums = f"{self._pending}, {times}, {now}, {at}, {row.source}, {row.copies}"
        writer.code.line(f"x_sum_by_round({sums})")

    def write_round(self, emit: Callable[[RowCode], None]) -> None:
        """Write the code for the rows of this round."""
        writer, code = self._writer, self._writer.code
        row, weight = writer.fresh("row"), writer.fresh("weight")
        rows = f"{self._pending}.pop({writer.round_variable(self._node)}, x_no_rows)"
        with code.block(f"for {row}, {weight} in {rows}.items():"), code.block(f"if {weight}:"):
            emit(RowCode(writer.unpack(self._schema, row), row, weight))
