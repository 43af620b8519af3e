"""The page in a real browser: clicks, live rows, search, why, keys alone, and a kill in between."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from tests.ui.conftest import HOSTILE, RUN, Started, put

pytestmark = pytest.mark.verify
Start = Callable[..., Started]


def rows(tab: Any) -> list[list[str]]:
    return [row.locator("td").all_inner_texts()[:2] for row in tab.locator("#rows tbody tr").all()]


def wait_for_row(tab: Any, *cells: str) -> None:
    row = tab.locator("#rows tbody tr")
    for cell in cells:
        row = row.filter(has=tab.locator("td", has_text=re.compile(f"^{re.escape(cell)}$")))
    row.first.wait_for()


def test_rows_are_live_and_hostile_ones_are_text(start: Start, folder: Path, tab: Any) -> None:
    tab.goto(start(*RUN).url)
    assert "token" not in tab.url
    tab.get_by_role("tab", name="Rows").click()
    wait_for_row(tab, "a", "4")
    put(folder, 2, ("a", 10), (HOSTILE, 5))
    wait_for_row(tab, "a", "14")
    wait_for_row(tab, HOSTILE, "5")
    assert tab.title() == "sales · Headrace"
    assert tab.locator("#rows img").count() == 0
    tab.locator("#view").select_option("dear")
    tab.get_by_text("No rows.").wait_for()


def test_numbers_are_aligned_and_have_separators(start: Start, folder: Path, tab: Any) -> None:
    put(folder, 2, ("a", 12345678901234567), ("c", -1234))
    tab.goto(start(*RUN).url)
    tab.get_by_role("tab", name="Rows").click()
    wait_for_row(tab, "a", "12,345,678,901,234,571")
    wait_for_row(tab, "c", "-1,234")
    assert tab.locator("#rows tbody td.number", has_text="-1,234").count() == 1
    assert tab.locator("#rows thead th.number", has_text="total").count() == 1
    assert tab.locator("#rows thead th.number", has_text="shop").count() == 0


def test_search_and_why_lead_to_the_source_rows(start: Start, folder: Path, tab: Any) -> None:
    put(folder, 2, (HOSTILE, 200), ("b", 7))
    tab.goto(start(*RUN).url)
    tab.get_by_role("tab", name="Rows").click()
    wait_for_row(tab, "b", "9")
    tab.keyboard.press("Escape")
    tab.get_by_label("Search").fill("ONERROR")
    tab.locator("#rows tbody tr").nth(1).wait_for(state="detached")
    assert rows(tab) == [[HOSTILE, "200"]]
    tab.get_by_label("Search").fill('"b"')
    wait_for_row(tab, "b", "9")
    tab.get_by_role("button", name=re.compile("^Why is")).click()
    dialog = tab.get_by_role("dialog")
    dialog.get_by_text("It comes from these source rows:").wait_for()
    shown = [row.all_inner_texts() for row in (r.locator("td") for r in dialog.locator("tbody tr").all())]
    assert shown == [["b", "2", "1", "needed"], ["b", "7", "1", "needed"]]
    steps = dialog.locator("li").all_inner_texts()
    assert steps == [
        "sales: read 5 rows again; 2 have shop = 'b'.",
        "These 2 rows produce it.",
        "Every one of them is needed.",
    ]


def test_rows_are_asked_for_when_their_view_has_changed(start: Start, folder: Path, tab: Any) -> None:
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url) if "/api/rows" in request.url else None)
    tab.clock.install()
    tab.goto(start(*RUN).url)
    tab.get_by_role("tab", name="Rows").click()
    tab.locator("#view").select_option("dear")
    tab.get_by_text("No rows.").wait_for()
    tab.clock.run_for(1000)
    asked.clear()
    put(folder, 2, ("a", 10))
    tab.locator("#figures dd").get_by_text("2", exact=True).wait_for()
    tab.clock.run_for(3000)
    assert asked == []
    put(folder, 3, ("a", 1000))
    wait_for_row(tab, "a", "1,000")
    asked.clear()
    tab.evaluate("""() => {
        const search = document.getElementById("search");
        for (const key of "abc") {
          search.value += key;
          search.dispatchEvent(new Event("input"));
        }
    }""")
    tab.clock.run_for(3000)
    tab.get_by_text("No rows.").wait_for()
    assert [url.partition("&")[2] for url in asked] == ["search=abc&offset=0"]


def test_a_hidden_tab_holds_no_connection(start: Start, folder: Path, tab: Any) -> None:
    tab.add_init_script("""
        window.opened = [];
        window.EventSource = class extends EventSource {
          constructor(url) { super(url); opened.push(this); }
        };
        window.hide = (hidden) => {
          Object.defineProperty(document, "hidden", { get: () => hidden, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        };
    """)
    tab.goto(start(*RUN).url)
    tab.get_by_text("Time by region").first.wait_for()
    tab.evaluate("hide(true)")
    assert tab.evaluate("opened.map((each) => each.readyState)") == [2]
    put(folder, 2, ("a", 10))
    tab.evaluate("hide(false)")
    tab.locator("#figures dd").get_by_text("2", exact=True).wait_for()
    # The figures may come before the new connection is open.
    tab.wait_for_function("opened.map((each) => each.readyState).join() == '2,1'")


def test_a_late_answer_does_not_replace_a_later_one(start: Start, folder: Path, tab: Any) -> None:
    tab.goto(start(*RUN).url)
    tab.get_by_role("tab", name="Rows").click()
    wait_for_row(tab, "a", "4")
    held: list[Any] = []
    tab.route("**/api/why*", lambda route: held.append(route))
    dialog = tab.get_by_role("dialog")
    for shop in "ab":
        tab.get_by_role("button", name=re.compile(f'^Why is .*"{shop}"')).click()
        dialog.get_by_text("Reading the sources again").wait_for()
        dialog.get_by_role("progressbar").wait_for()
        dialog.get_by_text(re.compile(r"^\d+ s of at most 40 s$")).wait_for()
        if shop == "a":
            tab.get_by_role("button", name="Close").click()
    with tab.expect_event("requestfinished", lambda request: "/api/why" in request.url):
        held[0].fulfill(json={"why_not": "the first"})
    held[1].fulfill(json={"why_not": "the second"})
    dialog.get_by_text("the second").wait_for()
    assert "the first" not in dialog.inner_text()
    tab.get_by_role("button", name="Close").click()

    held.clear()
    tab.route("**/api/rows*search=first*", lambda route: held.append(route))
    with tab.expect_request("**/api/rows*search=first*"):
        tab.get_by_label("Search").fill("first")
    tab.get_by_label("Search").fill('"b"')
    tab.locator("#rows tbody tr").nth(1).wait_for(state="detached")
    with tab.expect_event("requestfailed"):
        held[0].abort()
    assert rows(tab) == [["b", "2"]]


@pytest.mark.parametrize("flow", ["rising", "rising_and_late"])
def test_late_rows_are_shown_if_they_have_a_sink(start: Start, folder: Path, tab: Any, flow: str) -> None:
    tab.goto(start("run", f"flows.py:{flow}", *RUN[2:]).url)
    tab.get_by_role("tab", name="Late and set aside").click()
    panel = tab.get_by_role("tabpanel", name="Late and set aside")
    panel.get_by_text("Watermarks and late rows").first.wait_for()
    if flow == "rising":
        panel.get_by_text('watermark(..., late="late_rows")').wait_for()
        return
    panel.get_by_text("too_late: no row was late.").wait_for()
    put(folder, 2, (HOSTILE, 1))
    panel.get_by_text("too_late: the latest late rows").first.wait_for()
    late = panel.get_by_role("region", name="too_late")
    assert late.locator("tbody td").all_inner_texts() == [HOSTILE, "1", "1", "2"]


def test_every_tab_shows_what_it_promises(start: Start, folder: Path, tab: Any) -> None:
    put(folder, 2, ("a", 1), bad="<b>not json</b>")
    tab.goto(start(*RUN).url)
    flow = tab.get_by_role("tabpanel", name="Flow")
    flow.get_by_text("Time by region").first.wait_for()
    assert flow.locator("svg .box").count() == 5
    assert "rows/s" in flow.locator("svg .speed").first.text_content()
    tab.get_by_role("tab", name="Ticks").click()
    tab.get_by_text("The latest 2 ticks").first.wait_for()
    tab.get_by_role("tab", name="Late and set aside").click()
    tab.get_by_text("<b>not json</b>").wait_for()
    tab.get_by_role("tab", name="State").click()
    tab.get_by_text("State by operator").first.wait_for()
    assert "002.json" in tab.get_by_role("tabpanel", name="State").inner_text()
    tab.get_by_role("tab", name="Plan and code").click()
    plan = tab.get_by_role("tabpanel", name="Plan and code").inner_text()
    assert "Flow 'sales': 5 operators" in plan
    assert "def tick" in plan


def test_a_killed_run_is_told_and_its_successor_is_found(start: Start, folder: Path, tab: Any) -> None:
    first = start(*RUN)
    tab.goto(first.url)
    tab.get_by_role("tab", name="Rows").click()
    wait_for_row(tab, "a", "4")
    first.kill()
    tab.locator("#connection[data-state=lost]").wait_for()
    assert rows(tab)
    put(folder, 2, ("a", 10))
    start(*RUN, "--ui-port", str(first.port))
    tab.locator("#connection[data-state=live]").wait_for()
    wait_for_row(tab, "a", "14")
    assert "rows from before tick 2 are not shown" in tab.locator("#rows").inner_text()


def test_the_end_of_a_run_and_its_error_stay_on_the_page(start: Start, folder: Path, tab: Any) -> None:
    started = start(*[each.replace("dead_letter=bad&", "") for each in RUN])
    tab.goto(started.url)
    tab.get_by_role("tab", name="Ticks").click()
    tab.get_by_text("The latest tick").first.wait_for()
    put(folder, 2, ("a", 1), bad="oops")
    tab.get_by_role("alert").wait_for()
    assert "cannot read row 2 of in/002.json" in tab.get_by_role("alert").inner_text()
    tab.locator("#connection[data-state=ended]").wait_for()
    assert "The latest tick" in tab.locator("#ticks").inner_text()
    assert started.process.wait(30) == 1


def test_it_can_be_used_by_keys_alone(start: Start, tab: Any) -> None:
    tab.goto(start(*RUN).url)
    tab.get_by_text("Time by region").first.wait_for()
    for _ in range(10):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.role") == "tab":
            break
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.textContent") == "Ticks"
    tab.keyboard.press("End")
    assert tab.get_by_role("tabpanel", name="Plan and code").is_visible()
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.textContent") == "Flow"
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.keyboard.type("a")
    wait_for_row(tab, "a", "4")
    for _ in range(6):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent") == "Why?":
            break
    tab.keyboard.press("Enter")
    dialog = tab.get_by_role("dialog")
    dialog.get_by_text("How they were found").wait_for()
    tab.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert tab.evaluate("document.activeElement.textContent") == "Why?"


def test_landmarks_and_names_are_there_for_screen_readers(start: Start, tab: Any) -> None:
    tab.goto(start(*RUN).url)
    tab.get_by_text("Time by region").first.wait_for()
    for role in ("banner", "main", "navigation", "tablist"):
        assert tab.get_by_role(role).count() == 1, role
    assert tab.locator("#announcer[aria-live=polite]").inner_text() == "Tick 1, 3 rows in"
    tab.get_by_role("tab", name="Rows").click()
    unnamed = tab.evaluate(
        "[...document.querySelectorAll('button, input, select, [role=region]')].filter(e =>"
        " !(e.textContent.trim() || e.ariaLabel || e.labels?.length)).map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_a_checkpoint_at_rest_has_a_page(start: Start, folder: Path, tab: Any) -> None:
    run = start(*RUN)
    tab.goto(run.url)
    tab.get_by_text("Time by region").first.wait_for()
    page = start("ui", "state")
    tab.goto(page.url)
    tab.get_by_text("State by operator").first.wait_for()
    assert "tick 1," in tab.locator("#state").inner_text()
    put(folder, 2, ("c", 1))
    tab.get_by_text("tick 2").wait_for()
    tab.get_by_label("for key").fill('"c"')
    tab.keyboard.press("Enter")
    tab.get_by_text(re.compile("^State of .* for the key$")).wait_for()


def test_a_question_that_is_too_long_is_refused_with_a_sentence(start: Start, folder: Path, tab: Any) -> None:
    tab.goto(start(*RUN).url)
    tab.get_by_role("tab", name="Rows").click()
    tab.get_by_label("Search").fill("x" * 100_000)
    told = "The question is too long: 100,028 characters as an address, of 60,000 at most."
    tab.locator("#rows").get_by_text(told).wait_for()
    refused = """async () => {
        const { ask } = await import("/connection.js");
        window.fetch = async () => new Response("Service Unavailable", { status: 503 });
        return ask("api/state").catch((error) => error.message);
    }"""
    assert tab.evaluate(refused) == "The server refused the question: Service Unavailable"
