"""Cost of a table without an incremental form: recomputed for the affected keys, and for all.

    PYTHONPATH=. python benches/pipeline_affected_keys.py [--rows 1000000] [--keys 50000] [--share 0.001 0.01]

Costs are CPU seconds of all processes with the start of Java, and in brackets of the table alone. Each table
is a project of its own over the same Parquet: one row per key, and all rows with a window function. Every run
is a process of its own. After the first run shares of the rows are added, each row for any of the keys; the
same project with the policy `full` is the peer. At the end the tables are compared. The exit code is 1 if
they differ.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import duckdb

from benches.measure.processes import run_command
from benches.pipeline_refresh import HEADRACE
from headrace.pipelines.event_log import EventLog

SKETCH = "theta_sketch_estimate(theta_sketch_agg(amount"
QUERIES = {
    "a row per key": f"SELECT customer, {SKETCH})) AS amounts FROM parquet.`{{}}` GROUP BY customer",
    "a window by key": f"SELECT *, {SKETCH}) OVER (PARTITION BY customer)) AS amounts FROM parquet.`{{}}`",
}
SPEC = """name: affected
storage: storage
configuration: {{headrace.refresh_policy: {}}}
libraries: [{{glob: {{include: t/**}}}}]
"""


def add(folder: Path, name: str, first: int, rows: int, keys: int) -> None:
    folder.mkdir(exist_ok=True)
    duckdb.sql(
        f"""COPY (SELECT {first} + i AS id, (hash({first} + i) % {keys})::INT AS customer,
        (hash(i * 7) % 10000)::INT AS amount FROM range({rows}) t(i)) TO '{folder}/{name}.parquet'"""
    )


def project(folder: Path, query: str, policy: str) -> Path:
    (folder / "t").mkdir(parents=True)
    (folder / "t/a.sql").write_text(f"CREATE MATERIALIZED VIEW m AS {query};")
    (folder / "spark-pipeline.yml").write_text(SPEC.format(policy))
    return folder


def cost(folder: Path) -> str:
    """Run a project; return the CPU seconds of the run, and of its table alone."""
    whole = run_command([*HEADRACE, "run"], folder, dict(os.environ), folder / "run.log").cpu
    (record,) = EventLog(folder / "storage").records(table="spark_catalog.default.m", last=1)
    table = (record.cpu_seconds or 0.0) + (record.spark_cpu_seconds or 0.0)
    return f"{whole:.1f} ({table:.1f}, {'all rows' if record.from_all_rows else record.method})"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--share", type=float, nargs="+", default=[0.001])
    given = parser.parse_args()
    different = 0
    for title, query in QUERIES.items():
        with tempfile.TemporaryDirectory() as made:
            different += measure(Path(made), title, query, given)
    print(f"{different:,} different rows")
    return 1 if different else 0


def measure(folder: Path, title: str, query: str, given: argparse.Namespace) -> int:
    """Measure a table by both methods; return the number of rows by which they differ."""
    data, first = folder / "data", 0
    projects = [project(folder / policy, query.format(data), policy) for policy in ("auto", "full")]
    for share in (1.0, *given.share):
        rows = int(given.rows * share)
        add(data, str(first), first, rows, given.keys)
        first += rows
        print(f"{title}, {rows:,} more rows:", *map(cost, projects), sep="   ", flush=True)
    one, two = (
        f"FROM read_parquet('{each}/storage/catalog/current/default/m/*.parquet')" for each in projects
    )
    both = f"({one} EXCEPT ALL {two}) UNION ALL ({two} EXCEPT ALL {one})"
    return len(duckdb.connect().execute(both).fetchall())


if __name__ == "__main__":
    sys.exit(main())
