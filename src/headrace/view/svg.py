"""SVG of a picture: laid out and drawn here, so that a page or notebook needs no network or other program.

Boxes stand in the column behind all that they read, and those of a stratum behind all strata before it
(Sugiyama, Tagawa and Toda 1981: columns, order within them, places). An arrow over several columns bends
around the boxes between; arrows should cross little.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from headrace.view.picture import FILLS, STROKES, ArrowKind, BoxRole

if TYPE_CHECKING:
    from headrace.view.picture import Arrow, Box, Cluster, Picture

BoxId: TypeAlias = str
_LINE_HEIGHT, _LETTER, _PADDING = 16.0, 6.7, 12.0
_BESIDE, _BETWEEN, _ARROW = 24.0, 34.0, 14.0


_MARGIN, _TITLE, _LINE = 16.0, 26.0, 16.0
_WIDE, _STROKE = 2.6, "#6b7a90"
_DEPTH = 22.0
"""Room below the boxes for each arrow that goes back."""


def to_svg(picture: Picture) -> str:
    """Render a picture as a standalone SVG element, readable on light and dark backgrounds.

    Thin arrows are append streams, thick ones tables; barred arrows block, dashed ones are delayed. Boxes
    carry the id of their node and bands the class of their stratum, for pages that add to the picture.
    """
    return "\n".join(_lines(picture, layout_of(picture))) + "\n"


def _lines(picture: Picture, layout: PictureLayout) -> Iterator[str]:
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


def _arrow(arrow: Arrow, layout: PictureLayout, number: int, below: int) -> Iterator[str]:
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
    width = _WIDE if arrow.kind is ArrowKind.CHANGES else 1.3
    dash = ' stroke-dasharray="5 4"' if arrow.kind is ArrowKind.DELAY else ""
    yield f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="{width}"{dash}/>'
    bar = f"M{target.left - 1.5:.1f} {target.y - 6:.1f}v12"
    yield (
        f'<path d="{bar}" stroke="{stroke}" stroke-width="2.5"/>'
        if arrow.kind is ArrowKind.HANDOFF
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
    """Return a curve from below one place to below another, under all others, and its label's position."""
    bottom, end = source.y + source.height / 2, target.y + target.height / 2 + 6
    path = f"M{source.x:.1f} {bottom:.1f}C{source.x:.1f} {depth:.1f} {source.x:.1f} {depth:.1f} "
    middle = (source.x + target.x) / 2
    path += f"{middle:.1f} {depth:.1f}S{target.x:.1f} {depth:.1f} {target.x:.1f} {end:.1f}"
    return path, middle, depth


