"""Tables of the brokerage computed anew by Spark: python spark_brokerage.py PROJECT OUT.

The queries are those of the project; only versions of customers and accounts are made by a window.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pyspark.sql import SparkSession

VERSIONS = """
SELECT {columns}, at AS __START_AT, lead(at) OVER (PARTITION BY {key} ORDER BY at) AS __END_AT FROM {source}
"""
READ = {
    "customer_records": "customers", "account_records": "accounts", "trade_records": "trades",
    "holding_records": "holdings", "cash_records": "cash", "daily_market": "market",
    "financial_reports": "financials", "securities": "securities", "prospect_records": "prospects",
}  # fmt: skip
VIEW = re.compile(r"CREATE MATERIALIZED VIEW (\w+) AS\s+([^;]+);")


def main() -> None:
    project, out = map(Path, sys.argv[1:])
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    for view, folder in READ.items():
        spark.read.parquet(f"{project}/input/{folder}").createOrReplaceTempView(view)
    queries = {
        name: VERSIONS.format(columns=columns, key=key, source=source)
        for name, source, key, columns in (
            (
                "customer_versions", "customer_records", "c_id",
                "c_id, at, tier, last_name, first_name, born, city, status, credit, net_worth",
            ),
            ("account_versions", "account_records", "ca_id", "ca_id, at, c_id, broker, name, status"),
        )
    }  # fmt: skip
    queries |= dict(VIEW.findall((project / "transformations/warehouse.sql").read_text()))
    for name, query in queries.items():
        spark.sql(query).write.mode("overwrite").parquet(f"{out}/{name}")
        spark.read.parquet(f"{out}/{name}").createOrReplaceTempView(name)
    spark.stop()


if __name__ == "__main__":
    main()
