"""SVG pictures: whole, well-formed, without boxes that touch, and drawn from left to right."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Flow
from headrace.errors import CycleThroughBlockingInput, GuardMissing, NeedNotMet
from headrace.graph.node import FlowGraph
from headrace.view import Picture, picture_of, to_svg
from headrace.view.picture import ArrowKind
from headrace.view.svg import PictureLayout, layout_of, text_width
from tests.analysis import every_feature
from tests.analysis.graphs import graphs

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def assert_well_placed(picture: Picture) -> None:
    layout = layout_of(picture)
    assert layout.places.keys() == {box.id for box in picture.boxes}
    for one, other in combinations(layout.places.values(), 2):
        beside = abs(one.x - other.x) >= (one.width + other.width) / 2 - 1e-6
        below = abs(one.y - other.y) >= (one.height + other.height) / 2 - 1e-6
        assert beside or below
    for number, arrow in enumerate(picture.arrows):
        assert number not in layout.backward or arrow.kind in (ArrowKind.BACK, ArrowKind.DELAY)
        if number not in layout.backward:
            assert layout.places[arrow.source].right < layout.places[arrow.target].left
    for place in layout.places.values():
        assert place.left >= 0
        assert place.right <= layout.width + 1e-6
        assert place.y - place.height / 2 >= -1e-6
        assert place.y + place.height / 2 <= layout.height + 1e-6
    for left, right in zip(layout.bands, layout.bands[1:], strict=False):
        assert left.right < right.left
    assert_labels_are_clear(picture, layout)


def assert_labels_are_clear(picture: Picture, layout: PictureLayout) -> None:
    """No label touches a box, the edge of a band, another label or a line, also not its own."""
    forward = {n: arrow for n, arrow in enumerate(picture.arrows) if n not in layout.backward}
    labels = [
        (course.label - text_width(forward[n].label), course.label, course.y - 13, course.y - 3)
        for n, course in layout.courses.items()
        if forward[n].label
    ]
    for one, other in combinations(labels, 2):
        assert one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
    for left, right, top, bottom in labels:
        for place in layout.places.values():
            across = left < place.right and place.left < right
            assert not (across and top < place.y + place.height / 2 and bottom > place.y - place.height / 2)
        for band in layout.bands:
            assert all(not left < edge < right for edge in (band.left - 8, band.right + 8))
        for n, arrow in forward.items():
            course, source = layout.courses[n], layout.places[arrow.source]
            straight = [(source.right, course.start, source.y)]
            straight += [(bend.left, bend.right, bend.y) for bend in layout.bends[n]]
            straight.append((course.end, layout.places[arrow.target].left, course.y))
            for start, end, y in straight:
                assert not (left < end and start < right and top < y < bottom)
            for (_, begin, _), (end, _, _) in pairwise(straight):
                assert end <= left + 1e-6 or begin >= right - 1e-6, "a line turns where a label stands"


@settings(max_examples=50)
@given(graphs(legal=True))
def test_any_flow_is_well_placed_and_whole(graph: FlowGraph) -> None:
    try:
        picture = picture_of(graph)
    except (CycleThroughBlockingInput, GuardMissing, NeedNotMet):
        assume(False)
        raise
    assert_well_placed(picture)
    shown = texts(to_svg(picture))
    for line in (line for box in picture.boxes for line in box.lines):
        assert line in shown


def test_loops_and_delays_go_round_below() -> None:
    picture = picture_of(every_feature.flow)
    assert_well_placed(picture)
    svg = to_svg(picture)
    assert {"goes round", "next tick", "stratum 3"} <= {*texts(svg)}
    assert to_svg(picture_of(every_feature.flow)) == svg


@given(st.text(min_size=1).filter(str.strip))
def test_any_name_is_text(name: str) -> None:
    flow = hr.Flow(name)
    flow.sink(name, flow.source(name, int))
    svg = to_svg(picture_of(flow))
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", " ", name)


@pytest.mark.parametrize("part", ["http://", "https://", "<script", "url(", "@import"])
def test_nothing_is_fetched(part: str) -> None:
    svg = to_svg(picture_of(every_feature.flow)).replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert part not in svg


def test_rows_kept_for_the_next_tick_go_on_to_the_right() -> None:
    flow = hr.Flow("later", ticks="given")
    words = flow.source("words", int)
    flow.sink("later", words.defer_tick())
    picture = picture_of(flow)
    assert ArrowKind.DELAY in {arrow.kind for arrow in picture.arrows}
    assert not layout_of(picture).backward
    assert_well_placed(picture)


def test_a_picture_grows_with_its_boxes_not_with_their_square() -> None:
    def size(sources: int) -> int:
        flow = Flow("wide")
        stream = flow.source("s0", int)
        for number in range(1, sources):
            stream = stream.union(flow.source(f"s{number}", int))
        flow.sink("all", stream)
        return len(to_svg(picture_of(flow)))

    assert size(300) < 2.5 * size(150)
