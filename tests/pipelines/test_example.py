"""The example's ten tables, from bronze to gold, against DuckDB over all of its input."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from benches.contestants.duckdb_pipeline import QUERIES, create_tables
from examples.pipeline.make_input import add_customers, add_orders, customer_records
from headrace.pipelines.definitions import Policy
from tests.pipelines.project import Project, methods, rows_read, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples/pipeline"

pytestmark = pytest.mark.spark

EXPECTED = {
    **QUERIES,
    "customers_by_day": "SELECT day, count(DISTINCT customer) AS customers FROM orders GROUP BY day",
}
"""The query of each table, of all of the input. Sketches of few values are exact."""


def expected(root: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    with duckdb.connect() as db:
        create_tables(db, root, EXPECTED)
        return {table: Counter(db.execute(f"FROM {table}").fetchall()) for table in EXPECTED}


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
        "customers_by_day": "incremental",
    }
    # Few rows are read where few have changed: an order is one row, which two inputs may bring; a record
    # changes a customer, who had another row before.
    read = {table: rows_read(report, table) for table in methods(report)}
    assert len(read) == 10
    # Two tables read what has changed in the join that they share: the orders of these customers.
    of_part = read.pop("best_orders"), read.pop("revenue_by_city")
    assert of_part[0] == of_part[1]
    assert 2 * 7 < (of_part[0] or 0) < 707 // 5
    assert {table: rows for table, rows in read.items() if rows is None or rows > 2 * 7 + 2 * 2} == {}
    assert (read["bronze_orders"], read["bronze_customers"]) == (7, 2)
    assert read["orders"] == 7

    jobs = next_job(spark)
    report = project.run(policy=Policy.INCREMENTAL_STRICT)
    assert next_job(spark) == jobs
    assert not any(each.changed for each in report.events.values())


def next_job(spark: SparkSession) -> int:
    scheduler: Any = spark.sparkContext._jsc.sc().dagScheduler()  # pyright: ignore
    return scheduler.nextJobId()
