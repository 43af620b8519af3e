"""Thresholds: refused where the value that is read may fall, with the way on which it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.analysis.names import called
from penstock.analysis.witness import steps, way_of_loss
from penstock.errors import NeedNotMet
from penstock.graph.monotone_columns import origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph.facts import Facts
    from penstock.graph.node import FlowGraph


def check_growth(graph: FlowGraph, facts: Sequence[Facts]) -> None:
    """Raises `NeedNotMet` for an operator that needs a column to only grow, where rows are taken back.

    That the column is one which grows while rows are only added, was seen when the flow was written.
    """
    for node in graph.nodes:
        column = node.operator.grows_from()
        if column is None:
            continue
        maker = origin(graph.nodes, node.inputs[0])
        read = [i for i in maker.inputs if not facts[i].append]
        if not read:
            continue
        way = [graph.nodes[i] for i in way_of_loss(graph, facts, read[0], "append")]
        raise NeedNotMet(
            f"{called(graph, node)} needs {column!r} to only grow, and it may fall",
            where=steps(
                [
                    (way[0], "from here on rows may be taken back"),
                    *((between, "") for between in way[1:]),
                    (maker, f"{column!r} falls with each of them"),
                    (node, "what passed the threshold is never taken back"),
                ]
            ),
            why="Of a value that falls again, it would have been wrong to say that it had come so far.",
            fix=f"make {called(graph, maker)} of rows that are only added,\n"
            "or keep up to date which values are that high now: .filter(...) of the table",
            flow=graph.name,
            node=node.name,
            fact="grows",
            way=tuple(n.name for n in way),
        )
