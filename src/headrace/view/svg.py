"""SVG of a picture: drawn here, so that a page or notebook needs no network and no other program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from headrace.view.layout import Band, Course, Layout, Place, layout_of
from headrace.view.picture import FILLS, STROKES, BoxRole, Kind

if TYPE_CHECKING:
    from headrace.view.picture import Arrow, Box, Picture

_MARGIN, _TITLE, _LINE = 16.0, 26.0, 16.0
_WIDE, _STROKE = 2.6, "#6b7a90"
_DEPTH = 22.0
"""Room below the boxes for each arrow that goes back."""


def to_svg(picture: Picture) -> str:
    """Render a picture as a standalone SVG element, readable on light and dark grounds.

    Thin arrows are append streams, thick ones tables; barred arrows block, dashed ones are delayed. Boxes
    carry the id of their node and bands the class of their stratum, for pages that add to the picture.
    """
    return "\n".join(_lines(picture, layout_of(picture))) + "\n"


def _lines(picture: Picture, layout: Layout) -> Iterator[str]:
    width = layout.width + 2 * _MARGIN
    height = layout.height + 2 * _MARGIN + _TITLE + _DEPTH * len(layout.backward)
    title = _text(picture.title)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">'
    )
    yield f"<title>{title}</title>"
    yield f'<g transform="translate({_MARGIN:.0f} {_MARGIN + _TITLE:.0f})">'
    for number, band in enumerate(layout.bands if len(layout.bands) > 1 else ()):
        yield _band(band, layout.height, number)
    below = 0
    for number, arrow in enumerate(picture.arrows):
        below += number in layout.backward
        yield from _arrow(arrow, layout, number, below)
    for box in picture.boxes:
        yield f'<g class="box" data-node="{box.id}">'
        yield from _box(box, layout.places[box.id])
        yield "</g>"
    yield "</g>"
    yield "</svg>"


def _band(band: Band, height: float, number: int) -> str:
    rect = (
        f'<rect class="stratum stratum-{number % 4}" x="{band.left - 8:.1f}" y="-22" '
        f'width="{band.right - band.left + 16:.1f}" height="{height + 30:.1f}" rx="6" '
        'fill="none" stroke="#9aa5b4" stroke-dasharray="2 3"/>'
    )
    return f'{rect}<text x="{band.left:.1f}" y="-8" font-size="11" fill="#7c8898">{_text(band.title)}</text>'


def _box(box: Box, at: Place) -> Iterator[str]:
    fill, stroke = FILLS[box.shape]
    top = at.y - at.height / 2
    round_ = at.height / 2 if box.shape is BoxRole.SOURCE else 3.0
    yield (
        f'<rect x="{at.left:.1f}" y="{top:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" '
        f'rx="{round_:.1f}" fill="{fill}" stroke="{stroke}"/>'
    )
    if box.shape is BoxRole.OPAQUE:
        for x in (at.left + 4, at.right - 4):
            yield f'<path d="M{x:.1f} {top:.1f}v{at.height:.1f}" stroke="{stroke}"/>'
    if box.shape is BoxRole.SINK:
        yield f'<path d="M{at.right - 5:.1f} {top:.1f}v{at.height:.1f}" stroke="{stroke}" stroke-width="3"/>'
    for number, line in enumerate(box.lines):
        weight = ' font-weight="600"' if number == 0 else ""
        y = top + _LINE * (number + 1) + 1
        where = f'x="{at.x:.1f}" y="{y:.1f}" text-anchor="middle"'
        yield f'<text {where} fill="#1c2733"{weight}>{_text(line)}</text>'


def _arrow(arrow: Arrow, layout: Layout, number: int, below: int) -> Iterator[str]:
    source, target = layout.places[arrow.source], layout.places[arrow.target]
    stroke = STROKES.get(arrow.kind, _STROKE)
    if number in layout.backward:
        path, x, y = _round_below(source, target, layout.height + _DEPTH * below)
        tip = (target.x, target.y + target.height / 2)
        head = _head(*tip, up=True)
    else:
        course = layout.courses[number]
        target = replace(target, y=course.y)
        path, x, y = _through(source, layout.bends[number], course, target), course.label, course.y
        head = _head(target.left, target.y, up=False)
    width = _WIDE if arrow.kind is Kind.CHANGES else 1.3
    dash = ' stroke-dasharray="5 4"' if arrow.kind is Kind.DELAY else ""
    yield f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="{width}"{dash}/>'
    bar = f"M{target.left - 1.5:.1f} {target.y - 6:.1f}v12"
    yield (
        f'<path d="{bar}" stroke="{stroke}" stroke-width="2.5"/>'
        if arrow.kind is Kind.HANDOFF
        else f'<path d="{head}" fill="{stroke}"/>'
    )
    if arrow.label:
        yield (
            f'<text x="{x:.1f}" y="{y - 4:.1f}" text-anchor="end" font-size="11" fill="{stroke}">'
            f"{_text(arrow.label)}</text>"
        )


def _head(x: float, y: float, *, up: bool) -> str:
    if up:
        return f"M{x:.1f} {y:.1f}l-4 7h8z"
    return f"M{x:.1f} {y:.1f}l-7 -4v8z"


def _through(source: Place, bends: Sequence[Place], course: Course, target: Place) -> str:
    """Return a line from the right of a box to the left of another, which turns between columns only."""
    straight = [(source.right, course.start, source.y)]
    straight += [(bend.left, bend.right, bend.y) for bend in bends]
    straight.append((course.end, target.left - 2, target.y))
    path = f"M{source.right:.1f} {source.y:.1f}H{course.start:.1f}"
    for (_, x0, y0), (x1, end, y1) in pairwise(straight):
        half = (x1 - x0) / 2
        path += f"C{x0 + half:.1f} {y0:.1f} {x1 - half:.1f} {y1:.1f} {x1:.1f} {y1:.1f}H{end:.1f}"
    return path


def _round_below(source: Place, target: Place, depth: float) -> tuple[str, float, float]:
    """Return a curve from under one place to under another, below all others, and where a label ends."""
    bottom, end = source.y + source.height / 2, target.y + target.height / 2 + 6
    path = f"M{source.x:.1f} {bottom:.1f}C{source.x:.1f} {depth:.1f} {source.x:.1f} {depth:.1f} "
    middle = (source.x + target.x) / 2
    path += f"{middle:.1f} {depth:.1f}S{target.x:.1f} {depth:.1f} {target.x:.1f} {end:.1f}"
    return path, middle, depth


def _text(text: str) -> str:
    """Return a text as XML holds it, in which control characters have no place."""
    return escape(re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", " ", text))
