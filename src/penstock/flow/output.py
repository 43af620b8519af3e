"""What an operator gives, as those hold it who build a flow: streams and signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.flow.flow import Flow


class Output:
    """The output of one operator of one flow."""

    __slots__ = ("_flow", "_id", "_schema")

    def __init__(self, flow: Flow, node: int, schema: Schema) -> None:
        self._flow = flow
        self._id = node
        self._schema = schema

    @property
    def flow(self) -> Flow:
        """The flow that it is part of."""
        return self._flow

    @property
    def node_id(self) -> int:
        """Id of the node whose output it is."""
        return self._id

    @property
    def schema(self) -> Schema:
        """Columns and types of the rows; of a signal, the type of its values."""
        return self._schema
