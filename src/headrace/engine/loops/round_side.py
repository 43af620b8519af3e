"""Join state for a loop-variant side: the rounds in which each row is present.

One of three, the cheapest that does:
    key -> {row: {round: weight}};
    key -> {row: round}, where a row is there once, from some round on;
    nothing, where the key is the row, and the set that the rows come from knows.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import singledispatch
from typing import TYPE_CHECKING

from headrace.engine.loops.outside_side import JoinSide
from headrace.engine.loops.round_runtime import RANK
from headrace.expr.tree import Column
from headrace.lowering.row_code import Row, tuple_source
from headrace.lowering.step import repeatable_weight
from headrace.operators.difference import Difference
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import Feedback
from headrace.operators.filter import Filter
from headrace.operators.join import How, Join
from headrace.operators.select import Select

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from headrace.expr.tree import Expr
    from headrace.graph.node import FlowGraph, Node, Operator
    from headrace.lowering.slot import Slot
    from headrace.lowering.step_writer import StepWriter


class RoundSide(JoinSide):
    """A loop-variant side: key -> {row: {round: weight}}."""

    def add(self, key: str, row: Row) -> None:
        """Write code that adds a row's weight at the writer's current `at`."""
        code, writer, at = self.code, self.writer, self.writer.at
        row = self.writer.as_whole(row)
        own, history, n = writer.fresh("own"), writer.fresh("history"), writer.fresh("n")
        weight = repeatable_weight(writer, row)
        code.line(f"{own} = {self._get}({key})")
        with code.block(f"if {own} is None:"):
            code.line(f"{self._slot}[{key}] = {{{row.whole}: {{{at}: {weight}}}}}")
        with code.block("else:"):
            code.line(f"{history} = {own}.get({row.whole})")
            with code.block(f"if {history} is None:"):
                code.line(f"{own}[{row.whole}] = {{{at}: {weight}}}")
            with code.block("else:"):
                code.line(f"{n} = {history}.get({at}, 0) + {weight}")
                with code.block(f"if {n}:"):
                    code.line(f"{history}[{at}] = {n}")
                with code.block("else:"):
                    code.line(f"del {history}[{at}]")
                    with code.block(f"if not {history}:"):
                        self._mapping.delete(key, own, row.source)

    @contextmanager
    def each_row(self, key: str) -> Generator[tuple[Row, str]]:
        """Open a block that runs for each row of a key, with the source of its stored rounds."""
        code, writer = self.code, self.writer
        found, row, known = writer.fresh("found"), writer.fresh("row"), writer.fresh("known")
        code.line(f"{found} = {self._get}({key})")
        with (
            code.block(f"if {found} is not None:"),
            code.block(f"for {row}, {known} in {found}.items():"),
        ):
            yield Row(writer.unpack(self.schema, row), row), known

    @contextmanager
    def each_round(self, row: Row, known: str) -> Generator[Row]:
        """Open a block that runs at each round in which the row's weight changes."""
        code, writer = self.code, self.writer
        at, n = writer.fresh("at"), writer.fresh("n")
        with code.block(f"for {at}, {n} in {known}.items():"), writer.at_round(at):
            yield Row(row.columns, row.whole, n)

    @contextmanager
    def each(self, key: str) -> Generator[Row]:
        """Open a block that runs for each row of a key, at each round in which it changes."""
        with self.each_row(key) as (row, known), self.each_round(row, known) as found:
            yield found


class FirstRoundSide(RoundSide):
    """Loop-variant side whose rows are a set that grows with the rounds: key -> {row: first round}.

    In a tick a row goes at its old round before or after it comes at its new one, so
    what is remembered is right once both came. So only changes of the first kind of
    round, those from outside, may meet it, which come before.
    """

    def add(self, key: str, row: Row) -> None:
        code, writer, at = self.code, self.writer, self.writer.at
        row = self.writer.as_whole(row)
        own, weight = writer.fresh("own"), repeatable_weight(writer, row)
        code.line(f"{own} = {self._get}({key})")
        with code.block(f"if {weight} > 0:"):
            with code.block(f"if {own} is None:"):
                code.line(f"{self._slot}[{key}] = {{{row.whole}: {at}}}")
            with code.block("else:"):
                code.line(f"{own}[{row.whole}] = {at}")
        with code.block(f"elif {own} is not None and {own}.get({row.whole}) == {at}:"):
            self._mapping.delete(key, own, row.source)

    @contextmanager
    def each_round(self, row: Row, known: str) -> Generator[Row]:
        with self.writer.at_round(known):
            yield row


