"""Picture of a flow or a pipeline as data: boxes, arrows and clusters, rendered by the format modules."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.analysis import analyse
from headrace.graph.node import graph_of, label
from headrace.graph.operator_declarations import Delay

if TYPE_CHECKING:
    from headrace.analysis import Analysis
    from headrace.flow.flow import Flow
    from headrace.graph.node import Edge, FlowGraph, Node
    from headrace.pipelines.definitions import TableName
    from headrace.pipelines.graph import Graph, StoredTable
    from headrace.pipelines.leaves import Leaf
    from headrace.pipelines.table_plan import TablePlan


_TEXT_WIDTH = 36


class BoxRole(Enum):
    """Role of a box."""

    SOURCE = "source"
    OPERATOR = "operator"
    OPAQUE = "opaque"
    SINK = "sink"


class ArrowKind(Enum):
    """Kind of an arrow. The first one that applies is used."""

    DELAY = "next tick"
    BACK = "goes round"
    HANDOFF = "complete first"
    APPEND = "append"
    CHANGES = "changes"

    @property
    def is_backward(self) -> bool:
        """Whether it leads back to an earlier box, in the next round or tick."""
        return self in (ArrowKind.BACK, ArrowKind.DELAY)


FILLS = {
    BoxRole.SOURCE: ("#d5f0e3", "#1e8449"),
    BoxRole.OPERATOR: ("#eef3fb", "#34568b"),
    BoxRole.OPAQUE: ("#fdf2d0", "#b9770e"),
    BoxRole.SINK: ("#d5f0e3", "#1e8449"),
}
"""Colours of a box: its ground, and its edge."""

STROKES = {ArrowKind.HANDOFF: "#c0392b", ArrowKind.BACK: "#8e44ad", ArrowKind.DELAY: "#7f8c8d"}
"""Colours of arrows; the others have that of the format."""


@dataclass(frozen=True, slots=True)
class Box:
    """Box for an operator. `id` depends only on its position in the flow; `lines` may hold any characters."""

    id: str
    lines: tuple[str, ...]
    shape: BoxRole


@dataclass(frozen=True, slots=True)
class Arrow:
    """Arrow for an edge of the flow. `label` may be empty."""

    source: str
    target: str
    kind: ArrowKind
    label: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """Group of boxes, by id. Loops are nested in the cluster of their stratum."""

    id: str
    title: str
    boxes: tuple[str, ...]
    loops: tuple[Cluster, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and arrows in flow order, with one cluster per stratum."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    strata: tuple[Cluster, ...]


def picture_of(flow: Flow | FlowGraph) -> Picture:
    """Build the picture of a flow.

    Raises the errors of `analyse`, and `BadFlow` for a flow that is not complete.
    """
    graph = graph_of(flow, "draw")
    analysis = analyse(graph)
    return Picture(
        title=graph.name,
        boxes=tuple(_box(graph, node) for node in graph.nodes),
        arrows=tuple(_arrow(graph, analysis, edge) for edge in graph.edges()),
        strata=tuple(_stratum(analysis, s) for s in range(max(analysis.strata) + 1)),
    )


def _box(graph: FlowGraph, node: Node) -> Box:
    text = textwrap.wrap(node.operator.describe(), _TEXT_WIDTH, break_long_words=False)
    return Box(_id(node.id), (label(graph, node), *text), _shape(graph, node))


def _shape(graph: FlowGraph, node: Node) -> BoxRole:
    if node.id in graph.sources.values():
        return BoxRole.SOURCE
    if node.id in graph.sinks.values():
        return BoxRole.SINK
    return BoxRole.OPAQUE if any(True for _ in node.operator.callables()) else BoxRole.OPERATOR


def _arrow(graph: FlowGraph, analysis: Analysis, edge: Edge) -> Arrow:
    ports = graph.nodes[edge.target].operator.ports()
    name = ports[edge.port].name if len({port.name for port in ports}) > 1 else ""
    kind = _kind(graph, analysis, edge)
    said = kind.value if kind in (ArrowKind.DELAY, ArrowKind.BACK, ArrowKind.HANDOFF) else ""
    return Arrow(_id(edge.source), _id(edge.target), kind, ": ".join(part for part in (name, said) if part))


def _kind(graph: FlowGraph, analysis: Analysis, edge: Edge) -> ArrowKind:
    if graph.port(edge).delay is not Delay.NONE:
        return ArrowKind.DELAY
    if analysis.ranks[edge.source] >= analysis.ranks[edge.target]:
        return ArrowKind.BACK
    if graph.port(edge).blocking:
        return ArrowKind.HANDOFF
    return ArrowKind.APPEND if analysis.facts[edge.source].append else ArrowKind.CHANGES


def _stratum(analysis: Analysis, stratum: int) -> Cluster:
    members = [n for n in analysis.execution_order() if analysis.strata[n] == stratum]
    loops = [(at, loop) for at, loop in enumerate(analysis.loops) if loop[0] in members]
    return Cluster(
        id=f"stratum{stratum}",
        title=f"stratum {stratum}",
        boxes=tuple(_id(n) for n in members if not any(n in loop for _, loop in loops)),
        loops=tuple(Cluster(f"loop{at}", "loop", tuple(_id(n) for n in loop)) for at, loop in loops),
    )


def _id(node: int) -> str:
    return f"n{node}"


@dataclass(frozen=True, slots=True)
class DrawnInput:
    """Input of a table in a picture. key: that of another drawn table, or of an input shown by its title."""

    key: object
    title: str
    streaming: bool


@dataclass(frozen=True, slots=True)
class DrawnTable:
    """Table in a picture. key: names it among the inputs of others."""

    key: object
    lines: tuple[str, ...]
    shape: BoxRole
    inputs: tuple[DrawnInput, ...]


def picture_of_tables(title: str, tables: Sequence[DrawnTable]) -> Picture:
    """Build the picture of tables and what they read. The box of the table at place 3 has the id `t3`."""
    boxes: dict[str, Box] = {}
    arrows: list[Arrow] = []
    ids = {table.key: f"t{at}" for at, table in enumerate(tables)}
    sources: dict[object, str] = {}
    for table in tables:
        made = Box(ids[table.key], table.lines, table.shape)
        for each in table.inputs:
            source = ids.get(each.key) or sources.setdefault(each.key, f"s{len(ids) + len(sources)}")
            if each.key not in ids:
                boxes.setdefault(source, Box(source, (each.title,), BoxRole.SOURCE))
            kind = ArrowKind.APPEND if each.streaming else ArrowKind.CHANGES
            arrows.append(Arrow(source, made.id, kind, ""))
        boxes[made.id] = made
    cluster = Cluster("tables", "tables", tuple(boxes))
    return Picture(title, tuple(boxes.values()), tuple(dict.fromkeys(arrows)), (cluster,))


def picture_of_pipeline(title: str, graph: Graph, plans: Mapping[TableName, TablePlan]) -> Picture:
    """Build the picture of a pipeline. Tables that are recomputed have the shape of opaque operators."""
    return picture_of_tables(title, [drawn_table(table, plans[table.name]) for table in graph.tables])


def drawn_table(table: StoredTable, plan: TablePlan) -> DrawnTable:
    """Return a table of a pipeline as it is drawn."""
    shape = shape_of_table(table.dataset.kind.value, plan.method.value)
    called = table.dataset.input or table.name.table
    leaves = [leaf for query in table.queries for leaf in query.leaves]
    inputs = tuple(DrawnInput(_key(leaf), _title(leaf), leaf.streaming) for leaf in leaves)
    return DrawnTable(table.name, (called, _caption(table, plan)), shape, inputs)


def shape_of_table(kind: str, method: str) -> BoxRole:
    """Return the shape of a table's box. kind: of its dataset. method: empty if it is not known."""
    shape = BoxRole.OPAQUE if method.startswith("recompute") else BoxRole.OPERATOR
    return {"sink": BoxRole.SINK, "snapshot": BoxRole.SOURCE}.get(kind, shape)


def _key(leaf: Leaf) -> object:
    from headrace.pipelines.leaves import TableLeaf

    return leaf.name if isinstance(leaf, TableLeaf) else leaf.key


def _caption(table: StoredTable, plan: TablePlan) -> str:
    return table.dataset.kind.value if table.dataset.input else plan.method.value


def _title(leaf: Leaf) -> str:
    from headrace.pipelines.leaves import ConstantLeaf, FilesLeaf

    if isinstance(leaf, FilesLeaf):
        return ", ".join(root.rsplit("/", 1)[-1] for root in leaf.roots)
    return "constants" if isinstance(leaf, ConstantLeaf) else leaf.key
