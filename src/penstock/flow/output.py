"""Base of streams and signals: the output of one operator, and the flow that it adds operators to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.errors import SourceLocation
    from penstock.expr.types import Schema
    from penstock.graph.node import Node, Operator

AnyStream: TypeAlias = Any
"""A `Stream` whose type parameters are declared by the method that adds its operator."""


class FlowBuilder(Protocol):
    """The flow under construction, as streams and signals use it (`penstock.flow.flow.Flow`)."""

    name: str
    times: list[Any]
    """Cache of `penstock.flow.event_time.times_of`, per node."""

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


class Output:
    """The output of one operator of one flow."""

    __slots__ = ("_flow", "_id", "_schema")

    def __init__(self, flow: FlowBuilder, node: int, schema: Schema) -> None:
        self._flow = flow
        self._id = node
        self._schema = schema

    @property
    def flow(self) -> FlowBuilder:
        """The flow that it is part of."""
        return self._flow

    @property
    def node_id(self) -> int:
        """Id of the node whose output it is."""
        return self._id

    @property
    def schema(self) -> Schema:
        """Columns and types of the rows; for a signal, the type of its values."""
        return self._schema

    def output_of(self, node: int) -> Output:
        """The output of another node of the same flow."""
        return Output(self._flow, node, self._flow.node(node).schema)
