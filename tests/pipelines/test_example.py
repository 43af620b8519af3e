"""The example's ten tables, from bronze to gold, against DuckDB over all of its input."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples.pipeline.make_input import add_customers, add_orders, customer_records
from tests.pipelines.project import Project, event, methods, states

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


def test_its_tables_are_those_of_all_input_after_every_run(tmp_path: Path, spark: SparkSession) -> None:
    project = copied(tmp_path, spark)
    for number, orders, records in ((1, 400, 30), (2, 300, 20), (3, 7, 2)):
        add_input(project.root, number, orders, records)
        report = project.run()
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
    # Few rows are read where few have changed: an order is one row, a customer that moves has some of them.
    for table in ("customers", "customer_versions", "graded_orders", "best_orders", "grades_by_day"):
        updated = event(report, table).updated
        assert updated is not None
        assert updated.rows_in is not None
        assert updated.rows_in <= 2 * 7 + 4, table

    jobs = next_job(spark)
    report = project.run()
    assert next_job(spark) == jobs
    assert not any(each.changed for each in report.events.values())


def next_job(spark: SparkSession) -> int:
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()  # pyright: ignore
    return scheduler.nextJobId()