def _text(text: str) -> str:
    """Escape a text for XML, with spaces for control characters, which XML does not allow."""
    return escape(re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", " ", text))


_BOLD = 1.06


_BEFORE = 12.0
"""Distance of a label from the column of its box, beyond the edge of a band."""


_MAX_BENDS = 10_000


_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Place:
    """Rectangle of a box, or of a bend of an arrow. x, y: its centre."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> float:
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Course:
    """Straight parts of an arrow next to its boxes. It turns between columns, clear of boxes and labels.

    start: x to which it runs straight from its source. end: x from which it runs straight to its target, at
    height y; its label ends at x `label`.
    """

    start: float
    end: float
    y: float
    label: float


@dataclass(frozen=True, slots=True)
class Band:
    """Columns of a stratum."""

    title: str
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """Positions of the parts of a picture.

    bends: of each arrow, by its number, from left to right. backward: arrows that go round below instead,
    from right to left.
    """

    places: Mapping[BoxId, Place]
    bends: Mapping[int, Sequence[Place]]
    courses: Mapping[int, Course]
    backward: frozenset[int]
    bands: Sequence[Band]
    width: float
    height: float


def layout_of(picture: Picture) -> PictureLayout:
    """Lay out the boxes and arrows of a picture."""
    return _Columns(picture).layout()


def text_width(text: str) -> float:
    """Estimate the width of a line of text."""
    return len(text) * _LETTER


@dataclass
class _Columns:
    picture: Picture
    column: dict[BoxId, int] = field(default_factory=dict[BoxId, int])
    size: dict[BoxId, tuple[float, float]] = field(default_factory=dict[BoxId, tuple[float, float]])
    links: list[tuple[BoxId, BoxId]] = field(default_factory=list[tuple[BoxId, BoxId]])
    chains: dict[int, list[BoxId]] = field(default_factory=dict[int, list[BoxId]])

    def layout(self) -> PictureLayout:
        for box in self.picture.boxes:
            widest = max(map(text_width, box.lines), default=0.0)
            came = sum(arrow.target == box.id for _, arrow in self._forward())
            height = max(len(box.lines) * _LINE_HEIGHT + _PADDING, came * _ARROW)
            self.size[box.id] = widest * _BOLD + 2 * _PADDING, height
        self._find_columns()
        self._divide_long_arrows()
        columns = self._ordered()
        middles = self._middles(columns)
        room = self._room()
        left = self._lefts(columns, room)
        places = {
            id_: Place(left[at] + self._width(ids) / 2, middles[id_], *self.size[id_])
            for at, ids in enumerate(columns)
            for id_ in ids
        }
        top = min((each.y - each.height / 2 for each in places.values()), default=0.0)
        places = {id_: Place(p.x, p.y - top, p.width, p.height) for id_, p in places.items()}
        return PictureLayout(
            {box.id: places[box.id] for box in self.picture.boxes},
            {
                number: [self._widened(places[id_], columns, left, room, self.column[id_]) for id_ in chain]
                for number, chain in self.chains.items()
            },
            self._courses(places, columns, left, room),
            self.backward,
            [self._band(stratum, places) for stratum in self.picture.strata],
            max((each.right for each in places.values()), default=0.0),
            max((each.y + each.height / 2 for each in places.values()), default=0.0),
        )

    @cached_property
    def backward(self) -> frozenset[int]:
        """Arrows into the next round or tick that close a cycle, or lead to an earlier stratum."""
        after: defaultdict[BoxId, list[BoxId]] = defaultdict(list)
        for arrow in self.picture.arrows:
            after[arrow.source].append(arrow.target)
        stratum = {id_: at for at, each in enumerate(self.picture.strata) for id_ in _members(each)}
        return frozenset(
            number
            for number, arrow in enumerate(self.picture.arrows)
            if arrow.kind.is_backward
            and (
                stratum.get(arrow.source, 0) > stratum.get(arrow.target, 0)
                or arrow.source in _reached(arrow.target, after)
            )
        )

    def _forward(self) -> list[tuple[int, Arrow]]:
        return [each for each in enumerate(self.picture.arrows) if each[0] not in self.backward]

    def _find_columns(self) -> None:
        before: defaultdict[BoxId, list[BoxId]] = defaultdict(list)
        for _, arrow in self._forward():
            before[arrow.target].append(arrow.source)
        first = 0
        strata = [list(_members(each)) for each in self.picture.strata]
        strata = strata or [[box.id for box in self.picture.boxes]]
        for members in strata:
            within, known = set(members), self.column
            # As many rounds as the longest way has arrows; members come mostly in the order of the arrows.
            known.update(dict.fromkeys(members, first))
            for _ in members:
                changed = False
                for id_ in members:
                    least = max((known[b] + 1 for b in before[id_] if b in within), default=first)
                    changed |= least > known[id_]
                    known[id_] = max(known[id_], min(least, first + len(members) - 1))
                if not changed:
                    break
            first = max((known[id_] + 1 for id_ in members), default=first)

    def _divide_long_arrows(self) -> None:
        """Give an arrow across several columns a bend in each of them. A large picture has no bends: their
        number grows with the square of the number of boxes, and nobody could follow them.
        """
        lengths = [abs(self.column[a.source] - self.column[a.target]) for _, a in self._forward()]
        bends = sum(lengths) <= _MAX_BENDS
        for number, arrow in self._forward():
            ends = self.column[arrow.source], self.column[arrow.target]
            chain = [f"{number}.{at}" for at in range(min(ends) + 1, max(ends))] if bends else []
            for at, id_ in enumerate(chain, min(ends) + 1):
                self.column[id_], self.size[id_] = at, (0.0, _ARROW)
            self.chains[number] = chain
            path = [arrow.source, *chain, arrow.target]
            self.links += list(pairwise(path))

    def _neighbours(self) -> Mapping[BoxId, list[BoxId]]:
        found: defaultdict[BoxId, list[BoxId]] = defaultdict(list)
        for source, target in self.links:
            found[source].append(target)
            found[target].append(source)
        return found

    def _ordered(self) -> list[list[BoxId]]:
        """Order each column by the mean of its neighbours' positions, sweeping back and forth."""
        count = max(self.column.values(), default=-1) + 1
        columns: list[list[BoxId]] = [[] for _ in range(count)]
        for id_, at in self.column.items():
            columns[at].append(id_)
        beside = self._neighbours()
        for sweep in range(_SWEEPS):
            order = range(count) if sweep % 2 == 0 else range(count - 1, -1, -1)
            for at in order:
                near = at - 1 if sweep % 2 == 0 else at + 1
                position = {id_: n for n, id_ in enumerate(columns[near])} if 0 <= near < count else {}
                own = {id_: float(n) for n, id_ in enumerate(columns[at])}
                for id_ in columns[at]:
                    found = [position[other] for other in beside[id_] if other in position]
                    own[id_] = fmean(found) if found else own[id_]
                columns[at].sort(key=lambda id_: own[id_])
        return columns

    def _middles(self, columns: list[list[BoxId]]) -> dict[BoxId, float]:
        """Place the boxes of each column near their neighbours, without overlap."""
        beside = self._neighbours()
        middles = dict.fromkeys(self.column, 0.0)
        for ids in columns:
            self._spread(ids, middles, middles)
        for _ in range(_SWEEPS):
            for ids in (*columns, *reversed(columns)):
                wanted = {
                    id_: fmean(middles[other] for other in beside[id_]) if beside[id_] else middles[id_]
                    for id_ in ids
                }
                self._spread(ids, wanted, middles)
        return middles

    def _spread(self, ids: list[BoxId], wanted: Mapping[BoxId, float], middles: dict[BoxId, float]) -> None:
        """Place boxes at their wanted heights or below one another, then shift them to match on average."""
        down = float("-inf")
        for id_ in ids:
            half = self.size[id_][1] / 2
            middles[id_] = max(wanted[id_], down + half)
            down = middles[id_] + half + _BESIDE
        if ids:
            shift = fmean(wanted[id_] - middles[id_] for id_ in ids)
            for id_ in ids:
                middles[id_] += shift

    def _width(self, ids: Sequence[BoxId]) -> float:
        return max((self.size[id_][0] for id_ in ids), default=0.0)

    def _room(self) -> Mapping[int, float]:
        """Return the room for labels before each column."""
        room: defaultdict[int, float] = defaultdict(float)
        for _, arrow in self._forward():
            if arrow.label:
                at = self.column[arrow.target]
                room[at] = max(room[at], text_width(arrow.label) + _BEFORE)
        return room

    def _widened(
        self, bend: Place, columns: list[list[BoxId]], left: list[float], room: Mapping[int, float], at: int
    ) -> Place:
        """Widen a bend to the whole of its column and the labels before it."""
        start, end = left[at] - room[at], left[at] + self._width(columns[at])
        return Place((start + end) / 2, bend.y, end - start, bend.height)

    def _lefts(self, columns: list[list[BoxId]], room: Mapping[int, float]) -> list[float]:
        """Return the left edges of columns, with room between them for the arrows' labels."""
        found, left = list[float](), 0.0
        for at, ids in enumerate(columns):
            left += room[at] if at else 0.0
            found.append(left)
            left += self._width(ids) + _BETWEEN
        return found

    def _courses(
        self,
        places: Mapping[BoxId, Place],
        columns: list[list[BoxId]],
        left: list[float],
        room: Mapping[int, float],
    ) -> dict[int, Course]:
        """End the arrows to a box one below the other, in the order of the heights they come from."""
        found: dict[int, Course] = {}
        come: defaultdict[BoxId, list[tuple[float, int]]] = defaultdict(list)
        for number, arrow in self._forward():
            last = self.chains[number][-1] if self.chains[number] else arrow.source
            come[arrow.target].append((places[last].y, number))
        for target, arrows in come.items():
            to = self.column[target]
            for at, (_, number) in enumerate(sorted(arrows)):
                source = self.column[self.picture.arrows[number].source]
                found[number] = Course(
                    left[source] + self._width(columns[source]),
                    left[to] - room[to],
                    places[target].y + (at - (len(arrows) - 1) / 2) * _ARROW,
                    left[to] - _BEFORE,
                )
        return found

    def _band(self, stratum: Cluster, places: Mapping[BoxId, Place]) -> Band:
        own = [places[id_] for id_ in _members(stratum)]
        left, right = min((p.left for p in own), default=0.0), max((p.right for p in own), default=0.0)
        return Band(stratum.title, left, right)


def _reached(start: BoxId, after: Mapping[BoxId, Sequence[BoxId]]) -> set[BoxId]:
    found, waiting = {start}, [start]
    while waiting:
        new = [id_ for id_ in after.get(waiting.pop(), ()) if id_ not in found]
        found.update(new)
        waiting += new
    return found


def _members(cluster: Cluster) -> list[BoxId]:
    return [*cluster.boxes, *(id_ for loop in cluster.loops for id_ in _members(loop))]
