"""Sets that grow from round to round, maintained across ticks: the first round of each entry.

Per row a history `{round: weight}` of what came, and its rank: the first round with a
weight above 0. (Below 0 is at most what entered before the first round, retracted before
it came, which counts as absent; a later round only adds.) With the input of a tick
fixed, a set of a loop only grows from round to round, so a rank says all of what a row
gives to later rounds, and the change of a tick is at most -1 at the old rank and +1 at
the new one. A row is looked at, in the order of rounds, in each round up to its rank in
which weights changed, at its old rank once it has a lower one, and in the rounds of its
history that follow one in which it was lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.engine.loops.round_runtime import RANK
from headrace.lowering.slot import Slot

if TYPE_CHECKING:
    from headrace.lowering.step_writer import StepWriter


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

    def turn(self, emit: Callable[[str, str], None]) -> None:
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
