"""Operators of a flow after a notebook cell ran again and replaced some of them.

Streams know their operators by number, so the builder keeps what was replaced. The graph leaves it out, with
all that only it used, and numbers the rest anew: it equals the graph of a flow that was built once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from penstock.errors import BadFlow, Step
from penstock.graph.node import Node


def live_nodes(nodes: Sequence[Node], ends: Iterable[int]) -> dict[int, int]:
    """Number the nodes that some of `ends` depend on, those included, in order of construction."""
    live: set[int] = set()
    waiting = list(ends)
    while waiting:
        node_id = waiting.pop()
        if node_id not in live:
            live.add(node_id)
            waiting.extend(nodes[node_id].inputs)
    return {node_id: at for at, node_id in enumerate(sorted(live))}


def renumber(nodes: Sequence[Node], ids: Mapping[int, int]) -> tuple[Node, ...]:
    """Return the nodes in `ids` under their new numbers. Names that hold a number change with it."""
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
    """Return the name that an operator has if the user gives none."""
    return f"{node.operator.kind}_{node.id}"


def check_replaced_sources(nodes: Sequence[Node], live: Collection[int], replaced: Mapping[int, int]) -> None:
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
