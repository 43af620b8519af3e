"""Runs one after another in a process: each goes on with what the one before has read and compiled."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.analysis import analysis
from headrace.file_system import remove_folder
from headrace.pipelines import catalog, kept_analysis
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import Place
from headrace.pipelines.pipeline_run import RunReport, UpdateState, WarmProject, run_pipeline
from headrace.pipelines.rollback import rollback
from headrace.pipelines.watch import Watch
from headrace.spark.ticks import plan
from tests.pipelines.project import SPEC, Project, changed, dies, event, states
from tests.pipelines.test_in_process import never

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

@F.udf("string")
def grade(cents):
    if cents >= 1_000:
        raise ValueError(f"{cents} cents")
    return "large" if cents > 50 else "small"

@dp.materialized_view
def orders():
    read = spark.read.schema("id BIGINT, customer INT, cents BIGINT").parquet("orders")
    return read.where("cents > 10").withColumn("grade", grade("cents"))

@dp.table
def arrived():
    return spark.readStream.schema("id INT, city STRING, version BIGINT").json("customers")

dp.create_streaming_table("customers")
dp.create_auto_cdc_flow(target="customers", source="arrived", keys=["id"], sequence_by="version")
"""
LOCATED = "SELECT o.id, o.cents, o.grade, c.city FROM orders o JOIN customers c ON o.customer = c.id"
QUERIES = {
    "by_city": "SELECT city, grade, count(*) AS n, sum(cents) AS cents FROM located GROUP BY city, grade",
    "best": "SELECT city, id, cents FROM (SELECT *, row_number() OVER (PARTITION BY city "
    "ORDER BY cents DESC, id) AS place FROM located) WHERE place <= 2",
}
COLUMNS = pa.schema([("id", pa.int64()), ("customer", pa.int32()), ("cents", pa.int64())])


def sql(**queries: str) -> str:
    views = "".join(f"CREATE MATERIALIZED VIEW {name} AS {text};\n" for name, text in queries.items())
    return f"CREATE TEMPORARY VIEW located AS {LOCATED};\n{views}"


