"""What the page of a run knows: ticks, rows, dead letters, state; and that its failures stay its own."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Flow, col
from headrace.engine.live_rows import CurrentRows
from headrace.errors import FlowChanged
from headrace.expr.row_classes import schema_of
from headrace.io import Changelog, CsvChangelog, CsvDialect, JsonFiles, Print, TableFiles, parse_sink
from headrace.state.inspection import SlotStats
from headrace.ui import CheckpointPage, RunPage, RunSubject, run_page
from headrace.ui import view_rows as limits
from headrace.ui.run_page import _labels, flow_overview
from headrace.ui.view_rows import MAX_ASKED, ViewRows


class Sale(NamedTuple):
    shop: str
    price: int


SALES = [Sale("a", 1), Sale("b", 2), Sale("a", 3)]


def totals() -> Flow:
    flow = Flow("totals")
    flow.sink("totals", flow.source("sales", Sale).group_by(col.shop).agg(total=hr.sum(col.price)))
    return flow


SPARK = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")


def page_of(sources: Any = None, sinks: Any = None, checkpoint: str | None = None, **more: Any) -> RunPage:
    def find_why(view: str, row: str) -> dict[str, Any]:
        return {"view": view, "row": row}

    subject = RunSubject(
        totals(),
        more.get("engine", "here"),
        sources or {"sales": SALES},
        sinks or {"totals": []},
        checkpoint,
        find_why,
    )
    return RunPage(subject)


def run(page: RunPage, sources: Any = None, **more: Any) -> None:
    sinks = more.pop("sinks", {"totals": []})
    given = sources or {"sales": SALES}
    hr.run(totals(), given, sinks, tick_rows=2, on_tick=page.on_tick, observer=page.observer, **more)


def shown(page: RunPage, search: str = "") -> list[tuple[Any, ...]]:
    rows = page.rows("totals", search, 0)["rows"]
    return sorted((*row["values"], row["weight"], row["tick"]) for row in rows)


def test_rows_are_those_of_the_view_now() -> None:
    page = page_of()
    run(page)
    assert shown(page) == [("a", "4", 1, 2), ("b", "2", 1, 1)]
    assert shown(page, "B") == [("b", "2", 1, 1)]
    found = page.rows("totals", "", 0)
    assert (found["total"], found["changes"], found["since"], found["more"]) == (2, 4, None, False)
    assert json.loads(found["rows"][0]["json"]) == {"shop": "a", "total": 4}
    assert "no sink 'other'" in page.rows("other", "", 0)["why_not"]
    assert "no sink 'other'" in page.why("other", "{}")["why_not"]
    assert page.why("totals", "{}") == {"view": "totals", "row": "{}"}


def test_a_huge_value_is_shortened_and_cannot_be_asked_about() -> None:
    flow = Flow("long")
    flow.sink("out", flow.source("texts", str))
    view = ViewRows(flow.nodes[flow.graph().sinks["out"]].schema)
    view.add(1, [("x" * 100_000, 1), ("y", 1)])
    rows = {row["values"][0][:1]: row for row in view.page("", 0)["rows"]}
    assert (len(rows["x"]["values"][0]), rows["x"]["json"]) == (limits.MAX_TEXT + 1, None)
    assert rows["y"]["json"]


def test_the_status_has_ticks_and_totals() -> None:
    page = page_of()
    before = page.version()
    run(page)
    assert page.version() > before
    status = page.status(0)
    assert [(tick["tick"], tick["rows_in"], tick["changes_out"]) for tick in status["ticks"]] == [
        (1, 2, 2),
        (2, 1, 2),
    ]
    assert status["totals"]["sources"] == {"sales": 3}
    assert [tick["tick"] for tick in page.status(1)["ticks"]] == [2]
    assert len(status["regions"]) == 1
    json.dumps(status)


def test_late_rows_are_those_of_the_sinks_named_for_them() -> None:
    flow = Flow("late")
    flow.sink("out", flow.source("sales", Sale).watermark(col.price, lateness=0, late="too_late"))
    assert flow_overview(flow, {}, {"out": [], "too_late": []})["late_sinks"] == ["too_late"]
    assert flow_overview(flow, {}, {"out": []})["late_sinks"] == []


def test_a_run_that_resumes_says_from_where_its_rows_are(tmp_path: Path) -> None:
    run(page_of(), checkpoint=tmp_path / "c", end=False)
    page = page_of(checkpoint=str(tmp_path / "c"))
    assert (page.status(0)["tick"], page.state()["tick"]) == (2, 2)
    run(page, {"sales": [*SALES, Sale("b", 5)]}, checkpoint=tmp_path / "c", end=False)
    found = page.rows("totals", "", 0)
    assert found["since"] == 3
    state = page.state()
    assert (state["tick"], [slot["keys"] for slot in state["slots"]]) == (3, [2])
    assert "in memory" in page_of().state()["why_not"]
    assert "not committed" in page_of(checkpoint="c").state()["why_not"]


def test_dead_letters_are_read_back_newest_first(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / "in" / f"{number}.json").write_text('{"shop": "a", "price": 1}\n<b>oops</b>\n')
    source = JsonFiles(tmp_path / "in", dead_letter=tmp_path / "bad", files_per_tick=1)
    page = page_of({"sales": source})
    assert page.dead_letters()["sources"]["sales"]["rows"] == []
    run(page, {"sales": source})
    found = page.dead_letters()["sources"]["sales"]["rows"]
    assert [(each["tick"], each["row"], each["text"]) for each in found] == [
        (2, 2, "<b>oops</b>"),
        (1, 2, "<b>oops</b>"),
    ]
    (tmp_path / "bad" / "tick=2-sales.jsonl").write_text("not json")
    assert "cannot be read" in page.dead_letters()["sources"]["sales"]["rows"][0]["reason"]
    assert "no dead_letter folder" in page_of().dead_letters()["sources"]["sales"]["why_not"]


def test_a_page_that_fails_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    page = page_of()

    def fail(*_: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(ViewRows, "add", fail)
    monkeypatch.setattr(page, "_record", fail)
    out: list[Any] = []
    run(page, sinks={"totals": out})
    assert len(out) == 4
    assert [record.message for record in caplog.records] == ["the page is no longer updated; the run goes on"]


def test_the_error_that_ended_the_run_is_kept() -> None:
    page = page_of()
    page.failed(ValueError())
    assert page.status(0)["failure"] == "ValueError"


def test_two_questions_at_a_time_are_too_many() -> None:
    page = page_of()
    with page._find_why._lock:
        assert "Another question" in page.why("totals", "{}")["why_not"]


# -- on Spark, whose tasks write some sinks ---------------------------------------------------


@SPARK
def test_a_changelog_that_tasks_wrote_is_read_tick_by_tick(tmp_path: Path) -> None:
    sink = Changelog(tmp_path / "out")
    page = page_of(sinks={"totals": sink}, engine="spark")
    hr.run(totals(), {"sales": SALES}, {"totals": sink}, tick_rows=2, on_tick=page.on_tick)
    page.refresh()
    assert shown(page) == [("a", "4", 1, 2), ("b", "2", 1, 1)]


@SPARK
def test_a_csv_changelog_that_tasks_wrote_is_read_with_its_dialect(tmp_path: Path) -> None:
    sink = CsvChangelog(tmp_path / "out", CsvDialect(sep=";", header=False))
    page = page_of(sinks={"totals": sink}, engine="spark")
    # In this process, which writes the same files and is faster.
    hr.run(totals(), {"sales": SALES}, {"totals": sink}, tick_rows=2, on_tick=page.on_tick)
    page.refresh()
    assert shown(page) == [("a", "4", 1, 2), ("b", "2", 1, 1)]


@SPARK
def test_changes_that_could_not_be_read_back_are_not_passed_over(tmp_path: Path) -> None:
    sink = Changelog(tmp_path / "out")
    page = page_of(sinks={"totals": sink}, engine="spark")
    hr.run(totals(), {"sales": SALES}, {"totals": sink}, tick_rows=2, on_tick=page.on_tick)
    next((tmp_path / "out").glob("tick=1/*.parquet")).write_text("damaged")
    page.refresh()
    found = page.rows("totals", "", 0)
    assert found["overflow"].startswith("tick 1 could not be read back")
    assert [row["tick"] for row in found["rows"]] == [2, 2]


@SPARK
def test_ticks_that_came_too_fast_to_be_read_back_are_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_page, "MAX_TICKS", 1)
    sink = Changelog(tmp_path / "out")
    page = page_of(sinks={"totals": sink}, engine="spark")
    hr.run(totals(), {"sales": SALES}, {"totals": sink}, tick_rows=2, on_tick=page.on_tick)
    page.refresh()
    assert page.rows("totals", "", 0)["overflow"].startswith("more than 1 ticks came before")


@SPARK
def test_the_views_version_rises_once_its_rows_have_been_read_back(tmp_path: Path) -> None:
    sink = Changelog(tmp_path / "out")
    page = page_of(sinks={"totals": sink}, engine="spark")
    hr.run(totals(), {"sales": SALES}, {"totals": sink}, tick_rows=2, on_tick=page.on_tick)
    before = page.version()
    page.refresh()
    assert page.version() > before
    assert page.status(0)["views"] == {"totals": 4}


@SPARK
def test_a_table_that_tasks_wrote_is_read_as_it_is(tmp_path: Path) -> None:
    sink = TableFiles(tmp_path / "out", key="shop")
    page = page_of(sinks={"totals": sink}, engine="spark")
    hr.run(totals(), {"sales": SALES}, {"totals": sink}, tick_rows=2, on_tick=page.on_tick)
    assert shown(page) == [("a", "4", 1, 2), ("b", "2", 1, 2)]
    assert page.status(0)["views"] == {"totals": 2}


@SPARK
def test_other_sinks_on_spark_say_why_their_rows_are_not_here() -> None:
    assert "rows" in page_of(sinks={"totals": Print()}, engine="spark").rows("totals", "", 0)
    page = page_of(sinks={"totals": parse_sink("kafka:localhost:1/totals")}, engine="spark")
    assert page.rows("totals", "", 0)["why_not"].startswith("Spark's tasks write KafkaTopic themselves.")


@SPARK
def test_the_plan_on_spark_is_shown_beside_the_flows_own() -> None:
    overview = page_of(sinks={"totals": Print()}, engine="spark").overview()
    assert overview["on_spark"].startswith("On Spark, tick by tick: 2 stages")
    assert page_of().overview()["on_spark"] is None


# -- the rows of a view -----------------------------------------------------------------------

CHANGES = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2), st.sampled_from((-1, 1, 2))))
)


@given(CHANGES)
def test_rows_are_the_sum_of_all_changes(ticks: list[list[tuple[Any, ...]]]) -> None:
    view = ViewRows(schema_of(Sale))
    expected: dict[tuple[Any, ...], int] = {}
    for tick, rows in enumerate(ticks, 1):
        view.add(tick, rows)
        for *row, weight in rows:
            expected[tuple(row)] = expected.get(tuple(row), 0) + weight
    found = {(row["values"][0], int(row["values"][1])): row["weight"] for row in view.page("", 0)["rows"]}
    assert found == {row: weight for row, weight in expected.items() if weight > 0}


@pytest.mark.parametrize("read", [True, False])
def test_a_view_that_outgrows_the_page_keeps_its_latest_changes(
    monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    monkeypatch.setattr(limits, "MAX_ROWS", 10)
    monkeypatch.setattr(limits, "MAX_PENDING", 40)
    view = ViewRows(schema_of(Sale))
    for tick in range(1, 500):
        view.add(tick, [("a", tick, 1)])
        if read:
            view.settle()
    found = view.page("", 0)
    assert found["overflow"] == "the view has more than 10 distinct rows: only the latest changes are kept"
    assert (found["total"], found["changes"]) == (200, 499)
    assert found["rows"][0]["values"] == ["a", "499"]
    assert not view._current.rows
    assert not view._pending


def test_many_changes_of_few_rows_fit_though_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_ROWS", 10)
    monkeypatch.setattr(limits, "MAX_PENDING", 40)
    view = ViewRows(schema_of(Sale))
    for tick in range(1, 500):
        view.add(tick, [("a", 1, 1), ("b", 2, 1), ("a", 1, -1)])
        assert view._waiting <= 40
    found = view.page("", 0)
    assert (found["overflow"], found["changes"]) == ("", 3 * 499)
    assert [(row["values"], row["weight"], row["tick"]) for row in found["rows"]] == [(["b", "2"], 499, 499)]


def test_the_run_does_not_wait_while_rows_are_applied_or_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ViewRows(schema_of(Sale))
    free: list[bool] = []

    def look(*_: object) -> None:
        free.append(not view._queue.locked())

    change = CurrentRows.change
    monkeypatch.setattr(CurrentRows, "change", lambda *given: (look(), change(*given)))
    view.add(1, [("a", 1, 1), ("b", 2, 1)])
    view.settle()
    monkeypatch.setattr(view, "_encode", lambda row: (look(), {"shop": row[0]})[1])
    view.page("a", 0)
    assert len(free) > 3
    assert all(free)


def test_a_search_encodes_each_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ViewRows(schema_of(Sale))
    view.add(1, [("a", 1, 1), ("b", 2, 1)])
    view.page("nothing", 0)
    monkeypatch.delattr(view, "_encode")
    assert view.page("nothing", 0)["rows"] == []


def test_rows_that_a_resumed_run_deletes_are_not_shown() -> None:
    view = ViewRows(schema_of(Sale))
    view.add(4, [("a", 1, -1), ("a", 11, 1)])
    page = view.page("", 0)
    assert [(row["values"], row["weight"]) for row in page["rows"]] == [(["a", "11"], 1)]
    assert page["total"] == 1


def test_values_that_javascript_would_round_are_text() -> None:
    view = ViewRows(schema_of(Sale))
    view.add(1, [("a", 2**53 + 1, 1)])
    assert view.page("", 0)["rows"][0]["values"] == ["a", "9007199254740993"]


def test_columns_of_numbers_are_told() -> None:
    page = page_of()
    run(page)
    found = page.rows("totals", "", 0)
    assert (found["columns"], found["numbers"]) == (["shop", "total"], [False, True])


def test_operators_of_one_kind_on_one_line_are_told_apart() -> None:
    def slot(
        name: str, what: str, called: str | None = None, operator: str | None = "join (on a)"
    ) -> SlotStats:
        return SlotStats(operator, called, "shop.py:3" if operator else None, name, what, {})

    slots = [
        slot("0a", "left"),
        slot("0a", "right"),
        slot("0b", "left"),
        slot("0c", "x", "mine"),
        slot("0d", "x", operator=None),
    ]
    join = "join at shop.py:3"
    assert _labels(slots) == [join, join, f"{join} #2", "mine at shop.py:3", "0d"]


# -- a checkpoint -----------------------------------------------------------------------------


def test_a_checkpoints_page_follows_its_commits(tmp_path: Path) -> None:
    run(page_of(), checkpoint=tmp_path / "c", end=False)
    page = CheckpointPage(tmp_path / "c")
    assert (page.status(0)["tick"], page.state()["tick"]) == (2, 2)
    run(page_of(), {"sales": [*SALES, Sale("c", 1)]}, checkpoint=tmp_path / "c", end=False)
    page.refresh()
    assert (page.status(0)["tick"], [slot["keys"] for slot in page.state()["slots"]]) == (3, [3])
    (slot,) = page.state()["slots"]
    operator = slot["name"]
    assert re.fullmatch(r"aggregate at .*\.py:\d+", slot["label"]), "no hash where there is a name"
    (value,) = page.state_of_key(operator, '"c"')["values"]
    assert (value["slot"], value["shard"]) == ("groups", 0)
    assert 1 in json.loads(value["value"])
    assert page.state_of_key(operator, '"z"')["values"] == []
    assert "A key is JSON" in page.state_of_key(operator, "c")["why_not"]
    for answer in (page.rows("x", "", 0), page.why("x", "{}"), page.dead_letters()):
        assert answer["why_not"]
    with pytest.raises(FlowChanged):
        CheckpointPage(tmp_path / "nowhere")


def test_following_a_checkpoint_reads_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(page_of(), checkpoint=tmp_path / "c", end=False)
    page = CheckpointPage(tmp_path / "c")
    run(page_of(), {"sales": [*SALES, Sale("c", 1)]}, checkpoint=tmp_path / "c", end=False)
    monkeypatch.delattr(run_page, "inspect")
    monkeypatch.delattr(run_page, "state_of")
    page.refresh()
    assert page.status(0)["tick"] == 3
    assert page.status(0)["state_bytes"] > 0


def test_the_page_of_a_checkpoint_that_is_gone_says_so(tmp_path: Path) -> None:
    run(page_of(), checkpoint=tmp_path / "c", end=False)
    page = CheckpointPage(tmp_path / "c")
    before = page.version()
    (tmp_path / "c").rename(tmp_path / "d")
    page.refresh()
    gone = page.status(0)
    assert (gone["tick"], "is gone" in gone["failure"], page.version() > before) == (2, True, True)
    (tmp_path / "d").rename(tmp_path / "c")
    page.refresh()
    assert page.status(0)["failure"] == ""


def test_one_can_ask_about_rows_that_fit_into_a_url() -> None:
    view = ViewRows(schema_of(str))
    view.add(1, [("漢" * 5_000, 1), ("漢" * 6_000, 1), ("a" * 49_000, 1)])
    askable = [row["json"] for row in view.page("", 0)["rows"] if row["json"] is not None]
    assert len(askable) == 2
    assert all(len(quote(row)) <= MAX_ASKED for row in askable)
