"""Pictures of flows: the data, and the two texts read back by small parsers."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import CycleThroughBlockingInput, GuardMissing, NeedNotMet
from headrace.graph.node import FlowGraph
from headrace.view import Picture, picture_of, to_dot, to_mermaid
from headrace.view.picture import ArrowKind, Cluster
from tests.analysis import closing_price, every_feature
from tests.analysis.graphs import graphs
from tests.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
NAMES = st.text(min_size=1).filter(str.strip)


class Drawn(NamedTuple):
    """What a reader of the text finds: boxes (id to text lines), arrows, and the cluster path of each box."""

    boxes: dict[str, list[str]]
    arrows: list[tuple[str, str, str]]
    clusters: dict[str, tuple[str, ...]]


def read_mermaid(text: str) -> Drawn:
    drawn, path = Drawn({}, [], {}), []
    lines = iter(text.splitlines())
    assert [next(lines), next(lines)[:7], next(lines), next(lines)] == [
        "---",
        "title: ",
        "---",
        "flowchart LR",
    ]
    for line in (raw.strip() for raw in lines):
        if match := re.fullmatch(r'subgraph (\w+)\["([^"]*)"\]', line):
            path.append(match[1])
        elif line == "end":
            path.pop()
        elif match := re.fullmatch(r'(n\d+)[\[(/]+"([^"<>`&]*(?:<br/>[^"<>`&]*)*)"[\])/]+:::\w+', line):
            drawn.boxes[match[1]] = [unescape_mermaid(part) for part in match[2].split("<br/>")]
            drawn.clusters[match[1]] = tuple(path)
        elif match := re.fullmatch(r'(n\d+) (-->|==>|--x|-\.->)(?:\|"([^"]*)"\|)? (n\d+)', line):
            drawn.arrows.append((match[1], match[4], match[3] or ""))
        else:
            assert re.fullmatch(r"(classDef \w+ [\w:#,]+)|(linkStyle [\d,]+ stroke:#\w+)", line), line
    assert path == []
    return drawn


def unescape_mermaid(text: str) -> str:
    return re.sub(r"#(\d+);", lambda m: chr(int(m[1])), text)


def read_dot(text: str) -> Drawn:
    drawn, path = Drawn({}, [], {}), []
    string = r'"((?:[^"\\]|\\.)*)"'
    first, *rest = text.splitlines()
    assert re.fullmatch(rf"digraph {string} \{{", first)
    assert rest.pop() == "}"
    for line in (raw.strip() for raw in rest):
        if match := re.fullmatch(r"subgraph cluster_(\w+) \{", line):
            path.append(match[1])
        elif line == "}":
            path.pop()
        elif match := re.fullmatch(rf'(n\d+) \[label={string}, [\w=, "#]+\];', line):
            drawn.boxes[match[1]] = [
                unescape_dot(part) for part in re.findall(r"((?:[^\\]|\\[^n])*)(?:\\n|$)", match[2])[:-1]
            ]
            drawn.clusters[match[1]] = tuple(path)
        elif match := re.fullmatch(rf"(n\d+) -> (n\d+)(?: \[(?:label={string})?.*\])?;", line):
            drawn.arrows.append((match[1], match[2], match[3] or ""))
        else:
            assert re.fullmatch(rf"(label={string}; [\w=; ]+;)|((node|edge) \[[\w=, ]+\];)", line), line
    assert path == []
    return drawn


def unescape_dot(text: str) -> str:
    return html.unescape(re.sub(r"\\(.)", r"\1", text))


def paths(picture: Picture) -> dict[str, tuple[str, ...]]:
    def walk(cluster: Cluster, above: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        path = (*above, cluster.id)
        found = dict.fromkeys(cluster.boxes, path)
        for loop in cluster.loops:
            found |= walk(loop, path)
        return found

    return {box: path for stratum in picture.strata for box, path in walk(stratum, ()).items()}


def assert_drawn(drawn: Drawn, picture: Picture) -> None:
    assert drawn.boxes == {box.id: list(box.lines) for box in picture.boxes}
    assert drawn.arrows == [(a.source, a.target, a.label) for a in picture.arrows]
    assert drawn.clusters == paths(picture)


@pytest.mark.parametrize("module", [closing_price, every_feature])
@pytest.mark.parametrize(("write", "ending"), [(to_mermaid, "mermaid"), (to_dot, "dot")])
def test_the_text_is_as_it_should_be(module, write, ending) -> None:
    name = module.__name__.rpartition(".")[2]
    assert_golden(GOLDEN / f"{name}.{ending}", write(picture_of(module.flow)))


@settings(max_examples=50)
@given(graphs(legal=True))
def test_both_texts_hold_the_whole_picture(graph: FlowGraph) -> None:
    try:
        picture = picture_of(graph)
    except (CycleThroughBlockingInput, GuardMissing, NeedNotMet):
        assume(False)
        raise
    assert_drawn(read_mermaid(to_mermaid(picture)), picture)
    assert_drawn(read_dot(to_dot(picture)), picture)


@given(NAMES, NAMES, NAMES)
def test_any_name_can_be_drawn(flow_name: str, source: str, sink: str) -> None:
    flow = hr.Flow(flow_name)
    flow.sink(sink, flow.source(source, int))
    picture = picture_of(flow)
    assert_drawn(read_mermaid(to_mermaid(picture)), picture)
    assert_drawn(read_dot(to_dot(picture)), picture)


@pytest.mark.parametrize(
    "name",
    ['say "hi"', "<b>", "a & b", "&lt;", "two\nlines", "#35;", "fa:fa-ban", "`x`", "\\n", "größer ✓ 漢"],
)
def test_markup_in_names_stays_text(name: str) -> None:
    flow = hr.Flow(name)
    flow.sink(name, flow.source(name, int))
    picture = picture_of(flow)
    for drawn in (read_mermaid(to_mermaid(picture)), read_dot(to_dot(picture))):
        assert drawn.boxes["n0"] == [f"source {name!r}"]
        assert drawn.boxes["n1"] == [f"sink {name!r}"]


@pytest.mark.parametrize("name", ["</pre><script>x()</script>", "a & b", 'say "hi"', "\\n", "größer ✓ 漢"])
def test_a_title_stays_text_too_wherever_the_picture_stands(name: str) -> None:
    flow = hr.Flow(name)
    flow.sink("seen", flow.source("numbers", int))
    mermaid, dot = to_mermaid(picture_of(flow)), to_dot(picture_of(flow))
    title = mermaid.splitlines()[1].removeprefix("title: ")
    assert json.loads(title) == name
    assert not set("<>&") & set(title)
    for line in dot.splitlines()[:2]:
        assert not set("<>") & set(line)
    quoted = re.search(r'label="((?:[^"\\]|\\.)*)"', dot)
    assert quoted is not None
    assert html.unescape(re.sub(r"\\(.)", r"\1", quoted[1])) == name


def test_the_kinds_of_edges_are_told_apart() -> None:
    kinds = {(a.source, a.target): a.kind for a in picture_of(every_feature.flow).arrows}
    assert kinds["n6", "n3"] is ArrowKind.BACK
    assert kinds["n11", "n12"] is ArrowKind.DELAY
    assert kinds["n1", "n11"] is ArrowKind.HANDOFF
    assert kinds["n11", "n13"] is ArrowKind.CHANGES
    assert kinds["n0", "n4"] is ArrowKind.APPEND


def test_a_picture_does_not_change_from_one_look_to_the_next() -> None:
    assert picture_of(every_feature.flow) == picture_of(every_feature.flow.graph())


def test_a_feedback_that_is_closed_by_itself_goes_round() -> None:
    flow = hr.Flow("nothing new")
    again = flow.feedback(int)
    again.close(again)
    flow.sink("out", again)
    assert [a.kind for a in picture_of(flow).arrows] == [ArrowKind.BACK, ArrowKind.APPEND]


def test_no_icon_comes_out_of_a_name() -> None:
    flow = hr.Flow("icons")
    flow.sink("out", flow.source("fa:fa-ban", int))
    assert "fa:" not in to_mermaid(picture_of(flow))
