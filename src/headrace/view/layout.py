"""Layout of a picture: columns from left to right, in which arrows cross little.

Boxes stand in the column behind all that they read, and those of a stratum behind all strata before it
(Sugiyama, Tagawa and Toda 1981: columns, order within them, places). An arrow over several columns bends
around the boxes between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.view.picture import Arrow, Cluster, Picture

Id: TypeAlias = str
_LINE, _LETTER, _PADDING = 16.0, 6.7, 12.0
_BOLD = 1.06
_BESIDE, _BETWEEN, _ARROW = 24.0, 34.0, 14.0
_BEFORE = 12.0
"""Distance of a label from the column of its box, beyond the edge of a band."""
_MOST_BENDS = 10_000
_SWEEPS = 6


@dataclass(frozen=True, slots=True)
class Place:
    """Rectangle of a box, or of a bend of an arrow. x, y: of its middle."""

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
    """Where an arrow runs straight beside its boxes: it turns between the columns, clear of boxes and labels.

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
class Layout:
    """Where the parts of a picture stand.

    bends: of each arrow, by its number, from left to right. backward: arrows that go round below instead,
    from right to left.
    """

    places: Mapping[Id, Place]
    bends: Mapping[int, Sequence[Place]]
    courses: Mapping[int, Course]
    backward: frozenset[int]
    bands: Sequence[Band]
    width: float
    height: float


def layout_of(picture: Picture) -> Layout:
    """Place the boxes and arrows of a picture."""
    return _Columns(picture).layout()


def text_width(text: str) -> float:
    """Estimate the width of a line of text."""
    return len(text) * _LETTER


@dataclass
class _Columns:
    picture: Picture
    column: dict[Id, int] = field(default_factory=dict[Id, int])
    size: dict[Id, tuple[float, float]] = field(default_factory=dict[Id, tuple[float, float]])
    links: list[tuple[Id, Id]] = field(default_factory=list[tuple[Id, Id]])
    chains: dict[int, list[Id]] = field(default_factory=dict[int, list[Id]])

    def layout(self) -> Layout:
        for box in self.picture.boxes:
            widest = max(map(text_width, box.lines), default=0.0)
            came = sum(arrow.target == box.id for _, arrow in self._forward())
            height = max(len(box.lines) * _LINE + _PADDING, came * _ARROW)
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
        return Layout(
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
        after: defaultdict[Id, list[Id]] = defaultdict(list)
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
        before: defaultdict[Id, list[Id]] = defaultdict(list)
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
        """Give an arrow over several columns a bend in each between. In a large picture none has any: their
        number grows with the square of the boxes, and nobody could follow them.
        """
        lengths = [abs(self.column[a.source] - self.column[a.target]) for _, a in self._forward()]
        bends = sum(lengths) <= _MOST_BENDS
        for number, arrow in self._forward():
            ends = self.column[arrow.source], self.column[arrow.target]
            chain = [f"{number}.{at}" for at in range(min(ends) + 1, max(ends))] if bends else []
            for at, id_ in enumerate(chain, min(ends) + 1):
                self.column[id_], self.size[id_] = at, (0.0, _ARROW)
            self.chains[number] = chain
            path = [arrow.source, *chain, arrow.target]
            self.links += list(pairwise(path))

    def _neighbours(self) -> Mapping[Id, list[Id]]:
        found: defaultdict[Id, list[Id]] = defaultdict(list)
        for source, target in self.links:
            found[source].append(target)
            found[target].append(source)
        return found

    def _ordered(self) -> list[list[Id]]:
        """Order each column by the mean of its neighbours' positions, to and fro."""
        count = max(self.column.values(), default=-1) + 1
        columns: list[list[Id]] = [[] for _ in range(count)]
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

    def _middles(self, columns: list[list[Id]]) -> dict[Id, float]:
        """Place the boxes of each column near what they are linked with, without touching."""
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

    def _spread(self, ids: list[Id], wanted: Mapping[Id, float], middles: dict[Id, float]) -> None:
        """Give each of a column what it wants, or what the ones above leave; then move all to their mean."""
        down = float("-inf")
        for id_ in ids:
            half = self.size[id_][1] / 2
            middles[id_] = max(wanted[id_], down + half)
            down = middles[id_] + half + _BESIDE
        if ids:
            shift = fmean(wanted[id_] - middles[id_] for id_ in ids)
            for id_ in ids:
                middles[id_] += shift

    def _width(self, ids: Sequence[Id]) -> float:
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
        self, bend: Place, columns: list[list[Id]], left: list[float], room: Mapping[int, float], at: int
    ) -> Place:
        """Let a bend pass the whole of its column, and the labels before it."""
        start, end = left[at] - room[at], left[at] + self._width(columns[at])
        return Place((start + end) / 2, bend.y, end - start, bend.height)

    def _lefts(self, columns: list[list[Id]], room: Mapping[int, float]) -> list[float]:
        """Return where columns begin; between two is room for the arrows' labels."""
        found, left = list[float](), 0.0
        for at, ids in enumerate(columns):
            left += room[at] if at else 0.0
            found.append(left)
            left += self._width(ids) + _BETWEEN
        return found

    def _courses(
        self,
        places: Mapping[Id, Place],
        columns: list[list[Id]],
        left: list[float],
        room: Mapping[int, float],
    ) -> dict[int, Course]:
        """Let the arrows to a box meet it one below the other, in the order in which they come."""
        found: dict[int, Course] = {}
        come: defaultdict[Id, list[tuple[float, int]]] = defaultdict(list)
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

    def _band(self, stratum: Cluster, places: Mapping[Id, Place]) -> Band:
        own = [places[id_] for id_ in _members(stratum)]
        left, right = min((p.left for p in own), default=0.0), max((p.right for p in own), default=0.0)
        return Band(stratum.title, left, right)


def _reached(start: Id, after: Mapping[Id, Sequence[Id]]) -> set[Id]:
    found, waiting = {start}, [start]
    while waiting:
        new = [id_ for id_ in after.get(waiting.pop(), ()) if id_ not in found]
        found.update(new)
        waiting += new
    return found


def _members(cluster: Cluster) -> list[Id]:
    return [*cluster.boxes, *(id_ for loop in cluster.loops for id_ in _members(loop))]
