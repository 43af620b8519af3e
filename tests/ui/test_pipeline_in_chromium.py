"""The page of a pipeline in a real browser: graph, runs, rows, changes, expectations, by clicks and keys."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from headrace.pipelines.event_log import EventRecord
from tests.pipelines.project import Project
from tests.pipelines.stored_pipeline import StoredPipeline, name_of
from tests.ui.conftest import HOSTILE, Started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.verify
Start = Callable[..., Started]

HOSTILE_NAME = "<img src=x onerror=document.title='hacked'>"
ERROR = "P804 QueryRefused: no column 'x'\n\n  q.sql:3   SELECT <b>x</b>\n\nFix: name another one"
ORDERS = pa.table({"id": range(250), "city": [("bath", "cork", HOSTILE)[at % 3] for at in range(250)]})
TOTALS = pa.table({"city": ["bath", "cork"], "orders": [84, 83]})
LATER = pa.table({"city": ["bath", "cork"], "orders": [84, 90]})
DROPPED = pa.table({"id": [7, 8], "failed_expectations": [["cheap"], ["cheap", "whole"]]})
COUNTS = [{"name": "cheap", "passed": 248, "failed": 2}, {"name": "whole", "passed": 249, "failed": 1}]


READS = {
    "totals": {"table spark_catalog.default.orders": 1},
    HOSTILE_NAME: {"table spark_catalog.default.orders": 1},
    "after": {f"table {name_of(HOSTILE_NAME)}": 1},
    "orders__headrace_dropped": {"files /in/orders": {}},
}


def completed(table: str, before: int, after: int, **more: Any) -> EventRecord:
    return EventRecord("table", table_name=str(name_of(table)), state="COMPLETED", method="incremental",
                       version_before=before, version_after=after, seconds=0.25, **more)  # fmt: skip


@pytest.fixture
def pipeline(tmp_path: Path) -> StoredPipeline:
    """Orders with expectations, totals of two runs, a table that failed and one that was skipped for it."""
    made = StoredPipeline(tmp_path)
    tables = {
        "orders": [ORDERS], "totals": [TOTALS], HOSTILE_NAME: [TOTALS], "after": [TOTALS],
        "orders__headrace_dropped": [DROPPED],
    }  # fmt: skip
    made.run(
        tables,
        reads=READS,
        failed={"orders__headrace_dropped": {"cheap": 2, "whole": 1}},
        records=[completed("orders", 0, 1, expectations=COUNTS, reason="first <i>run</i>")],
    )
    made.run(
        {"totals": [LATER]},
        reads=READS,
        records=[
            completed("totals", 1, 2, rows_inserted=1, rows_deleted=1, rows=2),
            EventRecord("table", table_name=str(name_of(HOSTILE_NAME)), state="FAILED", error=ERROR),
            EventRecord("table", table_name=str(name_of("after")), state="SKIPPED"),
        ],
    )
    return made


@pytest.fixture
def page(pipeline: StoredPipeline) -> Iterator[str]:
    started = Started(pipeline.root, "pipeline", "ui")
    yield started.url
    started.end()


def row_of(tab: Any, panel: str, text: str) -> Any:
    return tab.locator(f"#{panel} tbody tr").filter(has_text=text).first


def select(tab: Any, panel: str) -> None:
    tab.get_by_role("tab", name=panel).click()


def test_the_graph_has_freshness_and_failures(page: str, tab: Any) -> None:
    tab.goto(page)
    assert "token" not in tab.url
    row_of(tab, "tables", "totals").wait_for()
    assert tab.title() == "by hand · Headrace"
    picture = tab.get_by_role("group", name="The tables and what they read")
    assert picture.locator(".box.bad .freshness").all_text_contents() == ["failed", "skipped"]
    assert picture.locator(".box.good .freshness").all_text_contents() == ["250 rows", "2 rows"]
    assert (
        tab.get_by_role("alert").inner_text() == f"1 table failed:\n{HOSTILE_NAME}: {ERROR.splitlines()[0]}"
    )
    assert tab.get_by_label(f"Error of {HOSTILE_NAME}").inner_text() == ERROR
    assert "no analysis is kept" in tab.locator("#tables").inner_text().lower()
    assert re.search("just now|s ago", row_of(tab, "tables", "totals").inner_text())
    assert tab.locator("main img, main b, main script").count() == 0


def test_runs_have_tables_and_reasons_and_changes(page: str, tab: Any) -> None:
    tab.goto(page)
    select(tab, "Runs")
    assert row_of(tab, "runs", "failed").locator("td").nth(0).inner_text() == "2"
    tab.get_by_role("button", name="Tables of run 1").click()
    tab.locator("#runs").get_by_text("first <i>run</i>").wait_for()
    tab.get_by_text("cheap: 2 rows failed").wait_for()
    tab.get_by_role("button", name="All runs").click()
    tab.get_by_role("button", name="Tables of run 2").click()
    failed = row_of(tab, "runs", HOSTILE_NAME)
    failed.locator("summary").click()
    assert failed.locator("pre").inner_text() == ERROR
    tab.get_by_role("button", name="What changed in totals in run 2").click()
    tab.get_by_text("2 of 2 changed rows: 1 inserted, 1 deleted.").wait_for()
    rows = [row.locator("td").all_inner_texts() for row in tab.locator("#changes tbody tr").all()]
    assert rows == [["\u22121", "cork", "83"], ["+1", "cork", "90"]]
    tab.locator("#changes-search").fill("90")
    tab.locator("#changes tbody tr").nth(1).wait_for(state="detached")
    tab.locator("#changes-view").select_option(str(name_of("orders")))
    tab.get_by_text("Of no run that changed it").wait_for()


def test_rows_have_pages_and_search(page: str, tab: Any) -> None:
    tab.goto(page)
    row_of(tab, "tables", "orders").get_by_role("button", name="Rows of orders").click()
    row_of(tab, "rows", "bath").wait_for()
    seen: list[str] = []
    for _ in range(3):
        seen += tab.locator("#rows tbody tr td:first-child").all_inner_texts()
        later = tab.get_by_role("button", name="Next")
        if later.is_enabled():
            first = tab.locator("#rows tbody tr td:first-child").first.inner_text()
            later.click()
            tab.wait_for_function(
                "before => document.querySelector('#rows tbody td').textContent !== before", arg=first
            )
    assert seen == [str(at) for at in range(250)]
    tab.get_by_role("tabpanel", name="Rows").get_by_label("Search").fill("ONERROR")
    tab.get_by_text("83 matching “ONERROR” of 250 rows.").wait_for()
    assert tab.locator("#rows img").count() == 0


def test_expectations_lead_to_dropped_rows_with_their_reasons(page: str, tab: Any) -> None:
    tab.goto(page)
    select(tab, "Expectations")
    cells = row_of(tab, "expectations", "whole").locator("td").all_inner_texts()
    assert (cells[0], cells[4], cells[5]) == ("orders", "1 of 250", "1 of 252")
    tab.get_by_role("tab", name="Rows").click()
    tab.locator("#view").select_option(label="orders: dropped rows")
    row_of(tab, "rows", '["cheap", "whole"]').wait_for()


def test_the_page_follows_runs_and_new_tables(page: str, tab: Any, pipeline: StoredPipeline) -> None:
    tab.goto(page)
    select(tab, "Rows")
    tab.locator("#view").select_option(str(name_of("totals")))
    row_of(tab, "rows", "90").wait_for()
    pipeline.run({"totals": [pa.table({"city": ["bath"], "orders": [123456]})]})
    row_of(tab, "rows", "123,456").wait_for()
    select(tab, "Tables")
    pipeline.run({"newcomer": [TOTALS]})
    row_of(tab, "tables", "newcomer").wait_for()
    tab.locator(".picture .box").filter(has_text="newcomer").click()
    tab.get_by_text("Rows of newcomer").wait_for()


def test_a_redrawn_table_keeps_the_focus(page: str, tab: Any, pipeline: StoredPipeline) -> None:
    tab.goto(page)
    button = row_of(tab, "tables", "totals").get_by_role("button", name="Runs of totals")
    button.focus()
    pipeline.run({"totals": [TOTALS]}, reads=READS)
    tab.locator("#figures dd").get_by_text("3: completed").wait_for()
    assert tab.evaluate("document.activeElement.getAttribute('aria-label')") == "Runs of totals"


def test_it_can_be_used_by_keys_alone(page: str, tab: Any) -> None:
    tab.goto(page)
    row_of(tab, "tables", "totals").wait_for()
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.role") == "tab":
            break
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.textContent") == "Runs"
    tab.get_by_role("button", name="Tables of run 2").focus()
    tab.keyboard.press("Enter")
    tab.get_by_role("button", name="What changed in totals in run 2").focus()
    tab.keyboard.press("Enter")
    tab.get_by_text("2 of 2 changed rows").wait_for()
    assert tab.evaluate("document.activeElement.textContent") == "Changes"
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.press("Shift+Tab")
    assert tab.evaluate("document.activeElement.id") == "view"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_can_be_read_and_have_names(page: str, tab: Any, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    tab.goto(page)
    for panel in ("Tables", "Runs", "Rows", "Changes", "Expectations"):
        select(tab, panel)
        if panel == "Changes":
            tab.locator("#changes-view").select_option(str(name_of("totals")))
        tab.locator("[role=tabpanel]:not([hidden]) th").first.wait_for()
        unnamed = tab.evaluate(
            "[...document.querySelectorAll('button, input, select, meter, [role=region]')].filter(e =>"
            " !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML)"
        )
        assert unnamed == []
        assert tab.evaluate(CONTRASTS) == []


# Texts of less contrast with their ground than WCAG's AA asks for.
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("main *, header *, #figures *, #failure")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const left = "svg, [hidden], :disabled, .visually-hidden, select";
    if (!own || element.closest(left) || !element.checkVisibility()) continue;
    const [one, other] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) low.push(`${element.tagName} ${element.textContent.slice(0, 40)} ${ratio.toFixed(2)}`);
  }
  return low;
}"""


