"""What all joins share: keys, the residual condition, and the columns of a pair."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.engine.retraction_order import pair_schema

if TYPE_CHECKING:
    from collections.abc import Generator

    from penstock.engine.row_codegen import Row
    from penstock.engine.step_writer import StepWriter
    from penstock.flow.operators.join import Join
    from penstock.graph.node import Node


class JoinedRows:
    """Writes the pieces of code that depend on the join's condition."""

    def __init__(self, node: Node, writer: StepWriter, operator: Join) -> None:
        self.node = node
        self.writer = writer
        self.operator = operator
        self.schemas = tuple(writer.input_schema(node, port) for port in (0, 1))
        self._pair = pair_schema(writer.graph, node, operator)

    @contextmanager
    def key_of(self, port: int, row: Row) -> Generator[str]:
        """The variable that holds the row's key; what is written inside runs where no part is null."""
        exprs = self.operator.left_keys if port == 0 else self.operator.right_keys
        key = self.writer.fresh("key")
        nullable = self.writer.assign_key(key, exprs, self.schemas[port], row.columns)
        if not nullable:
            yield key
            return
        parts = [key] if len(exprs) == 1 else [f"{key}[{i}]" for i in nullable]
        with self.writer.code.block(f"if {' and '.join(f'{p} is not None' for p in parts)}:"):
            yield key

    @contextmanager
    def where_residual(self, pair: tuple[str, ...]) -> Generator[None]:
        """What is written inside runs where the residual condition is true of the pair."""
        if self.operator.residual is None:
            yield
            return
        condition = self.writer.predicate(self.operator.residual, self._pair, pair)
        with self.writer.code.block(f"if {condition}:"):
            yield

    def output(self, pair: tuple[str, ...]) -> tuple[str, ...]:
        """The output columns of a pair: all of the left, the kept ones of the right."""
        width = len(self.schemas[0].fields)
        return pair[:width] + tuple(pair[width + i] for i in self.operator.kept_right)
