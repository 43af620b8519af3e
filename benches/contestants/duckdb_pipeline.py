"""The tables of examples/pipeline in DuckDB, all of them anew, as a script that cron starts.

    python benches/contestants/duckdb_pipeline.py PROJECT OUT

It reads the input of PROJECT and writes a Parquet file per table into OUT. It imports nothing but DuckDB.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb

LOCATED_ORDERS = """
    CREATE VIEW located_orders AS
    SELECT o.id, o.cents, o.day, c.city FROM orders o JOIN customers c ON o.customer = c.id"""

QUERIES = {
    "bronze_orders": "SELECT * FROM read_parquet('{project}/input/orders/*.parquet')",
    "bronze_customers": """
        SELECT * FROM read_json('{project}/input/customers/*.json', format = 'newline_delimited',
            columns = {{id: 'INT', name: 'TEXT', city: 'TEXT', op: 'TEXT', version: 'BIGINT'}})""",
    "orders": """
        SELECT id, customer, cents, "at", trim(note) AS note, CAST("at" AT TIME ZONE 'UTC' AS DATE) AS day
        FROM bronze_orders WHERE cents > 0""",
    "customers": """
        SELECT id, name, city FROM (
            FROM bronze_customers QUALIFY row_number() OVER (PARTITION BY id ORDER BY version DESC) = 1
        ) WHERE op <> 'D'""",
    "customer_versions": """
        SELECT id, name, city, version AS __START_AT, following AS __END_AT FROM (
            SELECT *, lead(version) OVER (PARTITION BY id ORDER BY version) AS following FROM (
                SELECT *, lag((op, name, city)) OVER (PARTITION BY id ORDER BY version) AS before
                FROM bronze_customers
            ) WHERE before IS DISTINCT FROM (op, name, city)
        ) WHERE op <> 'D'""",
    "graded_orders": """
        SELECT id, customer, cents,
            CASE WHEN cents >= 9000 THEN 'large' WHEN cents >= 2000 THEN 'middle' ELSE 'small' END AS grade
        FROM orders""",
    "revenue_by_city": """
        SELECT city, count(*) AS orders, sum(cents)::BIGINT AS cents FROM located_orders GROUP BY city""",
    "best_orders": """
        SELECT city, id, cents FROM located_orders
        QUALIFY row_number() OVER (PARTITION BY city ORDER BY cents DESC, id) <= 3""",
    "grades_by_day": """
        SELECT o.day, g.grade, count(*) AS orders, max(g.cents) AS largest
        FROM orders o JOIN graded_orders g USING (id) GROUP BY o.day, g.grade""",
    "customers_by_day": "SELECT day, approx_count_distinct(customer) AS customers FROM orders GROUP BY day",
}
"""The query of each table, in an order in which they can run."""


def create_tables(db: duckdb.DuckDBPyConnection, project: Path, queries: Mapping[str, str]) -> None:
    db.execute("SET TimeZone = 'UTC'")
    for table, query in queries.items():
        db.execute(f"CREATE TABLE {table} AS {query.format(project=project)}")
        if table == "customers":
            db.execute(LOCATED_ORDERS)


def main(project: str, out: str) -> None:
    Path(out).mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as db:
        db.execute("SET preserve_insertion_order = false")
        create_tables(db, Path(project), QUERIES)
        for table in QUERIES:
            db.execute(f"COPY {table} TO '{out}/{table}.parquet'")


if __name__ == "__main__":
    main(*sys.argv[1:])
