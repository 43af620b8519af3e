"""DOT text of a picture, for Graphviz."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.view.picture import FILLS, STROKES, ArrowKind, BoxRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.view.picture import Arrow, Box, Cluster, Picture

_SHAPES = {
    BoxRole.SOURCE: "oval",
    BoxRole.OPERATOR: "box",
    BoxRole.OPAQUE: "component",
    BoxRole.SINK: "parallelogram",
}
_ARROWS = {
    ArrowKind.APPEND: "",
    ArrowKind.CHANGES: "penwidth=2.5",
    ArrowKind.HANDOFF: f'arrowhead=tee, color="{STROKES[ArrowKind.HANDOFF]}"',
    ArrowKind.BACK: f'color="{STROKES[ArrowKind.BACK]}", constraint=false',
    ArrowKind.DELAY: f'style=dashed, color="{STROKES[ArrowKind.DELAY]}", constraint=false',
}


def to_dot(picture: Picture) -> str:
    """Render a picture as a `digraph`.

    Thin arrows are append streams, thick ones tables; barred arrows block, dashed ones are delayed.
    """
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    yield f"digraph {_quoted(picture.title)} {{"
    yield f"  label={_quoted(picture.title)}; labelloc=t; rankdir=LR; fontname=Helvetica;"
    yield "  node [style=filled, fontname=Helvetica, fontsize=11];"
    yield "  edge [fontname=Helvetica, fontsize=10];"
    boxes = {box.id: box for box in picture.boxes}
    for stratum in picture.strata:
        yield from _cluster(stratum, boxes, "  ")
    for arrow in picture.arrows:
        yield f"  {_arrow(arrow)}"
    yield "}"


def _cluster(cluster: Cluster, boxes: dict[str, Box], indent: str) -> Iterator[str]:
    # Graphviz frames only subgraphs whose names begin with "cluster".
    yield f"{indent}subgraph cluster_{cluster.id} {{"
    yield f"{indent}  label={_quoted(cluster.title)}; style=rounded; color=gray;"
    for box_id in cluster.boxes:
        yield f"{indent}  {_box(boxes[box_id])}"
    for loop in cluster.loops:
        yield from _cluster(loop, boxes, indent + "  ")
    yield f"{indent}}}"


def _box(box: Box) -> str:
    fill, _ = FILLS[box.shape]
    return f'{box.id} [label={_quoted(*box.lines)}, shape={_SHAPES[box.shape]}, fillcolor="{fill}"];'


def _arrow(arrow: Arrow) -> str:
    parts = [f"label={_quoted(arrow.label)}"] if arrow.label else []
    style = ", ".join([*parts, *filter(None, [_ARROWS[arrow.kind]])])
    return f"{arrow.source} -> {arrow.target}{f' [{style}]' if style else ''};"


def _quoted(*lines: str) -> str:
    return '"' + "\\n".join(_escaped(part) for line in lines for part in line.splitlines() or [""]) + '"'


def _escaped(text: str) -> str:
    # Graphviz reads HTML entities and backslash sequences in every label.
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)
