"""OpenLineage events of a pipeline's runs, in a file and at a URL."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from headrace.errors import BadInput, SourceLocation
from headrace.pipelines.catalog import TableEntry
from headrace.pipelines.definitions import SNAPSHOTS, Dataset, DatasetKind, TableName
from headrace.pipelines.event_log import EventRecord
from headrace.pipelines.lineage import lineage_listeners
from headrace.pipelines.pipeline_run import run_pipeline
from headrace.pipelines.run_recorder import RecordedRun
from headrace.pipelines.spec import PipelineSpec, read_spec
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.loopback import loopback_server
from tests.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT = "2026-03-01T12:00:00.000Z"
SPEC = "name: shop\nstorage: storage\nconfiguration:\n  headrace.lineage: lineage.jsonl\n"

QUERIES = """
CREATE MATERIALIZED VIEW orders AS SELECT id, customer FROM json.`in`;
CREATE MATERIALIZED VIEW counts AS
  SELECT customer, count(*) AS n, named_struct('most', max(id)) AS ids FROM orders GROUP BY customer;
"""
FAILING = """
CREATE MATERIALIZED VIEW bad AS
  SELECT n, CAST(raise_error('token=hunter2 refused') AS INT) AS e FROM counts;
"""


def spec_in(folder: Path, text: str = SPEC) -> PipelineSpec:
    (folder / "spark-pipeline.yml").write_text(text)
    return read_spec(folder / "spark-pipeline.yml")


def events_in(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def shown(events: list[dict[str, Any]]) -> list[str]:
    return [f"{each['job']['name']} {each['eventType']}" for each in events]


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    made = Project.new(tmp_path / "project", spark, a_sql=QUERIES)
    made.add("in", 1, [{"id": at, "customer": "ann"} for at in range(3)])
    return made


@pytest.mark.spark
def test_a_run_and_its_changed_tables_are_told(project: Project, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    listeners = [*lineage_listeners(project.spec, str(file))]
    project.run(listeners=listeners)
    events = events_in(file)
    tables = [
        f"tested.default.{name} {state}" for name in ("orders", "counts") for state in ("START", "COMPLETE")
    ]
    assert shown(events) == ["tested START", *tables, "tested COMPLETE"]
    assert {each["run"]["runId"] for each in events if each["job"]["name"] == "tested"} == {
        events[1]["run"]["facets"]["parent"]["run"]["runId"]
    }
    counts = events[-2]
    path = f"{project.root}/storage/catalog/current/default"
    assert [(each["namespace"], each["name"]) for each in counts["inputs"]] == [("file", f"{path}/orders")]
    (output,) = counts["outputs"]
    assert (output["namespace"], output["name"]) == ("file", f"{path}/counts")
    assert Path(output["name"]).is_dir()
    fields = output["facets"]["schema"]["fields"]
    assert [(each["name"], each["type"]) for each in fields] == [
        ("customer", "string"), ("n", "long"), ("ids", "struct<most: long>"),
    ]  # fmt: skip
    assert [each["name"] for each in fields[2]["fields"]] == ["most"]
    assert output["facets"]["symlinks"]["identifiers"][0]["name"] == "spark_catalog.default.counts"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert [each["name"] for each in events[-1]["inputs"]] == [f"{project.root}/in"]
    assert {each["name"] for each in events[-1]["outputs"]} == {f"{path}/orders", f"{path}/counts"}

    # The next run tells what it changed only; one that goes on and finds nothing new tells nothing.
    project.run(listeners=listeners)
    assert shown(events_in(file)[6:]) == ["tested START", "tested COMPLETE"]
    assert [each["name"] for each in events_in(file)[6]["inputs"]] == [f"{project.root}/in"]
    run_pipeline(project.spec, project.spark, listeners=listeners, only_news=True)
    assert len(events_in(file)) == 8
    project.add("in", 2, [{"id": 9, "customer": "bob"}])
    run_pipeline(project.spec, project.spark, listeners=listeners, only_news=True)
    assert shown(events_in(file)[8:]) == ["tested START", *tables, "tested COMPLETE"]


@pytest.mark.spark
def test_failures_are_told_without_secrets(project: Project) -> None:
    project.write("b.sql", FAILING)
    with loopback_server() as server:
        listeners = [*lineage_listeners(project.spec, f"{server.url}/lineage/here")]
        project.run(listeners=listeners)
        project.write("b.sql", "CREATE MATERIALIZED VIEW bad AS SELECT nothing FROM nowhere;")
        with pytest.raises(Exception, match="P804"):
            project.run(listeners=listeners)
    assert {path for _, path, _, _ in server.requests} == {"/lineage/here"}
    events = [json.loads(body) for *_, body in server.requests]
    assert shown(events)[-5:] == [
        "tested.default.bad START", "tested.default.bad FAIL", "tested FAIL", "tested START", "tested FAIL",
    ]  # fmt: skip
    for at in (-4, -3):
        assert "token=*** refused" in events[at]["run"]["facets"]["errorMessage"]["message"]
    assert "hunter2" not in "".join(body for *_, body in server.requests)


@pytest.mark.spark
def test_a_server_that_refuses_is_a_warning(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    with loopback_server() as server, caplog.at_level(logging.WARNING):
        server.status = 403
        assert not project.run(listeners=[*lineage_listeners(project.spec, server.url)]).failed
    assert [(method, path) for method, path, _, _ in server.requests] == [("POST", "/api/v1/lineage")]
    (warning,) = [each.message for each in caplog.records if each.name == "headrace.pipelines"]
    assert warning.startswith(f"sending lineage to {server.url} failed: 403 Client Error")


def test_lineage_goes_where_the_option_or_the_project_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:1")
    project = spec_in(tmp_path)
    assert [str(each) for each in lineage_listeners(project, None)] == [
        f"sending lineage to {tmp_path}/lineage.jsonl"
    ]
    monkeypatch.chdir("/")
    assert [str(each) for each in lineage_listeners(project, "here.jsonl")] == [
        "sending lineage to /here.jsonl"
    ]
    (of_url,) = lineage_listeners(project, "http://me:hunter2@127.0.0.1:5000/x?key=1")
    assert str(of_url) == "sending lineage to http://***@127.0.0.1:5000/x"
    assert not [*lineage_listeners(spec_in(tmp_path, "name: x\nstorage: s\n"), None)]


def test_datasets_are_told_by_what_the_catalogue_knows(tmp_path: Path) -> None:
    """Inputs are found in the positions of tables: of the pipeline, files, Delta tables and snapshots."""
    schema = json.dumps({"type": "struct", "fields": [{"name": "x", "type": "long"}]})
    database = TableName(SNAPSHOTS, "orders_1")
    snapshot = Dataset(database, DatasetKind.SNAPSHOT, SourceLocation("a.py", 1), input="orders at jdbc:db")
    sunk = TableName("default", "sunk")
    sink = Dataset(sunk, DatasetKind.SINK, SourceLocation("a.py", 1), properties={"path": "/out/sunk"})
    read: dict[str, Any] = {
        f"table {database}": 1,
        "stream of files /in/a, /in/b/*": {},
        "Delta table /in/delta, version 3 (2)": 1,
        "constants": "1",
    }
    entries = {
        database: TableEntry(1, 1, schema, "parquet", ""),
        sunk: TableEntry(1, 1, schema, "sink", "", positions={"f": read}),
    }
    counts: Any = [{"name": "positive", "passed": 3, "failed": 1}]
    tables = [
        EventRecord(
            "table", 1, table_name=str(each), at=AT, state="COMPLETED", version_after=1, expectations=counts
        )
        for each in entries
    ]
    record = EventRecord("run", 1, str(uuid4()), AT, state="COMPLETED")
    run = RecordedRun("shop", tmp_path, datetime.fromisoformat(AT), record, tables, {}, entries)
    run = replace(run, datasets={str(database): snapshot, str(sunk): sink})
    file = tmp_path / "events.jsonl"
    (listener,) = lineage_listeners(spec_in(tmp_path), str(file))
    listener(run)
    taken, written = [each for each in events_in(file) if each["job"]["name"] != "shop"][1::2]
    assert [(each["namespace"], each["name"]) for each in taken["inputs"]] == [
        ("headrace", "orders at jdbc:db")
    ]
    (assertion,) = taken["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"], assertion["actual"]) == ("positive", False, "1")
    inputs = {each["name"]: each for each in written["inputs"]}
    path = f"{tmp_path}/catalog/current/{SNAPSHOTS}/orders_1"
    assert inputs.keys() == {"/in/a", "/in/b", "/in/delta", path}
    assert inputs[path]["facets"]["schema"]["fields"][0]["name"] == "x"
    assert [each["name"] for each in written["outputs"]] == ["/out/sunk"]


@pytest.mark.parametrize("target", ["s3://bucket/events", "http://"])
def test_other_targets_are_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(BadInput) as refused:
        list(lineage_listeners(spec_in(tmp_path), target))
    if target.startswith("s3"):
        assert_golden(MESSAGES / "lineage_elsewhere.txt", str(refused.value) + "\n")


@pytest.mark.spark
def test_the_parent_run_and_the_key_come_from_the_environment(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = "01890a5d-ac96-774b-bcce-b302099a8057"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/dag.refresh/{parent}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "warehouse")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "the-key")
    with loopback_server() as server:
        project.run("orders", listeners=[*lineage_listeners(project.spec, server.url)])
    first, table, *_ = [json.loads(body) for *_, body in server.requests]
    assert first["run"]["facets"]["parent"]["run"]["runId"] == parent
    assert first["run"]["facets"]["parent"]["job"] == {
        "namespace": "airflow",
        "name": "dag.refresh",
        "facets": {},
    }
    assert table["job"]["namespace"] == "warehouse"
    assert table["run"]["facets"]["parent"]["job"]["name"] == "tested"
    assert {headers["authorization"] for _, _, headers, _ in server.requests} == {"Bearer the-key"}
    assert "the-key" not in "".join(body for *_, body in server.requests)
