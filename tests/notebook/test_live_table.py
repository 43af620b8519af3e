"""Live tables of sinks: what they show, how often, and in a notebook and a browser."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Flow, col
from headrace.engine.change import UnknownSink
from headrace.engine.live_rows import LiveRow, LiveRows
from headrace.engine.live_table import RateLimited
from headrace.errors import BadInput
from tests.browser import chromium
from tests.golden import assert_golden
from tests.notebook.execution import run_cells, text_of, without_line_numbers
from tests.notebook.test_html import Seen

SCRIPT = Path(hr.__file__).parent / "engine" / "live_table.js"


class Order(NamedTuple):
    city: str
    cents: int


@pytest.fixture
def engine() -> hr.Engine:
    flow = Flow("revenue")
    orders = flow.table("orders", Order)
    flow.sink("totals", orders.group_by("city").agg(cents=hr.sum(col.cents)))
    return hr.Engine(flow)


def lines(table: Any) -> list[tuple[int, int, str]]:
    return [(row["change"], row["copies"], " ".join(row["cells"])) for row in table.table["rows"]]


def test_a_table_shows_what_a_tick_changed(engine: hr.Engine) -> None:
    table = engine.watch("totals")
    engine.tick(orders=[hr.insert(Order("bath", 5)), hr.insert(Order("york", 2))])
    assert lines(table) == [(1, 1, "bath 5"), (1, 1, "york 2")]
    engine.tick(orders=[hr.insert(Order("bath", 1))])
    assert lines(table) == [(-1, 0, "bath 5"), (1, 1, "bath 6"), (0, 1, "york 2")]
    engine.tick()
    assert lines(table) == [(0, 1, "bath 6"), (0, 1, "york 2")]
    assert repr(table) == "totals, tick 3\ncity  cents\nbath  6\nyork  2\n2 rows"


def test_a_table_that_is_watched_later_says_since_when(engine: hr.Engine) -> None:
    engine.tick(orders=[hr.insert(Order("bath", 5)), hr.insert(Order("york", 2))])
    table = engine.watch("totals")
    engine.tick(orders=[hr.insert(Order("bath", 1))])
    assert lines(table) == [(-1, 0, "bath 5"), (1, 1, "bath 6")]
    assert table.table["note"] == "1 row; rows changed since tick 1"


def test_a_limit_counts_the_rest(engine: hr.Engine) -> None:
    table = engine.watch("totals", limit=2)
    engine.tick(orders=[hr.insert(Order(city, 1)) for city in "abcde"])
    assert [text for *_, text in lines(table)] == ["d 1", "e 1"]
    assert table.table["note"] == "5 rows, 2 shown"
    assert engine.watch("totals", limit=3) is table
    assert table.table["note"] == "5 rows, 3 shown"


def test_a_closed_table_costs_its_engine_nothing(engine: hr.Engine) -> None:
    table = engine.watch("totals")
    table.close()
    engine.tick(orders=[hr.insert(Order("bath", 5))])
    assert lines(table) == []
    assert engine._listeners == ()
    assert engine.watch("totals") is not table


def test_signals_are_watched_through_a_replay() -> None:
    flow = Flow("sums")
    flow.sink("sum", flow.signal("a", float) + 1)
    engine = hr.Engine(flow)
    table = engine.watch("sum", limit=2)
    engine.replay(a=[1.0, 2.0, 3.0])
    assert [text for *_, text in lines(table)] == ["3.0", "4.0"]
    assert table.table["note"] == "3 rows, 2 shown"


def test_large_ticks_in_columns_are_watched() -> None:
    import polars as pl

    flow = Flow("numbers")
    flow.sink("even", flow.source("n", int).filter(col.value % 2 == 0))
    engine = hr.Engine(flow, columnar="always")
    table = engine.watch("even")
    engine.tick(n=pl.DataFrame({"value": [1, 2, 3, 4]}))
    assert [text for *_, text in lines(table)] == ["2", "4"]


changes = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 2, -1])), max_size=6)


@given(st.lists(changes, max_size=8), st.integers(1, 5))
def test_shown_rows_are_those_of_the_sum_of_all_changes(ticks: list[Any], limit: int) -> None:
    live, total = LiveRows(False, lambda row: row[0], limit), Counter[int]()
    for tick in ticks:
        live.apply(tick)
        for row, weight in tick:
            total[row] += weight
        shown = [(row.row, row.copies) for row in live.take() if row.copies]
        there = {row: copies for row, copies in total.items() if copies > 0}
        assert live.count == sum(there.values())
        assert len(shown) >= min(limit, len(there))
        assert shown == sorted(shown)
        assert set(shown) <= there.items()


def test_an_append_stream_shows_its_latest_rows() -> None:
    live = LiveRows(True, lambda row: row[0], 3)
    live.apply([(1,), (2,)])
    assert live.take() == [LiveRow(1, 1, 1), LiveRow(2, 1, 1)]
    live.apply([(3,), (4,)])
    assert live.take() == [LiveRow(2, 0, 1), LiveRow(3, 1, 1), LiveRow(4, 1, 1)]
    live.apply([(n,) for n in range(5, 10)])
    assert [row.row for row in live.take()] == [7, 8, 9]
    assert live.count == 9


def test_a_rate_limit_serves_the_last_request_through_the_loop() -> None:
    now, served = [0.0], []
    throttle = RateLimited(lambda: served.append(now[0]), 0.1, lambda: now[0])

    async def requests() -> None:
        loop, later = asyncio.get_running_loop(), []
        loop.call_later = lambda wait, action: later.append((wait, action))  # type: ignore[method-assign]
        for now[0] in (1.0, 1.05, 1.0625):
            throttle()
        assert served == [1.0]
        now[0] = 1.25  # the loop was busy until then
        throttle()
        assert served == [1.0, 1.25]
        (_, late) = later.pop()
        late()
        assert served == [1.0, 1.25]
        now[0] = 1.3125
        throttle()
        (wait, late) = later.pop()
        assert wait == pytest.approx(0.0375)
        now[0] = 1.375
        late()
        assert served == [1.0, 1.25, 1.375]

    asyncio.run(requests())


def test_a_printed_table_is_that_of_the_last_tick_within_a_loop_too(engine: hr.Engine) -> None:
    async def cell() -> str:
        table = engine.watch("totals")
        for cents in (1, 2):
            engine.tick(orders=[hr.insert(Order("bath", cents))])
        return repr(table)

    assert "bath  3" in asyncio.run(cell())


def test_a_table_that_cannot_be_drawn_costs_the_caller_no_changes(
    engine: hr.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine.watch("totals")
    monkeypatch.setattr("headrace.engine.live_table._plain", lambda row: 1 / 0)
    assert len(engine.tick(orders=[hr.insert(Order("bath", 5))])["totals"]) == 1
    assert len(engine.tick(orders=[hr.insert(Order("york", 5))])["totals"]) == 1
    assert [record.getMessage() for record in caplog.records] == ["the live table of totals stopped"]


def test_where_no_widgets_are_the_table_is_html(engine: hr.Engine) -> None:
    table = engine.watch("totals")
    engine.tick(orders=[hr.insert(Order("<b>bath</b>", 5000)), hr.insert(Order("york", 2))])
    engine.tick(orders=[hr.insert(Order("york", 2))])
    bundle = table._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    shown = Seen(data["text/html"]).texts
    assert shown == ["totals, tick 2", "city", "cents", "<b>bath</b>", "5,000", "york", "4", "2 rows"]


def test_a_rate_limit_without_a_loop_serves_every_request() -> None:
    served: list[int] = []
    throttle = RateLimited(lambda: served.append(1), 1e9)
    throttle()
    throttle()
    assert len(served) == 2


def test_mistakes_say_what_to_do(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setitem(sys.modules, "anywidget", None)
    mistakes: list[tuple[str, Any]] = [("totals", 20), ("total", 20), ("totals", 0), ("totals", "5")]
    for sink, limit in mistakes:
        with pytest.raises((BadInput, UnknownSink)) as error:
            engine.watch(sink, limit=limit)
        texts.append(without_line_numbers(error.value))
    assert_golden(Path(__file__).parent / "watch_mistakes.txt", "\n\n".join(texts) + "\n")


def test_a_notebook_shows_the_widget_as_it_stands_after_the_last_tick(tmp_path: Path) -> None:
    made = run_cells(
        tmp_path,
        'import headrace as hr\nflow = hr.Flow("f")\n'
        'flow.sink("large", flow.source("n", int).filter(hr.col.value > 2))\nengine = hr.Engine(flow)',
        'table = engine.watch("large", limit=2)\ntable',
        "for n in range(1000):\n    engine.tick(n=[n])",
        "import asyncio\nwhile table.table['title'] != 'large, tick 1,000':\n    await asyncio.sleep(0.01)\n"
        "table.table['note']",
    )
    (output,) = made[1].outputs
    assert "application/vnd.jupyter.widget-view+json" in output.data
    assert "no rows" in output.data["text/html"]
    assert text_of(made[3]) == "'997 rows, 2 shown'"


PAGE = """
import(URL.createObjectURL(new Blob([script], {type: 'text/javascript'}))).then(({ default: widget }) => {
  let update;
  window.model = { table, get: () => model.table, on: (_, f) => { update = f; }, off: () => {} };
  window.change = (table) => { model.table = table; update(); };
  widget.render({ model, el: document.body });
  window.ready = true;
});
"""


def test_a_browser_draws_the_table_with_changes_marked(engine: hr.Engine) -> None:
    table = engine.watch("totals")
    engine.tick(orders=[hr.insert(Order("<b>bath</b>", 5)), hr.insert(Order("york", 2))])
    first = table.table
    engine.tick(orders=[hr.insert(Order("york", 2))])
    script, before = json.dumps(SCRIPT.read_text()), json.dumps(first)
    with chromium() as browser:
        page = browser.new_page()
        page.set_content("<html><body></body></html>")
        page.evaluate(f"() => {{ const script = {script}, table = {before}; {PAGE} }}")
        page.wait_for_function("window.ready")
        assert page.locator("tbody tr.came").all_inner_texts() == ["+\t<b>bath</b>\t5", "+\tyork\t2"]
        page.evaluate("change", table.table)
        assert page.locator("tbody tr").all_inner_texts() == [
            "\t<b>bath</b>\t5",
            "\N{MINUS SIGN}\tyork\t2",
            "+\tyork\t4",
        ]
        assert page.locator("tr.went.gone").count() == 1
        assert page.locator("caption").inner_text() == "totals, tick 2"