# --- a project that has run -----------------------------------------------------------------------

SQL = """
CREATE MATERIALIZED VIEW totals AS SELECT k, count(*) AS n FROM events GROUP BY k;
CREATE MATERIALIZED VIEW checked (CONSTRAINT small EXPECT (id < 5) ON VIOLATION DROP ROW)
AS SELECT * FROM events;
CREATE MATERIALIZED VIEW of_spark TBLPROPERTIES ('headrace.refresh_policy' = 'full')
AS SELECT k, max(id) AS most FROM events GROUP BY k;
"""
PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def events():
    return SparkSession.active().readStream.schema("id INT, k STRING").json("in")
"""


@pytest.mark.spark
def test_a_row_is_explained_by_its_flow_or_by_what_agrees(
    tmp_path: Path, tab: Any, spark: SparkSession
) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=PYTHON, b_sql=SQL)
    project.add("in", 1, [{"id": at, "k": "ab"[at % 2]} for at in range(6)])
    assert not project.run().failed
    then = time.time() - 3600
    started = Started(project.root, "pipeline", "ui")
    try:
        tab.goto(started.url)
        row_of(tab, "tables", "totals").wait_for()
        assert "analysis" not in tab.locator("#tables").inner_text()
        assert tab.locator(".picture .box.good").count() == 4
        tab.get_by_role("button", name="Rows of totals").click()
        tab.get_by_role("button", name=re.compile('^Why is .*"b"')).click()
        dialog = tab.get_by_role("dialog")
        dialog.get_by_text("It comes from these source rows:").wait_for()
        shown = [row.locator("td").all_inner_texts() for row in dialog.locator("tbody tr").all()]
        assert shown == [[str(at), "b", "1", "needed"] for at in (1, 3, 5)]
        dialog.get_by_text("The search ran the table's flow on the inputs").wait_for()
        tab.keyboard.press("Escape")
        assert tab.evaluate("document.activeElement.textContent") == "Why?"
        tab.locator("#view").select_option(str(name_of("of_spark")))
        tab.get_by_role("button", name=re.compile('^Why is .*"a"')).click()
        dialog.get_by_text("Which rows it was made from is not known: the policy is full.").wait_for()
        dialog.get_by_text("table spark_catalog.default.events: 3 with k = 'a'").first.wait_for()
        assert "CREATE MATERIALIZED VIEW of_spark" in dialog.inner_text()
        tab.keyboard.press("Escape")
        select(tab, "Expectations")
        tab.get_by_role("button", name="Dropped rows of checked").click()
        row_of(tab, "rows", '["small"]').wait_for()
        assert then < project.path("totals").stat().st_mtime
    finally:
        started.end()
