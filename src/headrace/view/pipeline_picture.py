"""Picture of a pipeline: its tables, what they read, and how each is brought up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.view.picture import Arrow, Box, BoxRole, Cluster, Kind, Picture

if TYPE_CHECKING:
    from headrace.pipelines.definitions import TableName
    from headrace.pipelines.graph import Graph, StoredTable
    from headrace.pipelines.leaves import Leaf
    from headrace.pipelines.plans import TablePlan


def picture_of_pipeline(title: str, graph: Graph, plans: Mapping[TableName, TablePlan]) -> Picture:
    """Build the picture of a pipeline. Tables that are recomputed have the shape of opaque operators."""
    from headrace.pipelines.leaves import TableLeaf

    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    tables = {table.name: f"t{at}" for at, table in enumerate(graph.tables)}
    sources: dict[str, str] = {}
    for table in graph.tables:
        plan = plans[table.name]
        shape = BoxRole.OPAQUE if plan.method.value == "recompute" else BoxRole.OPERATOR
        shape = {"sink": BoxRole.SINK, "snapshot": BoxRole.SOURCE}.get(table.dataset.kind.value, shape)
        called = table.dataset.input or table.name.table
        made = Box(tables[table.name], (called, _caption(table, plan)), shape)
        for query in table.queries:
            for leaf in query.leaves:
                if isinstance(leaf, TableLeaf):
                    source = tables[leaf.name]
                else:
                    source = sources.setdefault(leaf.key, f"s{len(tables) + len(sources)}")
                    boxes.setdefault(source, Box(source, (_title(leaf),), BoxRole.SOURCE))
                kind = Kind.APPEND if leaf.streaming else Kind.CHANGES
                arrows.append(Arrow(source, made.id, kind, ""))
        boxes[made.id] = made
    cluster = Cluster("tables", "tables", tuple(boxes))
    return Picture(title, tuple(boxes.values()), tuple(dict.fromkeys(arrows)), (cluster,))


def _caption(table: StoredTable, plan: TablePlan) -> str:
    return table.dataset.kind.value if table.dataset.input else plan.method.value


def _title(leaf: Leaf) -> str:
    from headrace.pipelines.leaves import ConstantLeaf, FilesLeaf

    if isinstance(leaf, FilesLeaf):
        return ", ".join(root.rsplit("/", 1)[-1] for root in leaf.roots)
    return "constants" if isinstance(leaf, ConstantLeaf) else leaf.key
