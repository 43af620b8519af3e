"""Redefinition of operators when a notebook cell that added them runs again.

Streams know their operators by number, so the builder keeps what was replaced. The graph leaves it out, with
all that only it used, and numbers the rest anew: it equals the graph of a flow that was built once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import BadFlow, Step
from headrace.graph.node import Node, Operator
from headrace.shown import cell_execution


@dataclass(slots=True)
class Redefinitions:
    """Operators defined and replaced by the executions of a notebook's cells, by node.

    replaced: the node that replaced each. last: execution that defined something last.
    """

    replaced: dict[int, int] = field(default_factory=dict[int, int])
    defined_in: dict[int, object] = field(default_factory=dict[int, object])
    last: object = None

    def define(self, node_id: int) -> None:
        """Record the execution in which an operator was added."""
        execution = cell_execution()
        if execution is not None:
            self.defined_in[node_id] = self.last = execution

    def allow(self, node_id: int) -> bool:
        """Return whether an operator was added by an earlier execution than the current one."""
        before = self.defined_in.get(node_id)
        return before is not None and cell_execution() not in (None, before)

    def current_nodes(
        self, nodes: Sequence[Node], named: Iterable[int]
    ) -> tuple[tuple[Node, ...], dict[int, int]]:
        """Return the operators without replaced ones, and a map from old to new numbers, if any changed.

        named: nodes of the current sources and sinks.
        Raises `BadFlow` if a sink depends on a source that was replaced by one with other columns.
        """
        ends = (n.id for n in nodes if n.id not in self.replaced and self._stays_unread(n))
        ids = _live_nodes(nodes, (*named, *ends))
        _check_replaced_sources(nodes, ids, self.replaced)
        if len(ids) == len(nodes):
            return tuple(nodes), {}
        return _renumber(nodes, ids), ids

    def _stays_unread(self, node: Node) -> bool:
        """Return whether an operator is part of the flow even if no sink depends on it.

        Those of earlier executions are not: their cell may have failed halfway, or ran again. Those of the
        last execution may be read by the next cell.
        """
        return self.defined_in.get(node.id, self.last) == self.last or is_end(node.operator)


def is_end(operator: Operator) -> bool:
    """Return whether an operator ends its streams, so that it needs no sink."""
    return operator.ends_streams and bool(operator.ports())


def _live_nodes(nodes: Sequence[Node], ends: Iterable[int]) -> dict[int, int]:
    """Number `ends` and the nodes they depend on, in order of construction."""
    live: set[int] = set()
    waiting = list(ends)
    while waiting:
        node_id = waiting.pop()
        if node_id not in live:
            live.add(node_id)
            waiting.extend(nodes[node_id].inputs)
    return {node_id: at for at, node_id in enumerate(sorted(live))}


def _renumber(nodes: Sequence[Node], ids: Mapping[int, int]) -> tuple[Node, ...]:
    """Return the nodes in `ids` with their new numbers. Names that contain a number change with it."""
    return tuple(
        replace(
            node,
            id=ids[node.id],
            name=f"{node.operator.kind}_{ids[node.id]}" if node.name == automatic_name(node) else node.name,
            inputs=tuple(ids[each] for each in node.inputs),
        )
        for node in (nodes[node_id] for node_id in ids)
    )


def automatic_name(node: Node) -> str:
    """Return an operator's default name, used if the user gives none."""
    return f"{node.operator.kind}_{node.id}"


def _check_replaced_sources(
    nodes: Sequence[Node], live: Collection[int], replaced: Mapping[int, int]
) -> None:
    """Raise `BadFlow` if a sink still depends on a source that was redefined with other columns.

    replaced: the redefinition of each source, by node.
    """
    for old, new in replaced.items():
        if old in live:
            reader = next(nodes[n] for n in live if old in nodes[n].inputs)
            raise BadFlow(
                f"source {nodes[new].name!r} was redefined, and a sink still depends on the one before",
                where=[
                    Step(nodes[old].location, "before"),
                    Step(reader.location, "reads it"),
                    Step(nodes[new].location, "redefined"),
                ],
                why="Its columns or their types have changed.",
                fix="run the cells again that read it, or the one that makes the flow",
            )
