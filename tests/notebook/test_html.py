"""What a notebook shows of flows, streams and results."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from subprocess import run
from typing import NamedTuple

import pytest

import headrace as hr
from headrace import Flow, col
from headrace.analysis import analyse
from headrace.analysis.flow_report import MEANING
from headrace.compute.client.subscription import TimedUpdate, UpdateBatch
from headrace.io.in_process import Memory
from headrace.view import picture_of, to_mermaid


class Order(NamedTuple):
    city: str
    cents: int


class Seen(HTMLParser):
    """Texts of cells, and tags that are open at the end."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        assert tag not in ("script", "link", "img", "iframe")

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data)


def shown(value: object) -> list[str]:
    html: str = value._repr_html_()  # type: ignore[attr-defined]
    return Seen(html).texts


@pytest.fixture
def flow() -> Flow:
    made = Flow("revenue <by> city")
    orders = made.table("orders", Order)
    made.sink("totals", orders.group_by("city").agg(cents=hr.sum(col.cents)))
    return made


def test_a_group_shows_its_keys_and_the_columns_of_its_stream(flow: Flow) -> None:
    orders = flow.source("more", Order)
    groups = orders.group_by("city", half=col.cents / 2)
    assert shown(groups)[:6] == ["key", "city", "city", "half", "cents / 2", "more, of flow "]
    assert repr(groups) == "Grouped('revenue <by> city', by (city, half))"


def test_a_verdict_shows_its_meaning(flow: Flow) -> None:
    (verdict,) = analyse(flow.graph()).verdicts.values()
    assert shown(verdict)[1:] == ["deterministic and live", MEANING[verdict]]


def test_a_flow_is_its_picture(flow: Flow) -> None:
    assert {"revenue <by> city", "source 'orders'", "sink 'totals'"} <= {*shown(flow)}
    assert "no sink" in " ".join(shown(Flow("empty")))


def test_a_stream_shows_its_columns(flow: Flow) -> None:
    orders = Flow("f").source("orders", Order)
    assert shown(orders) == [
        "orders, of flow ",
        "f",
        "column",
        "type",
        "city",
        "str",
        "cents",
        "int64",
    ]
    assert shown(orders.schema)[2:] == ["city", "str", "cents", "int64"]
    assert shown(col.cents > 3) == ["cents > 3"]


def test_changes_have_signs_and_large_ones_an_end(flow: Flow) -> None:
    engine = hr.Engine(flow)
    engine.tick(orders=[hr.insert(Order("bath", 5))])
    made = engine.tick(orders=[hr.insert(Order("<b>", 2_000)), hr.insert(Order("bath", 1))])
    texts = shown(made["totals"])
    assert texts[:2] == ["city", "cents"]
    assert sorted(zip(*[iter(texts[2:])] * 3, strict=True)) == [
        ("+", "<b>", "2,000"),
        ("+", "bath", "6"),
        ("\N{MINUS SIGN}", "bath", "5"),
    ]
    assert shown(made) == ["totals", *texts]
    many = engine.tick(orders=[hr.insert(Order(str(n), n)) for n in range(100)])
    assert shown(many["totals"])[-1] == "20 of 100 rows"
    assert shown(engine) == [
        "engine",
        "flow",
        "revenue <by> city",
        "ticks",
        "3",
        "sources",
        "orders",
        "sinks",
        "totals",
    ]


def test_runs_and_tables_in_memory(flow: Flow) -> None:
    totals = Memory()
    assert shown(totals)[-1] == "no rows"
    result = hr.run(flow, {"orders": [hr.insert(Order("bath", 5))]}, {"totals": totals})
    assert shown(totals)[-2:] == ["bath", "5"]
    texts = shown(result)
    assert texts[texts.index("rows in") + 1] == "1"


def test_an_explanation_prints_plainly(flow: Flow) -> None:
    text = hr.explain(flow)
    assert repr(text) == str(text)
    assert shown(text)[0].startswith("Flow 'revenue <by> city'")


def test_nothing_of_it_is_imported_before_it_is_asked() -> None:
    code = "import sys, headrace as hr; hr.Flow, hr.Engine; print('headrace.notebook' in sys.modules)"
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_drawing_is_a_picture_in_notebooks_and_text_elsewhere(flow: Flow, tmp_path: Path) -> None:
    drawing = hr.draw(flow)
    assert {"revenue <by> city", "source 'orders'"} <= {*shown(drawing)}
    assert repr(drawing) == str(drawing) == drawing.mermaid == to_mermaid(picture_of(flow))
    for ending, text in (("svg", drawing.svg), ("mmd", drawing.mermaid), ("dot", drawing.dot)):
        drawing.save(tmp_path / f"flow.{ending}")
        assert (tmp_path / f"flow.{ending}").read_text() == text


def test_verdicts_and_aggregates_show_themselves(flow: Flow) -> None:
    analysis = analyse(flow.graph())
    assert shown(analysis)[2:] == ["totals", "deterministic and live", "the same however the input is cut"]
    assert shown(analysis.judgements["totals"])[1:] == shown(analysis)[3:]
    assert shown(hr.sum(col.cents)) == ["sum(cents)"]


def test_results_without_a_form_of_their_own_show_their_fields() -> None:
    batch = UpdateBatch(3, 5, (TimedUpdate(Order("bath", 5), 4, -1),))
    texts = shown(batch)
    assert texts[:5] == ["UpdateBatch", "lower", "3", "upper", "5"]
    assert texts[5:9] == ["updates", "row", "time", "weight"]
    assert texts[-2:] == ["4", "-1"]


def test_replayed_values_have_their_ticks() -> None:
    flow = Flow("sums")
    flow.sink("sum", flow.signal("a", float) + flow.signal("b", float))
    made = hr.Engine(flow).replay([("a", 1.0), ("b", 2.0), ("a", 3.0)])
    assert shown(made["sum"]) == ["tick", "value", "1", "3.0", "2", "5.0"]


def test_engines_and_tables_in_memory_print_what_they_are(flow: Flow) -> None:
    engine, totals = hr.Engine(flow), Memory()
    engine.tick()
    assert repr(engine) == "Engine('revenue <by> city', 1 ticks)"
    hr.run(flow, {"orders": [hr.insert(Order("bath", 5))]}, {"totals": totals})
    assert repr(totals) == "Memory(1 rows)"


def test_an_explanation_is_in_a_monospaced_font_wherever_it_is_shown(flow: Flow) -> None:
    html: str = hr.explain(flow)._repr_html_()  # type: ignore[attr-defined]
    assert re.match(r'<pre style="font-family:[^"]*monospace;[^"]*white-space:pre', html)
