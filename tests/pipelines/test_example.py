"""The example's ten tables, from bronze to gold, against DuckDB over all of its input."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.pipeline.make_input import add_customers, add_orders, customer_records
from headrace.pipelines.definitions import Policy
from headrace.pipelines.errors import NotIncremental
from tests.pipelines.project import Project, methods, rows_read, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples/pipeline"

pytestmark = pytest.mark.spark

LOCATED = "(SELECT o.id, o.cents, o.day, c.city FROM orders o JOIN customers c ON o.customer = c.id)"
GRADE = "CASE WHEN cents >= 9000 THEN 'large' WHEN cents >= 2000 THEN 'middle' ELSE 'small' END"
EXPECTED = {
    "bronze_orders": "SELECT * FROM raw_orders",
    "orders": "SELECT * FROM orders",
    "customers": "SELECT * FROM customers",
    "customer_versions": """
        SELECT id, name, city, version, following FROM (
            SELECT *, lead(version) OVER (PARTITION BY id ORDER BY version) AS following FROM (
                SELECT *, lag((op, name, city)) OVER (PARTITION BY id ORDER BY version) AS before FROM changes
            ) WHERE before IS DISTINCT FROM (op, name, city)
        ) WHERE op <> 'D'""",
    "graded_orders": f"SELECT id, customer, cents, {GRADE} FROM orders",
    "revenue_by_city": f"SELECT city, count(*), sum(cents) FROM {LOCATED} GROUP BY city",
    "best_orders": f"""
        SELECT city, id, cents FROM {LOCATED}
        QUALIFY row_number() OVER (PARTITION BY city ORDER BY cents DESC, id) <= 3""",
    "grades_by_day": f"SELECT day, {GRADE} AS g, count(*), max(cents) FROM orders GROUP BY day, g",
    "customers_by_day": "SELECT day, count(DISTINCT customer) FROM orders GROUP BY day",
}
"""The rows of each table, computed from all of the input. Sketches of few values are exact."""


def expected(root: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    import duckdb

    with duckdb.connect() as db:
        db.sql("SET TimeZone = 'UTC'")
        orders, customers = f"{root}/input/orders/*.parquet", f"{root}/input/customers/*.json"
        db.sql(f"CREATE VIEW raw_orders AS SELECT * FROM read_parquet('{orders}')")
        db.sql("""CREATE VIEW orders AS SELECT id, customer, cents, "at", trim(note) AS note,
            CAST("at" AT TIME ZONE 'UTC' AS DATE) AS day FROM raw_orders WHERE cents > 0""")
        db.sql(f"CREATE VIEW changes AS SELECT * FROM read_json('{customers}')")
        db.sql("""CREATE VIEW customers AS SELECT id, name, city FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY version DESC) AS place FROM changes
            ) WHERE place = 1 AND op <> 'D'""")
        return {table: Counter(db.sql(query).fetchall()) for table, query in EXPECTED.items()}


def copied(tmp_path: Path, spark: SparkSession) -> Project:
    shutil.copytree(
        EXAMPLE, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__", "storage", "input")
    )
    return Project(tmp_path / "project", spark)


def add_input(root: Path, number: int, orders: int, records: int) -> None:
    add_orders(root / "input/orders", number, orders, 50)
    add_customers(root / "input/customers", number, customer_records(number, records, 50))


def assert_right(project: Project) -> None:
    for table, rows in expected(project.root).items():
        assert project.rows(table) == rows, table


@pytest.mark.verify
def test_its_tables_are_those_of_all_input_after_every_run(tmp_path: Path, spark: SparkSession) -> None:
    project = copied(tmp_path, spark)
    add_input(project.root, 1, 400, 30)
    with pytest.raises(NotIncremental) as refused:
        project.run(policy=Policy.INCREMENTAL_STRICT)
    assert refused.value.facts["dataset"] == "spark_catalog.default.customers_by_day"
    let_one_be_recomputed(project)
    for number, orders, records in ((1, 400, 30), (2, 300, 20), (3, 7, 2)):
        add_input(project.root, number, orders, records)
        report = project.run(policy=Policy.INCREMENTAL_STRICT)
        assert set(states(report).values()) == {"COMPLETED"}
        assert_right(project)
    assert methods(report) == {
        "bronze_orders": "append",
        "bronze_customers": "append",
        "customers": "incremental",
        "customer_versions": "incremental",
        "orders": "incremental, stateless",
        "graded_orders": "incremental, stateless",
        "revenue_by_city": "incremental",
        "best_orders": "incremental",
        "grades_by_day": "incremental",
        "customers_by_day": "recompute",
    }
    # Few rows are read where few have changed: an order is one row, which two inputs may bring; a record
    # changes a customer, who had another row before.
    read = {table: rows_read(report, table) for table in methods(report)}
    assert read.pop("customers_by_day") is None
    assert len(read) == 9
    assert {table: rows for table, rows in read.items() if rows is None or rows > 2 * 7 + 2 * 2} == {}
    assert (read["bronze_orders"], read["bronze_customers"]) == (7, 2)
    assert read["orders"] == 7

    jobs = next_job(spark)
    report = project.run(policy=Policy.INCREMENTAL_STRICT)
    assert next_job(spark) == jobs
    assert not any(each.changed for each in report.events.values())


def let_one_be_recomputed(project: Project) -> None:
    """Give the table without an incremental form a policy of its own."""
    file = project.root / "transformations/gold.sql"
    view = "CREATE MATERIALIZED VIEW customers_by_day\n"
    text = file.read_text()
    assert view in text
    file.write_text(text.replace(view, f"{view}TBLPROPERTIES ('headrace.refresh_policy' = 'auto')\n"))


def next_job(spark: SparkSession) -> int:
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()  # pyright: ignore
    return scheduler.nextJobId()
