"""CPU seconds of a pipeline's second run: by Penstock, and by `spark-pipelines`, which recomputes its views.

    PYTHONPATH=. python benches/pipeline_refresh.py [--orders 10000000] [--changes 0.001] [--peer PATH]

The project is examples/pipeline. Its AUTO CDC tables fail in open Spark on the formats that it ships, so the
peer gets views that compute the same from all records. Each run is a process of its own, with its Java; what
starting costs is that of a dry run, which analyses and runs nothing. `tests/pipelines` compares the tables.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from examples.pipeline.make_input import add_customers, add_orders, customer_records

EXAMPLE = Path(__file__).parents[1] / "examples/pipeline"
OURS = [sys.executable, "-m", "penstock.cli", "pipeline"]

PEER_CUSTOMERS = """
CREATE MATERIALIZED VIEW customers AS SELECT id, name, city FROM (
    SELECT *, row_number() OVER (PARTITION BY id ORDER BY version DESC) AS place FROM bronze_customers
) WHERE place = 1 AND op <> 'D';

CREATE MATERIALIZED VIEW customer_versions AS
SELECT id, name, city, version AS __START_AT, following AS __END_AT FROM (
    SELECT *, lead(version) OVER (PARTITION BY id ORDER BY version) AS following FROM (
        SELECT *, lag(struct(op, name, city)) OVER (PARTITION BY id ORDER BY version) AS before
        FROM bronze_customers
    ) WHERE NOT before <=> struct(op, name, city)
) WHERE op <> 'D';
"""


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--orders", type=int, default=10_000_000)
    options.add_argument("--changes", type=float, default=0.001)
    options.add_argument("--peer", help="path of spark-pipelines, with pyspark[pipelines] installed")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), given.orders, given.changes, given.peer)


def compare(folder: Path, orders: int, changes: float, peer: str | None) -> None:
    ours, theirs = folder / "ours", folder / "theirs"
    shutil.copytree(EXAMPLE, ours, ignore=shutil.ignore_patterns("input", "storage", "__pycache__"))
    customers = max(1_000, orders // 100)
    files = max(1, orders // 1_000_000)
    for number in range(files):
        add_orders(ours / "input/orders", number + 1, orders // files, customers)
    add_customers(ours / "input/customers", 1, customer_records(1, customers, customers))
    projects = [("Penstock", ours, OURS)]
    if peer:
        prepare_peer(ours, theirs)
        projects.append(("spark-pipelines", theirs, [peer]))
    print("| runner | start, analysis | first run | second run | without start |\n|---|---|---|---|---|")
    results: dict[str, tuple[float, float]] = {}
    for name, at, command in projects:
        results[name] = cpu_of([*command, "dry-run"], at), cpu_of([*command, "run"], at)
    add_orders(ours / "input/orders", files + 1, int(orders * changes), customers)
    records = customer_records(2, int(customers * changes), customers)
    add_customers(ours / "input/customers", 2, records)
    for name, at, command in projects:
        start, first = results[name]
        second = cpu_of([*command, "run"], at)
        print(f"| {name} | {start:.1f} | {first:.1f} | {second:.1f} | {second - start:.1f} |", flush=True)


def prepare_peer(ours: Path, theirs: Path) -> None:
    """Make the peer's project: the same input, an absolute storage, and views for AUTO CDC."""
    shutil.copytree(ours, theirs, ignore=shutil.ignore_patterns("input"))
    (theirs / "input").symlink_to(ours / "input")
    spec = (theirs / "spark-pipeline.yml").read_text()
    (theirs / "spark-pipeline.yml").write_text(
        spec.replace("storage: storage", f"storage: file://{theirs}/storage")
        + "configuration:\n  spark.sql.session.timeZone: UTC\n"
    )
    (theirs / "transformations/customers.py").unlink()
    (theirs / "transformations/customers.sql").write_text(PEER_CUSTOMERS)


def cpu_of(command: Sequence[str], folder: Path) -> float:
    """Run a command in a folder; return the CPU seconds of all its processes."""
    extra = ["--conf", "spark.sql.catalogImplementation=hive"] if command[0] != OURS[0] else []
    log = folder / "run.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*command[:1], *extra, *command[1:]] if extra else command,
            cwd=folder, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
        seconds: dict[int, float] = {}
        while process.poll() is None:
            seconds |= cpu_of_session(process.pid)
            time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{log.read_text()[-3_000:]}")
    return sum(seconds.values())


def cpu_of_session(leader: int) -> dict[int, float]:
    """Return the CPU seconds so far of the processes of a session, by their numbers."""
    found: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            found[int(folder.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


if __name__ == "__main__":
    main()