class Shop:
    """A project that random changes are made to, and what its tables are to hold."""

    def __init__(self, root: Path, spark: SparkSession, draw: random.Random) -> None:
        self.project = Project.new(root, spark, a_py=PYTHON, b_sql=sql(**QUERIES))
        (root / "spark-pipeline.yml").write_text(
            SPEC + 'configuration: {headrace.version_retention: "20 runs"}\n'
        )
        self.draw, self.queries, self.files = draw, dict(QUERIES), 0
        self.warm = WarmProject()
        self.add_orders(40)
        self.add_customers(range(12))

    def add_orders(self, count: int, file: Path | None = None, *, most: int = 100) -> Path:
        self.files += 1
        rows = [
            {
                "id": self.files * 1_000 + at,
                "customer": self.draw.randrange(12),
                "cents": self.draw.randrange(most),
            }
            for at in range(count)
        ]
        path = file or self.project.root / "orders" / f"{self.files}.parquet"
        path.parent.mkdir(exist_ok=True)
        aside = path.with_name(f".{path.name}")
        pq.write_table(pa.Table.from_pylist(rows, COLUMNS), aside)
        aside.replace(path)
        return path

    def add_customers(self, keys: range | list[int]) -> None:
        self.files += 1
        versions = ((self.files * 100 + at, key) for at, key in enumerate(keys))
        cities = ["bath", "cork", "dover"]
        rows = [{"id": k, "city": self.draw.choice(cities), "version": v} for v, k in versions]
        self.project.add("customers", self.files, rows)

    @property
    def order_files(self) -> list[Path]:
        return sorted((self.project.root / "orders").glob("*.parquet"))

    def run(self, place: Place = Place.AUTO) -> RunReport:
        """Run as --continuous does."""
        sessions: Any = never if place is Place.HERE else self.project.spark
        spec = self.project.spec
        return run_pipeline(spec, sessions, place=place, warm=self.warm, skip_invalid=True)

    def assert_right(self) -> None:
        root = self.project.root
        with duckdb.connect() as db:
            db.execute(
                "CREATE TABLE orders AS "
                "SELECT *, CASE WHEN cents > 50 THEN 'large' ELSE 'small' END AS grade "
                f"FROM read_parquet('{root}/orders/*.parquet') WHERE cents > 10"
            )
            db.execute(
                "CREATE TABLE customers AS "
                "SELECT id, arg_max(city, version) AS city, max(version) AS version "
                f"FROM read_json('{root}/customers/*.json') GROUP BY id"
            )
            db.execute(f"CREATE VIEW located AS {LOCATED}")
            for table in ("orders", "customers", *self.queries):
                rows = db.execute(self.queries.get(table, f"FROM {table}")).fetchall()
                assert self.project.rows(table) == Counter(rows), table


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    made = Shop(tmp_path / "project", spark, random.Random(1))
    made.project.run()
    return made


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count analyses of flows, compiled stages, and parts and catalogues that are read, in the block."""
    found = Counter[str]()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def one(*arguments: Any, **keywords: Any) -> Any:
            found[name] += 1
            return call(*arguments, **keywords)

        return one

    with monkeypatch.context() as patch:
        for module, name in (
            (analysis, "find_facts"),
            (plan, "compile_stage"),
            (kept_analysis, "_unpickled"),
            (catalog, "_read_file"),
        ):
            patch.setattr(module, name, counting(name, getattr(module, name)))
        yield found


def test_a_warm_run_analyses_compiles_and_unpickles_nothing_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on() -> Counter[str]:
        shop.add_orders(7)
        shop.add_customers([1, 2])
        with counted(monkeypatch) as found:
            report = shop.run(Place.HERE)
        assert changed(report) >= {"orders", "arrived", "customers", "by_city"}
        shop.assert_right()
        return found

    first = go_on()
    assert all(first[name] for name in ("find_facts", "compile_stage", "_unpickled"))
    # Of all catalogues that are kept, only the one that the run before has made is read.
    assert go_on() == Counter(_read_file=1)
    # Large ticks have code of their own, compiled once, too.
    shop.add_orders(2_000)
    shop.run(Place.HERE)
    shop.add_orders(2_000)
    with counted(monkeypatch) as found:
        shop.run(Place.HERE)
    assert found == Counter(_read_file=1)
    shop.assert_right()


def test_what_is_kept_is_that_of_the_project_as_it_is(shop: Shop) -> None:
    shop.add_orders(7)
    shop.run(Place.HERE)
    flows = dict(shop.warm.analysis.parts)
    shop.queries["by_city"] = shop.queries["by_city"].replace("count(*)", "count(*) + 1")
    shop.project.write("b.sql", sql(**shop.queries))
    shop.run()
    shop.add_orders(7)
    shop.run(Place.HERE)
    shop.assert_right()
    named = set(
        json.loads((shop.project.root / "storage/analysis/kept.json").read_text())["body"]["parts"].values()
    )
    assert shop.warm.analysis.parts.keys() <= named
    stayed = [digest for digest in flows.keys() & named if digest in shop.warm.analysis.parts]
    assert stayed
    assert all(shop.warm.analysis.parts[digest] is flows[digest] for digest in stayed)


def test_a_warm_run_notices_whatever_else_has_happened(shop: Shop) -> None:
    for step in (by_another_process, remove_a_file, change_a_file, damage_the_analysis):
        step(shop)
        shop.run()
        shop.assert_right()


@pytest.mark.parametrize("count", [20, 2_000])
def test_a_run_that_fails_leaves_nothing_to_the_next(shop: Shop, count: int) -> None:
    shop.add_orders(count)
    shop.run(Place.HERE)
    refused = shop.add_orders(count, most=2_000)
    report = shop.run(Place.HERE)
    assert states(report)["orders"] == "FAILED"
    assert "cents" in str(event(report, "orders").error)
    refused.unlink()
    shop.add_orders(count)
    shop.run(Place.HERE)
    shop.assert_right()


def add_a_file(shop: Shop) -> None:
    shop.add_orders(shop.draw.choice([1, 9, 70]))


def change_customers(shop: Shop) -> None:
    shop.add_customers([shop.draw.randrange(14) for _ in range(3)])


def change_a_file(shop: Shop) -> None:
    shop.add_orders(5, shop.draw.choice(shop.order_files))


def remove_a_file(shop: Shop) -> None:
    if len(shop.order_files) > 1:
        shop.draw.choice(shop.order_files).unlink()


def by_another_process(shop: Shop) -> None:
    """Add rows, which a run by hand beside the one that goes on brings into the tables."""
    shop.add_orders(3)
    shop.add_customers([shop.draw.randrange(12)])
    command = [sys.executable, "-m", "headrace.cli", "pipeline", "run"]
    done = subprocess.run(
        command, cwd=shop.project.root, capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr


def refresh_fully(shop: Shop) -> None:
    shop.project.run(full=[shop.draw.choice(["by_city", "best", "orders"])])


def change_a_query(shop: Shop) -> None:
    count = shop.draw.choice(["count(*)", "count(*) + 1", "count(cents) + 2"])
    shop.queries["by_city"] = QUERIES["by_city"].replace("count(*)", count)
    shop.project.write("b.sql", sql(**shop.queries))


def roll_back(shop: Shop) -> None:
    runs = [run.number for run in PipelineCatalog.published_runs(shop.project.root / "storage")]
    # The first one may have been made by other queries.
    if len(runs) > 1:
        rollback(shop.project.spec, runs[-2])


def die_before_publication(shop: Shop) -> None:
    shop.add_orders(4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PipelineCatalog, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            shop.run()


def damage_the_analysis(shop: Shop) -> None:
    remove_folder(shop.project.root / "storage/analysis")
    shop.add_orders(2)


STEPS = (
    add_a_file,
    add_a_file,
    change_customers,
    change_a_file,
    remove_a_file,
    by_another_process,
    refresh_fully,
    change_a_query,
    roll_back,
    die_before_publication,
)


@pytest.mark.verify
@pytest.mark.seeds(3)
def test_warm_runs_give_what_all_input_gives(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    shop = Shop(tmp_path / "project", spark, draw)
    shop.run()
    steps = [*STEPS, *draw.choices(STEPS, k=10)]
    draw.shuffle(steps)
    for step in steps:
        step(shop)
        report = shop.run()
        assert all(each.state is UpdateState.COMPLETED for each in report.events.values()), step.__name__
        shop.assert_right()


def test_the_watch_sees_a_file_in_a_folder_that_was_not_there(shop: Shop) -> None:
    watch = Watch(shop.project.spec)
    watch.wait(0)
    before = watch._seen  # pyright: ignore[reportPrivateUsage]
    remove_folder(shop.project.root / "orders")
    watch.wait(60)
    assert watch._seen != before  # pyright: ignore[reportPrivateUsage]
    before = watch._seen  # pyright: ignore[reportPrivateUsage]
    shop.add_orders(1)
    watch.wait(60)
    assert watch._seen != before  # pyright: ignore[reportPrivateUsage]
