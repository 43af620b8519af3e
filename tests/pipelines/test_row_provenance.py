"""Why a row is in a table: by the table's flow, without Spark; and what is known where Spark computes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.engine.witness import Witness
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import TableName
from headrace.pipelines.errors import QueryRefused
from headrace.pipelines.kept_analysis import KeptAnalysis, load_with_any_policy
from headrace.pipelines.row_provenance import Unexplained, explain_row_of_table, statement_at
from headrace.pipelines.stored_rows import StoredVersion
from headrace.source_location import SourceLocation
from tests.golden import assert_golden
from tests.pipelines.project import Project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")
PRINTED = Path(__file__).parent / "printed"

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

@dp.table
def orders():
    return spark.readStream.schema("id BIGINT, customer BIGINT, cents BIGINT").json("orders")

@dp.table
def records():
    return spark.readStream.schema("id BIGINT, city STRING, version BIGINT").json("customers")

dp.create_streaming_table("customers")
dp.create_auto_cdc_flow(target="customers", source="records", keys=["id"], sequence_by="version")

@F.udf("string")
def size(cents):
    return "large" if cents > 50 else "small"

@dp.materialized_view
def sized():
    return spark.table("orders").select("id", "cents", size("cents").alias("size"))

@dp.materialized_view
def priced():
    return spark.read.format("delta").load("prices").groupBy("id").agg(F.sum("price").alias("price"))

@dp.materialized_view(table_properties={"headrace.refresh_policy": "full"})
def of_spark():
    found = spark.table("sized").groupBy("size").agg(F.max("cents").alias("most"))
    return found.withColumnRenamed("size", "grade")
"""
SQL = """
CREATE TEMPORARY VIEW located AS
SELECT o.id, o.cents, c.city FROM orders o JOIN customers c ON o.customer = c.id;
CREATE MATERIALIZED VIEW revenue AS SELECT city, count(*) AS n, sum(cents) AS cents FROM located
GROUP BY city;
CREATE MATERIALIZED VIEW best AS SELECT city, id, cents FROM (
  SELECT *, row_number() OVER (PARTITION BY city ORDER BY cents DESC, id) AS place FROM located
) WHERE place = 1;
CREATE MATERIALIZED VIEW following AS SELECT o.id, l.city FROM orders o JOIN located l ON o.id = l.id + 1;
CREATE MATERIALIZED VIEW cheap (CONSTRAINT few EXPECT (cents < 60) ON VIOLATION DROP ROW)
AS SELECT id, cents FROM orders;
CREATE MATERIALIZED VIEW handed_on TBLPROPERTIES ('headrace.refresh_policy' = 'full')
AS WITH both AS (SELECT id AS number, cents FROM orders UNION ALL SELECT id, 0 FROM records)
SELECT number, count(*) AS n FROM both GROUP BY number;
"""
CITIES = ("bath", "cork")
ORDERS = [{"id": at, "customer": at % 4, "cents": at * 7 % 100} for at in range(24)]
CUSTOMERS = [{"id": at, "city": CITIES[at % 2], "version": 1} for at in range(4)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Project:
    made = Project.new(tmp_path_factory.mktemp("why") / "project", spark, a_py=PYTHON, b_sql=SQL)
    deltalake.write_deltalake(str(made.root / "prices"), pa.table({"id": [1, 2, 1], "price": [5, 6, 7]}))
    made.add("orders", 1, ORDERS[:20])
    made.add("customers", 1, CUSTOMERS)
    assert not made.run().failed
    made.add("orders", 2, ORDERS[20:])
    assert not made.run().failed
    return made


def why(project: Project, table: str, **wanted: Any) -> Witness | Unexplained:
    texts = {name: None if value is None else str(value) for name, value in wanted.items()}
    return explain_row_of_table(project.spec, None, table, texts)


def needed(project: Project, table: str, **wanted: Any) -> dict[str, set[int]]:
    """Return the ids of the rows that a row was made from, by source."""
    found = why(project, table, **wanted)
    assert isinstance(found, Witness)
    assert (found.found, found.conclusive, found.minimal) == (True, True, True)
    by_source: dict[str, set[int]] = {}
    for item in found.needed:
        by_source.setdefault(item.source, set()).add(item.row[0])
    return by_source


def all_rows(project: Project) -> Iterator[tuple[str, dict[str, str | None]]]:
    storage = project.spec.storage
    for name, entry in PipelineCatalog.last_entries(storage).items():
        if name.is_hidden:
            continue
        version = StoredVersion(storage, name, entry)
        for row in version.page("", 0).rows:
            yield name.table, dict(zip(version.columns, row.values, strict=True))


def test_each_row_of_each_table_with_a_flow_is_explained(project: Project) -> None:
    seen = set[str]()
    for table, row in all_rows(project):
        found = why(project, table, **row)
        if table in ("of_spark", "handed_on"):
            assert isinstance(found, Unexplained)
        else:
            assert isinstance(found, Witness)
            assert (found.found, found.conclusive) == (True, True), (table, row, found.problem)
            assert found.needed
        seen.add(table)
    assert seen == {
        "orders", "records", "customers", "sized", "of_spark", "revenue", "best", "cheap",
        "cheap__headrace_dropped", "following", "handed_on", "priced",
    }  # fmt: skip


def test_rows_of_an_aggregate_over_a_join(project: Project) -> None:
    bath = [order for order in ORDERS if order["customer"] % 2 == 0]
    assert needed(project, "revenue", city="bath", n=len(bath), cents=sum(o["cents"] for o in bath)) == {
        # An order of 0 cents counts, so it is needed, too.
        "orders": {order["id"] for order in bath},
        "customers": {0, 2},
    }


def test_a_row_that_only_competes_is_not_needed(project: Project) -> None:
    cork = max((o for o in ORDERS if o["customer"] % 2), key=lambda o: o["cents"])
    assert needed(project, "best", city="cork", id=cork["id"]) == {
        "orders": {cork["id"]},
        "customers": {cork["customer"]},
    }


def test_what_a_table_and_its_shared_part_read_is_one_input(project: Project) -> None:
    assert needed(project, "following", id=6) == {"orders": {6, 5}, "customers": {1}}


def test_rows_that_a_python_function_computes_come_from_one_row(project: Project) -> None:
    assert needed(project, "sized", id=13) == {"orders": {13}}


def test_rows_of_files_and_dropped_rows(project: Project) -> None:
    assert needed(project, "orders", id=21) == {"input": {21}}
    assert needed(project, "cheap__headrace_dropped", id=12) == {"orders": {12}}


def test_rows_of_a_delta_table(project: Project) -> None:
    found = why(project, "priced", id=1)
    assert isinstance(found, Witness)
    assert sorted(item.row[:2] for item in found.needed) == [(1, 5), (1, 7)]


def test_of_a_table_that_spark_recomputes_the_query_and_the_agreeing_rows_are_shown(project: Project) -> None:
    found = why(project, "of_spark", grade="large")
    assert isinstance(found, Unexplained)
    assert found.why == "the policy is full"
    assert found.query.startswith("@dp.materialized_view(")
    assert found.query.endswith('withColumnRenamed("size", "grade")')
    (sized,) = found.inputs.values()
    assert sized.columns == {"size": "large"}
    assert sized.rows is not None
    large = {order["id"] for order in ORDERS if order["cents"] > 50}
    assert (set(sized.rows["id"].to_pylist()), sized.count) == (large, len(large))


def test_columns_are_followed_through_unions_and_common_table_expressions(project: Project) -> None:
    found = why(project, "handed_on", number=3)
    assert isinstance(found, Unexplained)
    assert found.query == SQL[SQL.index("CREATE MATERIALIZED VIEW handed_on") :].strip()
    assert {key: (each.columns, each.count) for key, each in found.inputs.items()} == {
        "table spark_catalog.default.orders": ({"id": "3"}, 1),
        "table spark_catalog.default.records": ({"id": "3"}, 1),
    }


def test_what_cannot_be_read_again_is_told(project: Project) -> None:
    file = project.root / "orders" / "2.json"
    text = file.read_text()
    file.write_text(text.replace("21", "99"))
    try:
        found = why(project, "orders", id=21)
        assert isinstance(found, Witness)
        assert (found.found, found.conclusive) == (False, False)
        assert "has changed or is gone since" in found.sources["input"].why_not
    finally:
        file.write_text(text)


def test_rows_of_another_query_are_not_explained(project: Project) -> None:
    kept = load_with_any_policy(project.spec)
    assert isinstance(kept, KeptAnalysis)
    from dataclasses import replace

    from headrace.pipelines.row_provenance import explain_row

    entries = PipelineCatalog.last_entries(project.spec.storage)
    name = TableName("default", "best")
    version = StoredVersion(project.spec.storage, name, entries[name])
    row = version.find({"city": "bath"})
    assert row is not None
    other = {**kept.plans, name: replace(kept.plans[name], fingerprint="other")}
    with pytest.raises(QueryRefused, match="has changed since"):
        explain_row(other, version, row, entries)


@pytest.mark.parametrize(
    ("name", "line", "lines"),
    [("a.sql", 2, ["SELECT", "2;"]), ("a.sql", 9, []), ("a.py", 2, ["@x", "def f():", "    return 1"])],
)
def test_the_statement_at_a_line(tmp_path: Path, name: str, line: int, lines: list[str]) -> None:
    (tmp_path / "a.sql").write_text("SELECT 1;\nSELECT\n2;\nSELECT 3")
    (tmp_path / "a.py").write_text("@x\ndef f():\n    return 1\n\ny = 2\n")
    assert statement_at(SourceLocation(str(tmp_path / name), line)).splitlines() == lines
    assert statement_at(SourceLocation(str(tmp_path / "none.py"), line)) == ""


# --- the command ----------------------------------------------------------------------------------


def headrace(project: Project, *arguments: str) -> Result:
    spec = str(project.root / "spark-pipeline.yml")
    return CliRunner().invoke(app, ["pipeline", "why", "--spec", spec, *arguments])


def test_what_the_command_prints(project: Project) -> None:
    found = headrace(project, "BEST", '{"City": "cork"}')
    assert found.exit_code == 0
    assert_golden(PRINTED / "why.txt", found.stdout)
    unknown = headrace(project, "of_spark", '{"grade": "large", "most": 98}')
    assert unknown.exit_code == 3
    assert_golden(PRINTED / "why_unexplained.txt", unknown.stdout)


def test_an_analysis_that_is_not_kept_is_told_instead_of_starting_spark(project: Project) -> None:
    file = project.root / "transformations" / "b.sql"
    text = file.read_text()
    file.write_text(text + "-- changed")
    try:
        refused = headrace(project, "best", '{"city": "cork"}', "--kept")
    finally:
        file.write_text(text)
    assert refused.exit_code == 2
    assert_golden(PRINTED / "why_not_kept.txt", refused.stderr.replace(str(project.root), "PROJECT"))


def test_what_the_command_gives_as_json(project: Project) -> None:
    found = json.loads(headrace(project, "best", '{"city": "cork"}', "--json").stdout)
    assert [row["values"][0] for row in found["sources"]["orders"]["rows"] if row["needed"]] == ["13"]
    unknown = json.loads(headrace(project, "handed_on", '{"number": 3}', "--json").stdout)
    orders = unknown["inputs"]["table spark_catalog.default.orders"]
    assert (orders["rows"], orders["numbers"]) == ([["3", "3", "21"]], [True, True, True])


@pytest.mark.parametrize(
    ("name", "table", "row"),
    [
        ("unknown_table", "bests", "{}"),
        ("unknown_column", "best", '{"town": "cork"}'),
        ("no_such_row", "best", '{"city": "ely"}'),
        ("no_column", "best", "{}"),
        ("no_object", "best", "[1"),
    ],
)
def test_mistakes_are_told(project: Project, name: str, table: str, row: str) -> None:
    refused = headrace(project, table, row)
    assert refused.exit_code == 2
    assert_golden(PRINTED / f"why_{name}.txt", refused.stderr)
