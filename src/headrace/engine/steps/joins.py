"""Code generation shared by all joins: keys, pairs, the residual condition, and the order of the sides."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.lowering.row_code import ChangeSelection
from headrace.lowering.step import Step
from headrace.operators.lifetime import Lifetime
from headrace.operators.retractions_first import must_take_back_first, pair_schema

if TYPE_CHECKING:
    from collections.abc import Generator

    from headrace.graph.node import Node
    from headrace.lowering.row_code import Row
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.join import Join

SIDES = ("left", "right")


class JoinConditionWriter:
    """Writer of code that depends on the join's condition."""

    def __init__(self, node: Node, writer: StepWriter, operator: Join) -> None:
        self.node = node
        self.writer = writer
        self.operator = operator
        self.keys = (operator.left_keys, operator.right_keys)
        self.schemas = tuple(writer.input_schema(node, port) for port in (0, 1))
        self._pair = pair_schema(writer.graph, node, operator)

    @contextmanager
    def key_of(self, port: int, row: Row) -> Generator[str]:
        """Open a block that runs if no part of the row's key is null, with the key's variable."""
        exprs = self.keys[port]
        key = self.writer.fresh("key")
        nullable = self.writer.assign_key(key, exprs, self.schemas[port], row.columns)
        if not nullable:
            yield key
            return
        parts = [key] if len(exprs) == 1 else [f"{key}[{i}]" for i in nullable]
        with self.writer.code.block(f"if {' and '.join(f'{p} is not None' for p in parts)}:"):
            yield key

    def null_left_key(self, row: Row) -> str | None:
        """Return a test for a null part in a left row's key; None if none can be null."""
        return self.writer.null_key_test(self.operator.left_keys, self.node, 0, row.columns)

    def pair(self, port: int, own: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns of a pair, left ones first; `own` are those of the input `port`."""
        return own + other if port == 0 else other + own

    @contextmanager
    def where_residual(self, pair: tuple[str, ...]) -> Generator[None]:
        """Open a block that runs if the residual condition holds for the pair."""
        if self.operator.residual is None:
            yield
            return
        condition = self.writer.predicate(self.operator.residual, self._pair, pair)
        with self.writer.code.block(f"if {condition}:"):
            yield

    def output(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """Return the output columns of a pair: all of the left, the kept ones of the right."""
        width = len(self.schemas[0].fields)
        return pair[:width] + tuple(pair[width + i] for i in self.operator.kept_right)

    def unmatched(self, row: Row) -> Row:
        """Return the output columns of an unmatched left row, with nulls for the right columns."""
        nulls = ("None",) * len(self.operator.kept_right)
        return replace(row, columns=row.columns + nulls, whole=None)


class RightFirstStep(Step):
    """Step that depends on absence, so it applies the right side first and the left side last.

    If later operators could notice a left row that is retracted in this tick, such rows are retracted first
    of all (see `headrace.operators.retractions_first`). Subclasses define what is done to each side.
    """

    takes_rows = False
    keeps_state = True
    merges = True
    heavy = True

    def __init__(self, node: Node, writer: StepWriter, lifetimes: tuple[Lifetime, Lifetime]) -> None:
        super().__init__(node, writer)
        self.of_a_tick = tuple(lifetime is Lifetime.TICK for lifetime in lifetimes)
        # A right row may come after a left row that it says something about: in a later tick or round.
        self.stores_left = lifetimes[0] is Lifetime.STATIC or writer.is_in_loop(node.id)

    def finish(self) -> None:
        before = self.writer.fresh("before")
        self.code.line(f"{before} = {{}}")
        split = must_take_back_first(self.writer, self.node)
        if split:
            self.writer.consolidate_inputs(self.node)
            if not self.writer.is_append(self.node.inputs[0]):
                self.write_left_changes(ChangeSelection.GOES)
        self.write_right_changes(before)
        if self.stores_left:
            self.emit_crossings(before)
        self.write_left_changes(ChangeSelection.COMES if split else ChangeSelection.ALL)

    def write_right_changes(self, before: str) -> None:
        """Write the right side's changes.

        The dict `before` receives the earlier state of each touched key or row.
        """
        raise NotImplementedError

    def emit_crossings(self, before: str) -> None:
        """Write the output for earlier left rows whose match has changed."""
        raise NotImplementedError

    def write_left_changes(self, only: ChangeSelection) -> None:
        """Write the left side's changes against the current right side."""
        raise NotImplementedError
