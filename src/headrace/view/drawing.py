"""`draw`: a drawing of a flow that displays in notebooks, prints as text and can be saved.

The text is DOT for Graphviz, or Mermaid for GitHub, notebooks and many editors.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import BadInput, SourceLocation
from headrace.file_system import local_path
from headrace.shown import Shown
from headrace.view.picture import FILLS, STROKES, ArrowKind, BoxRole, Picture, picture_of
from headrace.view.svg import to_svg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from headrace.flow.flow import Flow
    from headrace.view.picture import Arrow, Box, Cluster


@dataclass(frozen=True, slots=True, repr=False)
class Drawing(Shown):
    """Drawing of a picture: an SVG in notebooks, Mermaid text elsewhere."""

    picture: Picture

    @property
    def svg(self) -> str:
        """SVG element, for pages without a network."""
        return to_svg(self.picture)

    @property
    def mermaid(self) -> str:
        """Text of a Mermaid diagram, for GitHub and other pages that render it."""
        return to_mermaid(self.picture)

    @property
    def dot(self) -> str:
        """Text for Graphviz."""
        return to_dot(self.picture)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the drawing as SVG, Mermaid or DOT: the file name ends in .svg, .mmd or .dot.

        Raises `BadInput` for another extension.
        """
        file = Path(local_path(str(path), "path"))
        write = _WRITERS.get(file.suffix.lower())
        if write is None:
            raise BadInput(
                f"unknown drawing format {file.suffix!r}: {file.name}",
                where=[SourceLocation.of_caller()],
                why="The extension sets the format.",
                fix=f"one of {', '.join(_WRITERS)}",
            )
        file.write_text(write(self.picture), encoding="utf-8")

    def __repr__(self) -> str:
        return self.mermaid

    __str__ = __repr__


def draw(flow: Flow) -> Drawing:
    """Draw a flow with its strata: append streams as thin arrows, tables as thick ones.

    Raises the errors of the flow's analysis, and `BadFlow` for a flow that is not complete.

    >>> import headrace as hr
    >>> flow = hr.Flow("numbers")
    >>> flow.sink("out", flow.source("numbers", int))
    >>> print(hr.draw(flow))
    ---
    title: "numbers"
    ---
    flowchart LR
    ...
    >>> hr.draw(flow).svg[:4]
    '<svg'
    """
    return Drawing(picture_of(flow))


_DOT_SHAPES = {
    BoxRole.SOURCE: "oval",
    BoxRole.OPERATOR: "box",
    BoxRole.OPAQUE: "component",
    BoxRole.SINK: "parallelogram",
}
_DOT_ARROWS = {
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
    return "\n".join(_dot_lines(picture)) + "\n"


def _dot_lines(picture: Picture) -> Iterator[str]:
    yield f"digraph {_dot_quoted(picture.title)} {{"
    yield f"  label={_dot_quoted(picture.title)}; labelloc=t; rankdir=LR; fontname=Helvetica;"
    yield "  node [style=filled, fontname=Helvetica, fontsize=11];"
    yield "  edge [fontname=Helvetica, fontsize=10];"
    boxes = {box.id: box for box in picture.boxes}
    for stratum in picture.strata:
        yield from _dot_cluster(stratum, boxes, "  ")
    for arrow in picture.arrows:
        yield f"  {_dot_arrow(arrow)}"
    yield "}"


def _dot_cluster(cluster: Cluster, boxes: dict[str, Box], indent: str) -> Iterator[str]:
    # Graphviz frames only subgraphs whose names begin with "cluster".
    yield f"{indent}subgraph cluster_{cluster.id} {{"
    yield f"{indent}  label={_dot_quoted(cluster.title)}; style=rounded; color=gray;"
    for box_id in cluster.boxes:
        yield f"{indent}  {_dot_box(boxes[box_id])}"
    for loop in cluster.loops:
        yield from _dot_cluster(loop, boxes, indent + "  ")
    yield f"{indent}}}"


def _dot_box(box: Box) -> str:
    fill, _ = FILLS[box.shape]
    return f'{box.id} [label={_dot_quoted(*box.lines)}, shape={_DOT_SHAPES[box.shape]}, fillcolor="{fill}"];'


def _dot_arrow(arrow: Arrow) -> str:
    parts = [f"label={_dot_quoted(arrow.label)}"] if arrow.label else []
    style = ", ".join([*parts, *filter(None, [_DOT_ARROWS[arrow.kind]])])
    return f"{arrow.source} -> {arrow.target}{f' [{style}]' if style else ''};"


def _dot_quoted(*lines: str) -> str:
    return '"' + "\\n".join(_dot_escaped(part) for line in lines for part in line.splitlines() or [""]) + '"'


def _dot_escaped(text: str) -> str:
    # Graphviz reads HTML entities and backslash sequences in every label.
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)


_MERMAID_SHAPES = {
    BoxRole.SOURCE: ("([", "])"),
    BoxRole.OPERATOR: ("[", "]"),
    BoxRole.OPAQUE: ("[[", "]]"),
    BoxRole.SINK: ("[/", "/]"),
}
_MERMAID_ARROWS = {
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
    return "\n".join(_mermaid_lines(picture)) + "\n"


def _mermaid_lines(picture: Picture) -> Iterator[str]:
    yield from ("---", f"title: {_title(picture.title)}", "---", "flowchart LR")
    boxes = {box.id: box for box in picture.boxes}
    for stratum in picture.strata:
        yield from _mermaid_cluster(stratum, boxes, "  ")
    for arrow in picture.arrows:
        yield f"  {_mermaid_arrow(arrow)}"
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


def _mermaid_cluster(cluster: Cluster, boxes: dict[str, Box], indent: str) -> Iterator[str]:
    yield f"{indent}subgraph {cluster.id}[{_mermaid_quoted(cluster.title)}]"
    for box_id in cluster.boxes:
        yield f"{indent}  {_mermaid_box(boxes[box_id])}"
    for loop in cluster.loops:
        yield from _mermaid_cluster(loop, boxes, indent + "  ")
    yield f"{indent}end"


def _mermaid_box(box: Box) -> str:
    before, after = _MERMAID_SHAPES[box.shape]
    return f"{box.id}{before}{_mermaid_quoted(*box.lines)}{after}:::{box.shape.value}"


def _mermaid_arrow(arrow: Arrow) -> str:
    text = f"|{_mermaid_quoted(arrow.label)}|" if arrow.label else ""
    return f"{arrow.source} {_MERMAID_ARROWS[arrow.kind]}{text} {arrow.target}"


def _mermaid_quoted(*lines: str) -> str:
    return (
        '"'
        + "<br/>".join(_mermaid_escaped(part) for line in lines for part in line.splitlines() or [""])
        + '"'
    )


def _mermaid_escaped(text: str) -> str:
    # Control characters, and markup of Mermaid, Markdown or HTML, become entities.
    return re.sub(r"[^\w .,:=()+\-/'\u00a1-\U0010ffff]|\bfa(?=:)", lambda m: _entities(m.group()), text)


def _entities(text: str) -> str:
    return "".join(f"#{ord(c)};" for c in text)


_WRITERS = {".svg": to_svg, ".mmd": to_mermaid, ".dot": to_dot}
