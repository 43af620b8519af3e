"""Pictures of flows: as data, and as text for drawing tools."""

from headrace.view.drawing import Drawing, draw, to_dot, to_mermaid
from headrace.view.picture import Picture, picture_of
from headrace.view.svg import to_svg

__all__ = ["Drawing", "Picture", "draw", "picture_of", "to_dot", "to_mermaid", "to_svg"]
