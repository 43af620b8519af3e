"""Pictures of flows: as data, and as text for drawing tools."""

from penstock.view.dot import to_dot
from penstock.view.drawing import Drawing, draw
from penstock.view.mermaid import to_mermaid
from penstock.view.picture import Picture, picture_of
from penstock.view.svg import to_svg

__all__ = ["Drawing", "Picture", "draw", "picture_of", "to_dot", "to_mermaid", "to_svg"]
