"""The page of a pipeline: what it answers, also about hostile names and rows, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from headrace.errors import UnreadableSource
from headrace.pipelines.definitions import SHARED, TableName
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.event_log import EventRecord
from headrace.pipelines.table_files import ReadLimit
from headrace.ui import serving_page
from headrace.ui.pipeline_page import PipelinePage
from headrace.ui.server import Page, RunHistory
from tests.pipelines.stored_pipeline import StoredPipeline, name_of
from tests.ui.conftest import ENVIRONMENT, HOSTILE
from tests.ui.test_server import Client

ORDERS = pa.table({"city": ["bath", "cork", HOSTILE], "cents": [10, 20, 30]})
LATER = pa.table({"city": ["bath", "cork", HOSTILE], "cents": [10, 25, 30]})
T = str(name_of("orders"))
HOSTILE_NAME = "<script>alert(1)</script>"


@pytest.fixture
def pipeline(tmp_path: Path) -> StoredPipeline:
    made = StoredPipeline(tmp_path)
    made.run({"orders": [ORDERS], HOSTILE_NAME: [ORDERS]}, reads={HOSTILE_NAME: {f"table {T}": 1}})
    made.run({"orders": [LATER]})
    return made


def asked(view: str, row: str) -> dict[str, Any]:
    return {"asked": [view, row]}


def page_of(pipeline: StoredPipeline) -> PipelinePage:
    page = PipelinePage(pipeline.spec, asked)
    page.refresh()
    return page


@pytest.fixture
def client(pipeline: StoredPipeline) -> Iterator[Client]:
    with serving_page(page_of(pipeline)) as url:
        yield Client(url)


def ask(client: Client, path: str, **parameters: Any) -> Any:
    answer = client.ask(f"/api/{path}?{urlencode(parameters)}")
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


# --- what it shows --------------------------------------------------------------------------------


def test_it_is_a_page_with_a_history(pipeline: StoredPipeline) -> None:
    page: Page = page_of(pipeline)
    assert isinstance(page, RunHistory)


def test_without_a_kept_analysis_the_catalogue_and_the_log_are_shown(pipeline: StoredPipeline) -> None:
    page = page_of(pipeline)
    overview = page.overview()
    assert overview["note"] == "no analysis is kept"
    assert overview["nodes"] == {"t0": T, "t1": str(name_of(HOSTILE_NAME))}
    assert [each["method"] for each in overview["tables"]] == ["incremental", "incremental"]
    assert overview["tables"][1]["reads"] == [T]
    status = page.status(0)
    assert dict(status["figures"]) == {
        "Last run": "2: completed", "Tables": "2", "Up to date": "1 of 2",
        "Failed or skipped": "0", "Rows": "6",
    }  # fmt: skip
    assert [(each["health"], each["news"]) for each in status["tables"]] == [
        ("up to date", []),
        ("inputs have news", [{"label": "orders", "text": "1 newer version"}]),
    ]


def test_runs_are_listed_newest_first_with_their_tables(pipeline: StoredPipeline) -> None:
    page = page_of(pipeline)
    runs = page.runs("", 0)["records"]
    assert [(each["run"], each["state"], each["tables"], each["changed"]) for each in runs] == [
        (2, "COMPLETED", 1, 1),
        (1, "COMPLETED", 2, 2),
    ]
    of_table = page.runs(T, 0)["records"]
    assert [(each["run"], each["comparable"], each["label"]) for each in of_table] == [
        (2, True, "orders"),
        (1, False, "orders"),
    ]
    assert [each["kind"] for each in page.runs("", 1)["records"]] == ["run", "table", "table", "run"]


def test_what_a_run_spent_on_shared_parts_is_shown(pipeline: StoredPipeline) -> None:
    part = TableName(SHARED, "join_1")
    record = EventRecord("part", table_name=str(part), state="COMPLETED", method="incremental",
                         reason="shared part of a, b", rows_read=7, cpu_seconds=1.5,
                         spark_cpu_seconds=0.25)  # fmt: skip
    pipeline.run({"orders": [ORDERS]}, records=[record])
    page = page_of(pipeline)
    last, *others = page.runs("", 0)["records"]
    assert (last["part_cpu_seconds"], last["tables"]) == (1.75, 1)
    assert [each["part_cpu_seconds"] for each in others] == [0, 0]
    (shown,) = page.runs(str(part), 0)["records"]
    assert (shown["rows_read"], shown["reason"], shown["comparable"]) == (7, "shared part of a, b", False)


def test_what_changed_in_a_run(pipeline: StoredPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of(pipeline)
    found = page.changes(T, 2, "", 0)
    assert [(row["values"], row["weight"]) for row in found["rows"]] == [
        (["cork", "20"], -1),
        (["cork", "25"], 1),
    ]
    assert (found["total"], found["numbers"]) == (2, [False, True])
    assert [row["weight"] for row in page.changes(T, 2, "25", 0)["rows"]] == [1]
    monkeypatch.setattr("headrace.ui.pipeline_page.LIMIT", ReadLimit(bytes=100))
    assert found["total"] == page.changes(T, 2, "", 100)["total"]  # It is compared once.
    with pytest.raises(PipelineError, match=r"differences take .* bytes of files with 6 rows"):
        page_of(pipeline).changes(T, 2, "", 0)
    monkeypatch.setattr("headrace.ui.pipeline_page.LIMIT", ReadLimit(rows=5))
    with pytest.raises(PipelineError, match="and 5 rows are read"):
        page_of(pipeline).changes(T, 2, "", 0)
    assert "first version" in page.changes(T, 1, "", 0)["why_not"]
    assert "no record" in page.changes(T, 7, "", 0)["why_not"]
    pipeline.run(
        {}, records=[EventRecord("table", table_name=T, state="FAILED", version_before=2, version_after=2)]
    )
    assert page_of(pipeline).changes(T, 3, "", 0)["why_not"] == (
        "Run 3 changed nothing in this table: it failed."
    )


def test_rows_have_search_and_pages(pipeline: StoredPipeline) -> None:
    page = page_of(pipeline)
    found = page.rows(T, "ONERROR", 0)
    assert [row["values"] for row in found["rows"]] == [[HOSTILE, "30"]]
    assert (found["total"], found["more"]) == (3, False)
    assert json.loads(found["rows"][0]["json"]) == {"city": HOSTILE, "cents": 30}


def test_a_failure_is_told_with_its_code_and_way_out(pipeline: StoredPipeline) -> None:
    text = "P804 QueryRefused: no column 'x'\n\n  q.sql:3   SELECT x\n\nFix: name another one"
    record = EventRecord("table", table_name=T, state="FAILED", error_code="P804", error=text)
    pipeline.run({}, records=[record])
    status = page_of(pipeline).status(0)
    assert status["failure"] == "1 table failed:\norders: P804 QueryRefused: no column 'x'"
    failure = next(each["failure"] for each in status["tables"] if each["name"] == T)
    assert (failure["code"], failure["error"], failure["run"]) == ("P804", text, 3)


def test_expectations_have_counts_and_dropped_rows(pipeline: StoredPipeline) -> None:
    counts = [{"name": "cheap", "passed": 2, "failed": 1}]
    record = EventRecord("table", table_name=T, state="COMPLETED", method="incremental", version_before=2,
                         version_after=3, expectations=counts)  # fmt: skip
    dropped = pa.table({"city": ["ely"], "cents": [99], "failed_expectations": [["cheap"]]})
    pipeline.run(
        {"orders": [ORDERS], "orders__headrace_dropped": [dropped]},
        failed={"orders__headrace_dropped": {"cheap": 1}},
        records=[record],
    )
    page = page_of(pipeline)
    described = next(each for each in page.overview()["tables"] if each["name"] == T)
    assert described["dropped"] == f"{T}__headrace_dropped"
    assert page.overview()["sinks"][described["dropped"]] == "orders: dropped rows"
    assert described["dropped"] not in page.overview()["nodes"].values()
    (shown,) = next(each["expectations"] for each in page.status(0)["tables"] if each["name"] == T)
    assert (shown["came"], shown["total"]) == (counts[0], {"passed": 3, "failed": 1})
    assert page.rows(described["dropped"], '"cheap"', 0)["rows"][0]["values"] == ["ely", "99", '["cheap"]']


def test_the_page_follows_runs(pipeline: StoredPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.ui.pipeline_page._POLL_SECONDS", 0.0)
    page = page_of(pipeline)
    version, edition = page.version(), page.status(0)["edition"]
    page.refresh()
    assert page.version() == version
    pipeline.run({"orders": [ORDERS]})
    page.refresh()
    assert page.version() > version
    assert page.status(0)["views"][T] == 3
    assert page.status(0)["edition"] == edition
    pipeline.run({"another": [ORDERS]})
    page.refresh()
    assert page.status(0)["edition"] > edition
    assert str(name_of("another")) in page.overview()["nodes"].values()


def test_a_damaged_catalogue_is_told_and_the_page_goes_on(
    pipeline: StoredPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.ui.pipeline_page._POLL_SECONDS", 0.0)
    page = page_of(pipeline)
    file = pipeline.storage / "catalog/current/catalog.json"
    whole = file.read_bytes()
    file.write_bytes(b"{")
    page.refresh()
    assert "P807 CatalogDamaged" in page.status(0)["failure"]
    file.write_bytes(whole)
    page.refresh()
    assert page.status(0)["failure"] == ""
    assert len(page.rows(T, "", 0)["rows"]) == 3


def test_a_project_that_never_ran_has_a_page(tmp_path: Path) -> None:
    page = page_of(StoredPipeline(tmp_path / "new"))
    assert page.overview()["nodes"] == {}
    assert dict(page.status(0)["figures"])["Last run"] == "none yet"
    assert page.runs("", 0) == {"records": []}


# --- what it refuses ------------------------------------------------------------------------------


PATHS = ["../../etc", "/etc/passwd", "..", "", "orders", f"{T}/../x", "%2e%2e", "a\x00b", HOSTILE]


@pytest.mark.parametrize("view", PATHS)
def test_only_tables_of_the_catalogue_are_read(client: Client, view: str) -> None:
    for path in ("rows", "changes", "why"):
        answer = ask(client, path, view=view, row="{}", run=2)
        assert "no such table" in answer["why_not"]
    assert ask(client, "runs", view=view or "x", run=0) == {"records": []}


@pytest.mark.parametrize(
    "path", ["api/runs", "api/changes", "api/rows", "pipeline_panel.js", "runs_panel.js"]
)
def test_the_history_needs_the_token_and_this_host(client: Client, path: str) -> None:
    assert client.ask(f"/{path}").status == 200
    assert client.ask(f"/{path}", cookie="").status == 403
    assert client.ask(f"/{path}", cookie=f"headrace-{client.port}=wrong").status == 403
    assert client.ask(f"/{path}", host="evil.example").status == 403
    assert client.ask(f"/{path}", method="POST").status == 405


def test_hostile_names_and_rows_are_json_and_escaped_in_the_picture(client: Client) -> None:
    overview = client.ask("/api/overview")
    assert overview.headers.get("content-type") == "application/json"
    svg = json.loads(overview.body)["svg"]
    assert "<script" not in svg
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in svg
    rows = ask(client, "rows", view=str(name_of(HOSTILE_NAME)))
    assert [row["values"][0] for row in rows["rows"]][-1] == HOSTILE


@pytest.mark.parametrize("run", ["-1", "x", "1e3", "99999999999999999999", "", "2; DROP"])
def test_odd_numbers_of_runs_are_none(client: Client, run: str) -> None:
    assert "no record" in ask(client, "changes", view=T, run=run)["why_not"]


def test_odd_searches_are_texts(client: Client) -> None:
    for search in (
        ".*",
        "%",
        "\\",
        "[",
        "(?i)",
        "\x00",
        "x" * 50_000,
        "\udcff".encode("utf-8", "replace").decode(),
    ):
        assert ask(client, "rows", view=T, search=search)["rows"] == []


def test_huge_rows_are_cut_and_not_asked_about(tmp_path: Path) -> None:
    pipeline = StoredPipeline(tmp_path)
    pipeline.run({"orders": [pa.table({"id": range(50), "text": ["<" * 3_000_000] * 50})]})
    with serving_page(page_of(pipeline)) as url:
        answer = Client(url).ask(f"/api/rows?view={quote(T)}")
    assert len(answer.body) < 300_000
    found = json.loads(answer.body)
    assert len(found["rows"]) == 50
    assert {row["json"] for row in found["rows"]} == {None}


def test_why_needs_a_kept_analysis(pipeline: StoredPipeline) -> None:
    page = page_of(pipeline)
    assert "no analysis is kept" in page.why(T, "{}")["why_not"]
    with pytest.raises(UnreadableSource):
        page.why("other", "{}")


def test_rows_of_a_version_that_a_run_removes_meanwhile_are_told(pipeline: StoredPipeline) -> None:
    page = page_of(pipeline)
    entry = pipeline.entries[name_of("orders")]
    gone = {name_of("orders"): replace(entry, version=77)}
    page._state = replace(page._state, entries=gone)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(UnreadableSource, match=r"version 77 of .* is no longer kept"):
        page.rows(T, "", 0)


# --- the command ----------------------------------------------------------------------------------


def test_the_command_needs_neither_spark_nor_java(pipeline: StoredPipeline) -> None:
    script = """
import subprocess, sys
from pathlib import Path

def never(*_, **__):
    raise AssertionError("a process is started")

subprocess.Popen.__init__ = never
from headrace.pipelines.spec import read_spec
from headrace.ui.pipeline_page import PipelinePage

page = PipelinePage(read_spec(Path(sys.argv[1])), never)
page.refresh()
assert page.overview()["tables"] and page.rows(sys.argv[2], "", 0)["rows"]
assert page.changes(sys.argv[2], 2, "", 0)["rows"]
from pyspark import SparkContext
assert SparkContext._active_spark_context is None
"""
    spec = pipeline.root / "spark-pipeline.yml"
    environment = {**ENVIRONMENT, "JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(spec), T],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_command_prints_the_address_without_the_token(pipeline: StoredPipeline) -> None:
    from tests.ui.conftest import Started

    started = Started(pipeline.root / "transformations", "pipeline", "ui")
    try:
        client = Client(started.url)
        assert ask(client, "overview")["title"] == "by hand"
    finally:
        started.end()
