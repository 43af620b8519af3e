"""`draw`: a flow as a drawing that shows itself in notebooks, prints as text and saves itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import BadInput, SourceLocation
from headrace.file_system import local_path
from headrace.shown import Shown
from headrace.view.dot import to_dot
from headrace.view.mermaid import to_mermaid
from headrace.view.picture import Picture, picture_of
from headrace.view.svg import to_svg

if TYPE_CHECKING:
    from os import PathLike

    from headrace.flow.flow import Flow

_WRITERS = {".svg": to_svg, ".mmd": to_mermaid, ".dot": to_dot}


@dataclass(frozen=True, slots=True, repr=False)
class Drawing(Shown):
    """Drawing of a picture: an SVG in notebooks, Mermaid's text elsewhere."""

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
