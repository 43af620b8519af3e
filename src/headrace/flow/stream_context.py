"""Check context over the streams of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.flow.state_expiry import expiring_distinct, expiring_join, timed_columns
from headrace.flow.thresholds import threshold
from headrace.flow.timed_columns import reaching_sources, watermark_of
from headrace.graph.check_context import CheckContext
from headrace.operators.distinct import Distinct
from headrace.operators.join.join import Join

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.errors import SourceLocation
    from headrace.expr.tree import Expr
    from headrace.expr.types import DataType, Schema
    from headrace.flow.stream import Stream
    from headrace.graph.node import Operator


class FlowContext(CheckContext):
    """Check context over streams of a flow. Subclasses add `refused` and `check_name`."""

    def __init__(
        self, streams: Sequence[Stream[Any, Any, Any, Any]], output: Schema, location: SourceLocation
    ) -> None:
        super().__init__([stream.schema for stream in streams], output, location)
        self.streams = tuple(streams)

    def upstream(self, port: int) -> Operator:
        stream = self.streams[port]
        return stream.flow.node(stream.node_id).operator

    def sources_reaching(self, port: int) -> tuple[str, ...]:
        stream = self.streams[port]
        return reaching_sources(stream.flow, stream.node_id)

    def timed_columns(self, port: int) -> Mapping[str, DataType]:
        return timed_columns(self.streams[port])

    def require_watermark(self, port: int, time: Expr, rows: int) -> None:
        stream = self.streams[rows]
        before = len(stream.flow.nodes)
        watermark = watermark_of(stream, time, "it", self.location)
        same = watermark.node_id == self.streams[port].node_id
        # One that was made just now is not the one that the port reads.
        self.require(
            same and len(stream.flow.nodes) == before, f"input {port} is not the watermark of {time}"
        )

    def with_state_expiry(self, operator: object) -> object:
        if isinstance(operator, Distinct):
            return expiring_distinct(self.streams[0], operator)
        assert isinstance(operator, Join)
        return expiring_join(self.streams[0], self.streams[1], operator)

    def threshold(self, value: object, column: str) -> tuple[object, Schema]:
        return threshold(self.streams[0], value, column, self.location)
