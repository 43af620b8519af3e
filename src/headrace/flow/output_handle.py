"""Base class of streams and signals: the output of one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from headrace.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.errors import SourceLocation
    from headrace.expr.types import Schema
    from headrace.graph.node import Node, Operator

AnyStream: TypeAlias = Any
"""`Stream` whose type parameters are declared by the method that adds its operator."""


class FlowBuilder(Protocol):
    """Interface of a flow under construction for streams and signals (`headrace.flow.flow.Flow`)."""

    name: str
    times: list[Any]
    """Cache of `headrace.flow.timed_columns.times_of`, per node."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...

    def node(self, node_id: int) -> Node: ...

    def add(
        self,
        operator: Operator,
        schema: Schema,
        inputs: Sequence[Output],
        name: str | None,
        location: SourceLocation,
    ) -> AnyStream: ...

    def sink(self, name: str, stream: Any) -> None: ...


class Output(Shown):
    """Output of one operator of one flow."""

    __slots__ = ("_flow", "_id", "_schema")

    def __init__(self, flow: FlowBuilder, node: int, schema: Schema) -> None:
        self._flow = flow
        self._id = node
        self._schema = schema

    @property
    def flow(self) -> FlowBuilder:
        """Flow that contains the output."""
        return self._flow

    @property
    def node_id(self) -> int:
        """Id of the node that produces the output."""
        return self._id

    @property
    def schema(self) -> Schema:
        """Columns and types of the rows, or the type of a signal's values."""
        return self._schema

    def output_of(self, node: int) -> Output:
        """Return the output of another node of the same flow."""
        return Output(self._flow, node, self._flow.node(node).schema)
