"""Mermaid text of a picture, for GitHub, notebooks and many editors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from headrace.view.picture import FILLS, STROKES, ArrowKind, BoxRole

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.view.picture import Arrow, Box, Cluster, Picture

_SHAPES = {
    BoxRole.SOURCE: ("([", "])"),
    BoxRole.OPERATOR: ("[", "]"),
    BoxRole.OPAQUE: ("[[", "]]"),
    BoxRole.SINK: ("[/", "/]"),
}
_ARROWS = {
    ArrowKind.APPEND: "-->",
    ArrowKind.CHANGES: "==>",
    ArrowKind.HANDOFF: "--x",
    ArrowKind.BACK: "-->",
    ArrowKind.DELAY: "-.->",
}


def to_mermaid(picture: Picture) -> str:
    """Render a picture as a `flowchart`.

    Thin arrows are append streams, thick ones tables; crossed arrows block, dotted ones are delayed.

    >>> import headrace as hr
    >>> from headrace.view import picture_of
    >>> flow = hr.Flow("numbers")
    >>> flow.sink("seen", flow.source("numbers", int).distinct())
    >>> print(to_mermaid(picture_of(flow)))  # doctest: +ELLIPSIS
    ---
    title: "numbers"
    ---
    flowchart LR
      subgraph stratum0["stratum 0"]
        n0(["source 'numbers'"]):::source
        n1["distinct"]:::operator
        n2[/"sink 'seen'"/]:::sink
      end
      n0 --> n1
      n1 --> n2
    ...
    """
    return "\n".join(_lines(picture)) + "\n"


def _lines(picture: Picture) -> Iterator[str]:
    yield from ("---", f"title: {_title(picture.title)}", "---", "flowchart LR")
    boxes = {box.id: box for box in picture.boxes}
    for stratum in picture.strata:
        yield from _cluster(stratum, boxes, "  ")
    for arrow in picture.arrows:
        yield f"  {_arrow(arrow)}"
    for shape, (fill, edge) in FILLS.items():
        yield f"  classDef {shape.value} fill:{fill},stroke:{edge}"
    for kind, stroke in STROKES.items():
        drawn = [str(at) for at, arrow in enumerate(picture.arrows) if arrow.kind is kind]
        if drawn:
            yield f"  linkStyle {','.join(drawn)} stroke:{stroke}"


def _title(text: str) -> str:
    """Write a title as YAML, of which a JSON string is a one-line subset."""
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text).split())
    # The text may stand in an HTML page. Entities would not be read in a title, but JSON's escapes are.
    return re.sub(r"[<>&]", lambda m: f"\\u{ord(m.group()):04x}", json.dumps(line, ensure_ascii=False))


def _cluster(cluster: Cluster, boxes: dict[str, Box], indent: str) -> Iterator[str]:
    yield f"{indent}subgraph {cluster.id}[{_quoted(cluster.title)}]"
    for box_id in cluster.boxes:
        yield f"{indent}  {_box(boxes[box_id])}"
    for loop in cluster.loops:
        yield from _cluster(loop, boxes, indent + "  ")
    yield f"{indent}end"


def _box(box: Box) -> str:
    before, after = _SHAPES[box.shape]
    return f"{box.id}{before}{_quoted(*box.lines)}{after}:::{box.shape.value}"


def _arrow(arrow: Arrow) -> str:
    text = f"|{_quoted(arrow.label)}|" if arrow.label else ""
    return f"{arrow.source} {_ARROWS[arrow.kind]}{text} {arrow.target}"


def _quoted(*lines: str) -> str:
    return '"' + "<br/>".join(_escaped(part) for line in lines for part in line.splitlines() or [""]) + '"'


def _escaped(text: str) -> str:
    # Control characters, and markup of Mermaid, Markdown or HTML, become entities.
    return re.sub(r"[^\w .,:=()+\-/'\u00a1-\U0010ffff]|\bfa(?=:)", lambda m: _entities(m.group()), text)


def _entities(text: str) -> str:
    return "".join(f"#{ord(c)};" for c in text)
