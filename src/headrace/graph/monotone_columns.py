"""Monotone columns: columns whose value per key only rises.

This differs from a stream being append-only (`Facts.append`): a table of counts retracts each old count, and
yet no count ever decreases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.lattice import Lattice


@dataclass(frozen=True, slots=True)
class MonotoneColumns:
    """Monotone columns of a stream, and the key that identifies each value.

    keys:    columns that identify a value: at any time, each key has at most one row, and a retracted row is
             followed by a greater one.
    columns: the monotone columns, each in the order of a lattice.
    """

    keys: tuple[str, ...]
    columns: Mapping[str, Lattice]


class _Operator(Protocol):
    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None: ...


class _Node(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def operator(self) -> _Operator: ...
    @property
    def inputs(self) -> tuple[int, ...]: ...


Node = TypeVar("Node", bound=_Node)


def find_monotone_columns(nodes: Sequence[_Node], node_id: int) -> MonotoneColumns | None:
    """Return the monotone columns of a node's output, if its `introducing_operator` reads append streams."""
    growth: MonotoneColumns | None = None
    for node in reversed(_upstream(nodes, node_id)):
        growth = node.operator.growth([growth] * len(node.inputs))
    return growth


def introducing_operator(nodes: Sequence[Node], node_id: int) -> Node:
    """Return the operator that introduces the monotone columns in the output of node `node_id`.

    It is the nearest one upstream that does not just pass on monotone columns of its input: an aggregate of a
    table decreases when rows are retracted, even if the table itself has monotone columns.
    """
    chain = _upstream(nodes, node_id)
    return next(
        node
        for node in chain
        if len(node.inputs) != 1
        or node.operator.growth([None]) is not None
        or find_monotone_columns(nodes, node.inputs[0]) is None
        or node is chain[-1]
    )


def _upstream(nodes: Sequence[Node], node_id: int) -> list[Node]:
    """Return a node followed by its chain of single inputs, up to a back edge."""
    chain = [nodes[node_id]]
    while len(chain[-1].inputs) == 1 and chain[-1].inputs[0] < chain[-1].id:
        chain.append(nodes[chain[-1].inputs[0]])
    return chain
