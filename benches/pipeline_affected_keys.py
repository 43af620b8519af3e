"""Cost of a table without an incremental form: recomputed for the affected keys, and for all.

    PYTHONPATH=. python benches/pipeline_affected_keys.py [--rows 1000000] [--keys 50000] [--share 0.001]

Costs are CPU seconds of all processes, with the start of Java. Each table is a project of its own over the
same Parquet: one row per key, and all rows with a window function. Every run is a process of its own. After
the first run a share of the rows is added, as many as `--share`, each for any of the keys; the same project
with the policy `full` is the peer. At the end the tables are compared. The exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import duckdb

from benches.measure.processes import run_command
from benches.pipeline_refresh import HEADRACE, _environment

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


def cost(folder: Path) -> float:
    return run_command([*HEADRACE, "run"], folder, _environment(), folder / "run.log").cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--share", type=float, nargs="+", default=[0.001])
    given = parser.parse_args()
    different = 0
    for title, query in QUERIES.items():
        with tempfile.TemporaryDirectory() as made:
            data = Path(made) / "data"
            for at in range(4):
                add(data, str(at), at * given.rows // 4, given.rows // 4, given.keys)
            text = query.format(data)
            policies = {policy: project(Path(made) / policy, text, policy) for policy in ("auto", "full")}
            print(
                title,
                "first run",
                *(f"{policy} {cost(each):.1f}" for policy, each in policies.items()),
                flush=True,
            )
            begin = given.rows
            for share in given.share:
                add(data, f"more-{share}", begin, int(given.rows * share), given.keys)
                begin += int(given.rows * share)
                print(
                    title,
                    share,
                    *(f"{policy} {cost(each):.1f}" for policy, each in policies.items()),
                    flush=True,
                )
                print((policies["auto"] / "run.log").read_text()[-190:])
            one, two = (
                f"read_parquet('{each}/storage/catalog/current/default/m/*.parquet')"
                for each in policies.values()
            )
            compared = duckdb.connect().execute(
                f"(FROM {one} EXCEPT ALL FROM {two}) UNION ALL (FROM {two} EXCEPT ALL FROM {one})"
            )
            different += len(compared.fetchall())
    print("different rows:", different)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