class StoredHistorySide(RoundSide):
    """Loop-variant side keyed by the whole row, which reads the history that its input already stores."""

    def __init__(self, node: Node, port: int, writer: StepWriter, keys: Sequence[Expr]) -> None:
        super().__init__(node, port, writer, "")
        self._history = writer.slot_get(node.inputs[port], "history")
        self._order = [[k.name for k in keys if isinstance(k, Column)].index(n) for n in self.schema.names]

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def add(self, key: str, row: Row) -> None:
        pass

    @contextmanager
    def each_row(self, key: str) -> Generator[tuple[Row, str]]:
        code, writer = self.code, self.writer
        row, own, known = key, writer.fresh("own"), writer.fresh("known")
        columns = (key,) if len(self._order) == 1 else tuple(f"{key}[{i}]" for i in self._order)
        if self._order != list(range(len(self._order))):
            row = writer.fresh("row")
            code.line(f"{row} = {tuple_source(columns)}")
        code.line(f"{own} = {self._history}({row})")
        with code.block(f"if {own} is not None:"):
            code.line(f"{known} = {own}.get({RANK})")
            with code.block(f"if {known} is not None:"):
                yield Row(columns, None if len(columns) == 1 else row), known

    @contextmanager
    def each_round(self, row: Row, known: str) -> Generator[Row]:
        with self.writer.at_round(known):
            yield row


def round_side(node: Node, port: int, writer: StepWriter, what: str, keys: Sequence[Expr]) -> RoundSide:
    """Choose the cheapest state for a loop-variant side opposite a loop-invariant one.

    keys: the expressions of the side's key; none are given where it is the whole row in another form.
    """
    source = writer.graph.nodes[node.inputs[port]]
    names = [key.name for key in keys if isinstance(key, Column)]
    is_row = len(names) == len(keys) and sorted(names) == sorted(source.schema.names)
    if is_row and isinstance(source.operator, Feedback | Distinct):
        return StoredHistorySide(node, port, writer, keys)
    if is_set(source.operator, source, writer.graph, writer):
        return FirstRoundSide(node, port, writer, what)
    return RoundSide(node, port, writer, what)


@singledispatch
def is_set(operator: Operator, node: Node, graph: FlowGraph, writer: StepWriter) -> bool:
    """Return whether a loop node's rows are a set that only grows from round to round."""
    return False


@is_set.register(Feedback)
@is_set.register(Distinct)
def _(operator: Operator, node: Node, graph: FlowGraph, writer: StepWriter) -> bool:
    return True


@is_set.register(Filter)
def _(operator: Filter, node: Node, graph: FlowGraph, writer: StepWriter) -> bool:
    return _of_input(node, graph, writer)


@is_set.register(Select)
def _(operator: Select, node: Node, graph: FlowGraph, writer: StepWriter) -> bool:
    kept = {expr.name for _, expr in operator.columns if isinstance(expr, Column)}
    return kept >= set(writer.input_schema(node, 0).names) and _of_input(node, graph, writer)


@is_set.register(Difference)
def _(operator: Difference, node: Node, graph: FlowGraph, writer: StepWriter) -> bool:
    return _of_input(node, graph, writer)


@is_set.register(Join)
def _(operator: Join, node: Node, graph: FlowGraph, writer: StepWriter) -> bool:
    if operator.how in (How.SEMI, How.ANTI) and writer.loops_apart(node.inputs[1], node.id):
        return _of_input(node, graph, writer)
    return False


def _of_input(node: Node, graph: FlowGraph, writer: StepWriter) -> bool:
    source = graph.nodes[node.inputs[0]]
    return not writer.loops_apart(source.id, node.id) and is_set(source.operator, source, graph, writer)
