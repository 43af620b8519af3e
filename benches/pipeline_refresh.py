"""Cost of a pipeline's runs and the bytes that they leave: by Headrace, and by peers that recompute.

    PYTHONPATH=. python benches/pipeline_refresh.py [--orders 10000000] [--changes 0.001] [--peer PATH]
    PYTHONPATH=. python benches/pipeline_refresh.py --job [--times 1 100] [--changes 0.001]

Costs are CPU seconds of all processes, and wall seconds. Every run is a process of its own, with its Java.
Start is the dry run of a project with one constant table; analysis is what the dry run of the project costs
more. Then come the first run, one after a part of the input has been added, one after nothing, and one after
a single order. Bytes are those left after all of them; hard links to the input take none.

The project is examples/pipeline. Its peers are DuckDB, which makes the same tables, and `spark-pipelines`, in
which the AUTO CDC tables fail and are views instead. The job is `cases/shop_job` of the folder that
HEADRACE_SHARED names; its peer is the batch job on Spark that it was before. A peer that fails is left out
from then on. At the end all tables are compared. The exit code is 1 if they differ or Headrace has failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from benches.contestants import duckdb_pipeline
from benches.measure import LiveTable, Table
from benches.measure.processes import Cost, run_command
from benches.measure.same_tables import difference
from examples.pipeline.make_input import add_customers, add_orders, customer_records
from tests.pipelines.peer import Peer
from tests.pipelines.test_example import EXAMPLE

HEADRACE = [sys.executable, "-m", "headrace.cli", "pipeline"]
SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).parents[2] / "shared")
JOB_ORDERS = 200_000
SKETCH_TOLERANCE = 0.1
"""Of the sums of what Spark's sketch and DuckDB's, which is coarser, estimate."""


def _environment() -> dict[str, str]:
    """Return the environment of a run, whose modules are compiled once, as installed ones are."""
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


@dataclass
class Runner:
    """Contestant: its commands, and what they have cost so far.

    run: refreshes all tables, in `folder`.
    files: pattern of the Parquet files of a table, by its name.
    kept: folder of all that a run leaves.
    start: does nothing but start, in `empty` if that is given.
    analysis: starts and analyses.
    """

    name: str
    folder: Path
    run: Sequence[str]
    files: Callable[[str], str]
    kept: Path
    start: Sequence[str] | None = None
    empty: Path | None = None
    analysis: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=_environment)
    costs: dict[str, Cost] = field(default_factory=dict[str, Cost])
    failed: bool = False

    def measure(self, what: str, command: Sequence[str] | None, folder: Path | None = None) -> str:
        """Run a command and note its cost; return what to show."""
        if command is None or self.failed:
            return ""
        try:
            cost = run_command(command, folder or self.folder, self.environment, self.folder / "run.log")
        except (OSError, subprocess.CalledProcessError) as failure:
            self.failed = True
            output = getattr(failure, "output", None) or ""
            print(f"{self.name} failed, {what}: {failure}\n{output}", file=sys.stderr, flush=True)
            return "failed"
        if what == "analysis":
            start = self.costs["start"]
            cost = Cost(max(0.0, cost.cpu - start.cpu), max(0.0, cost.wall - start.wall))
        self.costs[what] = cost
        return str(cost)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--orders", type=int, default=10_000_000)
    options.add_argument("--changes", type=float, default=0.001)
    options.add_argument("--peer", help="path of spark-pipelines, with pyspark[pipelines] installed")
    options.add_argument("--job", action="store_true", help="measure the job in cases/shop_job instead")
    options.add_argument("--times", type=int, nargs="+", default=[1], help="of the job's size")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.job:
            done = [measure_job(Path(folder, str(times)), times, given.changes) for times in given.times]
        else:
            done = [measure_project(Path(folder), given.orders, given.changes, given.peer)]
    if not all(done):
        raise SystemExit(1)


def measure_project(folder: Path, orders: int, changes: float, peer: str | None) -> bool:
    ours, theirs, duck = folder / "ours", folder / "theirs", folder / "duckdb"
    shutil.copytree(EXAMPLE, ours, ignore=shutil.ignore_patterns("input", "storage", "__pycache__"))
    duck.mkdir()
    files, customers = max(1, orders // 1_000_000), max(1_000, orders // 100)
    for number in range(1, files + 1):
        add_orders(ours / "input/orders", number, orders // files, customers)
    add_customers(ours / "input/customers", 1, customer_records(1, customers, customers))
    runners = [headrace(ours), in_duckdb(duck, ours)]
    if peer:
        other = Peer(Path(peer))
        other.prepare(ours, theirs)
        runners.append(spark_pipelines(other, theirs))

    def add_part() -> None:
        add_orders(ours / "input/orders", files + 1, int(orders * changes), customers)
        records = customer_records(2, int(customers * changes), customers)
        add_customers(ours / "input/customers", 2, records)

    def add_one() -> None:
        add_orders(ours / "input/orders", files + 2, 1, customers)

    title = f"{orders:,} orders"
    measure_runs(title, runners, changes, add_part, add_one)
    show_bytes(runners, ours / "input")
    tolerances = {"customers_by_day": {"customers": SKETCH_TOLERANCE}}
    return compare_tables(runners, runners[1], duckdb_pipeline.QUERIES, tolerances)


def headrace(folder: Path) -> Runner:
    tables = folder / "storage/catalog/current/default"
    return Runner(
        "Headrace",
        folder,
        [*HEADRACE, "run"],
        lambda table: f"{(tables / table).resolve()}/**/*.parquet",
        folder / "storage",
        start=[*HEADRACE, "dry-run"],
        empty=empty_project(folder),
        analysis=[*HEADRACE, "dry-run"],
    )


def in_duckdb(folder: Path, project: Path) -> Runner:
    return Runner(
        "DuckDB",
        folder,
        [sys.executable, duckdb_pipeline.__file__, str(project), str(folder / "tables")],
        lambda table: f"{folder}/tables/{table}.parquet",
        folder / "tables",
        start=[sys.executable, "-c", "import duckdb"],
    )


def spark_pipelines(peer: Peer, folder: Path) -> Runner:
    return Runner(
        "spark-pipelines",
        folder,
        [*peer.command, "run"],
        lambda table: f"{folder}/spark-warehouse/{table}/*.parquet",
        folder / "spark-warehouse",
        start=[*peer.command, "dry-run"],
        empty=empty_project(folder),
        analysis=[*peer.command, "dry-run"],
        environment=peer.environment,
    )


def empty_project(folder: Path) -> Path:
    """Make a project with the spec of another one, but a single constant table."""
    empty = folder.with_name(f"{folder.name}_empty")
    (empty / "transformations").mkdir(parents=True)
    shutil.copy(folder / "spark-pipeline.yml", empty)
    (empty / "transformations/one.sql").write_text("CREATE MATERIALIZED VIEW one AS SELECT 1 AS one;\n")
    return empty


def measure_job(folder: Path, times: int, changes: float) -> bool:
    case = SHARED / "cases/shop_job"
    if not case.is_dir():
        print(f"There is no {case}; HEADRACE_SHARED may name the folder that has cases/shop_job.")
        return True
    orders = JOB_ORDERS * times
    project, batch = folder / "project", folder / "batch"
    shutil.copytree(case / "pipeline", project)
    batch.mkdir()

    def make_input(*arguments: object) -> None:
        subprocess.run(
            [sys.executable, case / "make_input.py", *map(str, arguments)], cwd=project, check=True
        )

    make_input(orders)
    ours = headrace(project)
    job = [sys.executable, str(case / "sales_job.py"), str(project / "in"), str(batch / "out")]
    theirs = Runner(
        "Spark's batch",
        batch,
        job,
        lambda table: f"{batch}/out/{table}/**/*.parquet",
        batch / "out",
        environment={**_environment(), "PYSPARK_PYTHON": sys.executable},
    )
    added = int(orders * changes)
    measure_runs(
        f"shop_job, {orders:,} orders",
        [ours],
        changes,
        lambda: make_input(orders, "2", orders, added),
        lambda: make_input(orders, "3", orders + added, 1),
    )
    print(f"{theirs.name}, of all the input: {theirs.measure('batch', theirs.run)}", flush=True)
    if "second" in ours.costs and "batch" in theirs.costs:
        ratio = theirs.costs["batch"].cpu / ours.costs["second"].cpu
        print(f"The second run costs {ratio:.1f} times less than the batch job.")
    show_bytes([ours, theirs], project / "in")
    return compare_tables([ours, theirs], theirs, ("daily", "status_by_country", "top_customers"), {})


def measure_runs(
    title: str,
    runners: Sequence[Runner],
    changes: float,
    add_part: Callable[[], None],
    add_one: Callable[[], None],
) -> None:
    shown = LiveTable(
        f"{title}: CPU s / wall s",
        f"{'run':22}",
        *(f"{runner.name:>17}" for runner in runners),
    )

    def row(name: str, what: str, command: Callable[[Runner], str]) -> None:
        shown.add(name, *map(command, runners))

    row("start", "start", lambda of: of.measure("start", of.start, of.empty))
    row("analysis", "analysis", lambda of: of.measure("analysis", of.analysis))
    for runner in runners:
        # What a dry run keeps would be missing in the first run's cost.
        shutil.rmtree(runner.kept, ignore_errors=True)
    row("first", "first", lambda of: of.measure("first", of.run))
    add_part()
    row(f"{changes:.2%} changed", "second", lambda of: of.measure("second", of.run))
    row("nothing changed", "nothing", lambda of: of.measure("nothing", of.run))
    add_one()
    row("one order changed", "one", lambda of: of.measure("one", of.run))


def show_bytes(runners: Iterable[Runner], read: Path) -> None:
    seen: set[int] = set()
    size, files = size_of(read, seen)
    table = Table("on disk after all runs", "", "MB", "to the input", "files")
    table.add("input", size / 1e6, 1.0, f"{files:,}")
    for runner in runners:
        kinds = sorted(runner.kept.glob("*")) if runner.name == "Headrace" else [runner.kept]
        total = 0
        for kind in kinds:
            size_of_kind, files = size_of(kind, seen)
            total += size_of_kind
            table.add(f"{runner.name}: {kind.name}", size_of_kind / 1e6, size_of_kind / size, f"{files:,}")
        if len(kinds) > 1:
            table.add(f"{runner.name}: all", total / 1e6, total / size, "")
    table.show()


def size_of(folder: Path, seen: set[int]) -> tuple[int, int]:
    """Return the bytes and the number of files below a folder; leave out inodes seen before, and add them."""
    size = files = 0
    for at, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(at, name))
            if status.st_ino not in seen:
                seen.add(status.st_ino)
                size, files = size + status.st_size, files + 1
    return size, files


def compare_tables(
    runners: Sequence[Runner],
    expected: Runner,
    tables: Iterable[str],
    tolerances: Mapping[str, Mapping[str, float]],
) -> bool:
    """Compare the tables of all runners that have not failed with those of one; print what differs."""
    right = not runners[0].failed
    if expected.failed:
        print(f"Tables are not compared: {expected.name} failed.")
        return False
    with duckdb.connect() as db:
        for runner in runners:
            if runner is expected or runner.failed:
                continue
            found = {
                table: difference(
                    db, _relation(runner, table), _relation(expected, table), tolerances.get(table)
                )
                for table in tables
            }
            for table, what in found.items():
                if what:
                    print(f"{runner.name}: {table} differs from that of {expected.name}: {what}")
                    right = False
            same = sum(what is None for what in found.values())
            print(f"{runner.name}: {same} of {len(found)} tables are those of {expected.name}")
    return right


def _relation(runner: Runner, table: str) -> str:
    return f"read_parquet('{runner.files(table)}')"


if __name__ == "__main__":
    main()
