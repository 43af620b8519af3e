"""Equal parts of a project's tables: kept once, with the same answers as if each table had its own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from headrace.errors import EvaluationError
from headrace.pipelines import pipeline_run, shared_parts
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import SHARED, Place, TableName
from headrace.pipelines.errors import BadDefinition, NeedsSpark
from headrace.pipelines.event_log import EventLog
from headrace.pipelines.maintenance import explain_pipeline
from headrace.pipelines.pipeline_run import RunReport, run_pipeline
from headrace.pipelines.planned_project import planned
from headrace.pipelines.run_recorder import RecordedRun
from headrace.pipelines.weighted_rows import WEIGHT
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.project import SPEC, Project, changed, dies, event, rows_read, states
from tests.pipelines.test_errors import told
from tests.pipelines.test_kills import Killed, killed_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

READ = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.temporary_view
def orders():
    return spark.read.schema("id BIGINT, customer BIGINT, city STRING, cents BIGINT").parquet("orders")

@dp.temporary_view
def customers():
    return spark.read.schema("customer BIGINT, name STRING, grade BIGINT").parquet("customers")
"""
LINES = """
CREATE TEMPORARY VIEW lines AS
SELECT o.id, o.city, o.cents, c.name, c.grade, o.cents * c.grade AS points
FROM orders o JOIN customers c USING (customer)
WHERE o.cents > 5;
"""
BY_CITY = "SELECT city, count(*) AS n, sum(cents) AS cents FROM lines GROUP BY city"
BY_NAME = "SELECT name, max(points) AS most, count(DISTINCT city) AS cities FROM lines GROUP BY name"
BEST = (
    "SELECT city, id, points FROM (SELECT *, row_number() OVER (PARTITION BY city ORDER BY points DESC, id) "
    "AS place FROM lines) WHERE place <= 2"
)
VIEWS = {"by_city": BY_CITY, "by_name": BY_NAME, "best": BEST}

# One that does not read the view, one that has its join only, and one that has a part of its own, twice.
MORE = {
    "written_out": "SELECT x.grade, sum(y.cents) AS cents FROM orders y JOIN customers x USING (customer) "
    "WHERE y.cents > 5 GROUP BY x.grade",
    "all_lines": "SELECT c.name, count(*) AS n FROM orders o JOIN customers c USING (customer) "
    "GROUP BY c.name",
    "twice": "WITH per_city AS (SELECT city, sum(cents) AS cents FROM lines GROUP BY city) "
    "SELECT a.city, count(*) AS more FROM per_city a JOIN per_city b ON b.cents >= a.cents GROUP BY a.city",
}


def views(of: dict[str, str]) -> str:
    return LINES + "".join(f"CREATE MATERIALIZED VIEW {name} AS {text};\n" for name, text in of.items())


@dataclass
class Shop:
    """Orders and customers in a project, changed at random."""

    project: Project
    queries: dict[str, str]
    draw: random.Random
    orders: dict[int, list[dict[str, Any]]] = field(default_factory=dict[int, list[dict[str, Any]]])

    @classmethod
    def new(cls, root: Path, spark: SparkSession, queries: dict[str, str], seed: int = 0) -> Shop:
        made = cls(Project.new(root, spark, a_py=READ, b_sql=views(queries)), queries, random.Random(seed))
        made.write_customers(1, range(6))
        made.write_orders(1, 30)
        return made

    def write_customers(self, number: int, keys: Iterator[int] | range) -> None:
        columns = pa.schema([("customer", pa.int64()), ("name", pa.string()), ("grade", pa.int64())])
        rows = [{"customer": key, "name": f"n{key % 4}", "grade": self.draw.randrange(1, 4)} for key in keys]
        self._write("customers", number, pa.Table.from_pylist(rows, columns))

    def write_orders(self, number: int, count: int) -> None:
        names = ("id", "customer", "city", "cents")
        columns = pa.schema([(name, pa.string() if name == "city" else pa.int64()) for name in names])
        rows = [
            {
                "id": 100 * number + at,
                "customer": self.draw.choice([None, *range(8)]),
                "city": self.draw.choice(["bath", "cork", None]),
                "cents": self.draw.randrange(20),
            }
            for at in range(count)
        ]
        self._write("orders", number, pa.Table.from_pylist(rows, columns))

    def _write(self, folder: str, number: int, rows: pa.Table) -> None:
        file = self.project.root / folder / f"{number}.parquet"
        file.parent.mkdir(exist_ok=True)
        pq.write_table(rows, file)

    def change(self, number: int) -> None:
        """Add orders, write customers anew, or remove a file of orders."""
        match self.draw.randrange(4):
            case 0:
                self.write_customers(1, range(self.draw.randrange(4, 9)))
            case 1 if len(list((self.project.root / "orders").iterdir())) > 1:
                min((self.project.root / "orders").iterdir()).unlink()
            case _:
                self.write_orders(number, self.draw.randrange(1, 12))

    def expected(self, table: str) -> Counter[tuple[Any, ...]]:
        """Recompute a table by DuckDB."""
        with closing(duckdb.connect()) as db:
            for name in ("orders", "customers"):
                files = self.project.root / name
                db.sql(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}/*.parquet')")
            db.sql(LINES)
            return Counter(db.sql(self.queries[table]).fetchall())

    def check(self) -> None:
        for table in self.queries:
            assert self.project.rows(table) == self.expected(table), table

    def without_spark(self) -> RunReport:
        report = run_pipeline(self.project.spec, never, place=Place.HERE)
        assert not report.failed, [each.error for each in report.events.values() if each.error]
        return report

    @property
    def parts(self) -> dict[str, int]:
        """Versions of the parts that are published, by name."""
        found = PipelineCatalog.last_entries(self.project.spec.storage)
        return {name.table: entry.version for name, entry in found.items() if name.database == SHARED}

    def explanation(self) -> str:
        with planned(self.project.spec, self.project.spark) as (graph, plans):
            return explain_pipeline(graph, plans, self.project.spec.storage)


def never() -> NoReturn:
    raise AssertionError("the run needs no Spark")


def unshared(project: Project) -> None:
    """Let tables have their parts of their own."""
    text = f'{SPEC}configuration: {{headrace.shared_parts: "false"}}\n'
    (project.root / "spark-pipeline.yml").write_text(text)


def state_bytes(project: Project) -> int:
    return sum(file.stat().st_size for file in (project.root / "storage/state").rglob("*") if file.is_file())


# --- answers ----------------------------------------------------------------------------------------


@pytest.mark.seeds(4, verify_from=1)
def test_answers_are_those_of_recomputing_with_parts_and_without(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    of = VIEWS | MORE
    shared, alone = (Shop.new(tmp_path / name, spark, of, seed) for name in ("shared", "alone"))
    unshared(alone.project)
    for shop in (shared, alone) if seed else (shared,):
        shop.project.run()
        shop.check()
        # Some changes without Spark, then one by Spark, which goes on from them.
        for number in range(2, 8 if seed else 4):
            shop.change(number)
            shop.without_spark()
            shop.check()
        shop.change(8)
        shop.project.run(place=Place.SPARK)
        shop.check()
    assert [name.partition("_")[0] for name in sorted(shared.parts)] == ["aggregate", "join"]
    assert not seed or not alone.parts


def test_three_views_over_one_chain_of_joins_keep_its_state_once(tmp_path: Path, spark: SparkSession) -> None:
    shared, alone = (Shop.new(tmp_path / name, spark, VIEWS) for name in ("shared", "alone"))
    unshared(alone.project)
    for shop in (shared, alone):
        for number in range(2, 40):
            shop.write_orders(number, 90)
        shop.project.run()
        shop.check()
    (part,) = shared.parts
    state = shared.project.root / "storage/state"
    assert (state / SHARED / part).is_dir()
    assert state_bytes(shared.project) < 0.7 * state_bytes(alone.project)


# --- runs -------------------------------------------------------------------------------------------


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    made = Shop.new(tmp_path / "project", spark, VIEWS)
    made.project.run()
    return made


def test_users_see_their_tables_only(tmp_path: Path, spark: SparkSession) -> None:
    shop, seen, runs = Shop.new(tmp_path / "project", spark, VIEWS), list[str](), list[RecordedRun]()
    report = run_pipeline(
        shop.project.spec,
        spark,
        observer=lambda event: seen.append(event.table.table),
        listeners=[runs.append],
    )
    assert states(report) == dict.fromkeys(sorted(VIEWS), "COMPLETED")
    assert set(seen) == {*VIEWS}
    assert {each.table_name for each in runs[-1].tables} == {
        f"spark_catalog.default.{name}" for name in VIEWS
    }
    assert not shop.without_spark().orphans
    # The bytes of the run are of the parts, too.
    of_tables = sum(each.state_bytes for each in runs[-1].tables)
    assert runs[-1].run.state_bytes > of_tables
    log = EventLog(shop.project.spec.storage)
    part, later = (each for each in log.records() if each.kind == "part")
    assert (later.run, later.rows_read, later.version_after) == (2, 0, part.version_after)
    ((name, version),) = shop.parts.items()
    assert (part.table_name, part.version_after) == (str(TableName(SHARED, name)), version)
    assert part.reason.startswith("shared part of spark_catalog.default.")
    # Rows that can join nothing are left out as they are read.
    joined = f"read_parquet('{shop.project.root}/orders/*.parquet') WHERE cents > 5 AND customer IS NOT NULL"
    assert duckdb.sql(f"SELECT count(*) + 6 FROM {joined}").fetchall() == [(part.rows_read,)]
    assert part.rows == part.rows_inserted
    assert min(part.seconds, part.state_bytes, part.file_bytes) > 0
    assert runs[-1].run.state_bytes == of_tables + part.state_bytes


def test_a_run_of_one_table_refreshes_its_part_and_others_catch_up(shop: Shop) -> None:
    before = shop.project.rows("by_name")
    shop.write_orders(2, 20)
    assert changed(shop.project.run("by_city")) == {"by_city"}
    assert shop.project.rows("by_city") == shop.expected("by_city")
    assert shop.project.rows("by_name") == before != shop.expected("by_name")
    shop.write_orders(3, 20)
    shop.without_spark()
    shop.check()


@pytest.mark.verify
def test_rows_that_are_taken_back_stay_in_the_files_of_a_part_for_a_while(shop: Shop) -> None:
    def files() -> dict[str, bool]:
        """Return the files of the part's rows, and whether their rows have weights."""
        ((part, version),) = shop.parts.items()
        folder = shop.project.spec.storage / "tables" / SHARED / part / str(version)
        return {each.name: WEIGHT in pq.read_schema(each).names for each in folder.glob("*.parquet")}

    shop.write_orders(2, 300)
    shop.without_spark()
    before = files()
    (shop.project.root / "orders/1.parquet").unlink()
    shop.without_spark()
    assert before.keys() < files().keys()
    assert any(files().values())
    shop.check()
    # Spark reads the rows as they are.
    shop.queries = VIEWS | {"totals": "SELECT count(*) AS n, sum(cents) AS cents FROM lines"}
    shop.project.write("b.sql", views(shop.queries))
    shop.project.run()
    shop.check()
    shop.write_orders(2, 50)
    shop.project.run(place=Place.SPARK)
    assert not any(files().values())
    assert before.keys().isdisjoint(files())
    shop.check()


@pytest.mark.verify
def test_a_table_that_is_made_anew_has_its_part_made_anew(shop: Shop) -> None:
    (part,) = shop.parts
    folder = PipelineCatalog.states(shop.project.spec.storage, TableName(SHARED, part)).path
    assert [each.name for each in folder.iterdir()] == ["1"]
    report = shop.project.run(full=["by_name"])
    assert [each.name for each in folder.iterdir()] == ["2"]
    assert changed(report) == set()
    assert event(report, "by_name").updated.why.endswith("--full-refresh")  # pyright: ignore
    shop.check()


@pytest.mark.verify
@pytest.mark.seeds(3)
def test_a_run_that_ends_before_any_file_operation(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    shop = Shop.new(tmp_path / "project", spark, VIEWS, seed)
    shop.project.run()
    for number in range(2, 14):
        before = {name: shop.project.rows(name) for name in VIEWS}
        shop.change(number)
        with killed_before(shop.draw.randrange(1, 160)), suppress(Killed):
            run_pipeline(shop.project.spec, spark)
        for lease in shop.project.spec.storage.rglob("lease/*"):
            lease.unlink()  # The process that has them is dead.
        after = {name: shop.project.rows(name) for name in VIEWS}
        assert after in (before, {name: shop.expected(name) for name in VIEWS})
        run_pipeline(shop.project.spec, spark)
        shop.check()


@pytest.mark.verify
def test_readers_go_on_from_a_part_that_a_dead_run_has_left(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: shop.project.rows(name) for name in VIEWS}
    (version,) = shop.parts.values()
    shop.write_orders(2, 20)
    updates = 0

    def dies_second(*given: Any, **named: Any) -> Any:
        nonlocal updates
        updates += 1
        return update(*given, **named) if updates < 2 else dies()

    update = pipeline_run.update_with_expectations
    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(pipeline_run, "update_with_expectations", dies_second)
        run_pipeline(shop.project.spec, never, place=Place.HERE)
    assert updates == 2
    assert {name: shop.project.rows(name) for name in VIEWS} == before
    assert [*shop.parts.values()] == [version]
    shop.write_orders(3, 20)
    shop.without_spark()
    shop.check()
    assert [*shop.parts.values()] == [version + 2]


# --- changes of the project -------------------------------------------------------------------------


@pytest.mark.verify
def test_a_view_is_added_and_removed_without_work_for_others(shop: Shop) -> None:
    parts = shop.parts
    more = {"totals": "SELECT count(*) AS n, sum(cents) AS cents FROM lines"}
    shop.queries = VIEWS | more
    shop.project.write("b.sql", views(shop.queries))
    report = shop.project.run()
    assert changed(report) == {"totals"}
    assert rows_read(report, "by_city") == 0
    assert shop.parts == parts
    # With one reader left, the part stays as it is.
    shop.queries = {"by_city": BY_CITY}
    shop.project.write("b.sql", views(shop.queries))
    report = shop.project.run()
    assert changed(report) == set()
    assert rows_read(report, "by_city") == 0
    assert shop.parts == parts
    shop.write_orders(2, 20)
    shop.without_spark()
    shop.check()


@pytest.mark.verify
def test_a_part_that_no_table_has_any_more_is_removed(shop: Shop) -> None:
    storage = shop.project.spec.storage
    shop.queries = {"by_city": "SELECT city, count(*) AS n FROM orders GROUP BY city"}
    shop.project.write("b.sql", views(shop.queries))
    shop.project.run()
    # Tables that the project does not define any more have read the part.
    assert shop.parts
    with PipelineCatalog.open(storage, None) as catalog:
        catalog.drop([name for name in catalog.entries if name.table in ("by_name", "best")])
    report = shop.project.run()
    assert not shop.parts
    assert not report.orphans
    assert not [*storage.glob(f"state/{SHARED}/*")]
    shop.check()
    shop.queries = VIEWS
    shop.project.write("b.sql", views(VIEWS))
    shop.project.run()
    shop.check()
    assert shop.parts


@pytest.mark.verify
def test_a_part_with_another_condition_is_another_part(shop: Shop) -> None:
    (part,) = shop.parts
    text = views(VIEWS).replace("o.cents > 5", "o.cents > 7")
    shop.project.write("b.sql", text)
    shop.project.run()
    (other,) = shop.parts
    assert other != part
    assert sum(row[1] * n for row, n in shop.project.rows("by_city").items()) < 30
    shop.project.write("b.sql", views(VIEWS))
    shop.project.run()
    shop.check()


@pytest.mark.verify
def test_a_part_gets_the_columns_that_a_new_view_reads(shop: Shop) -> None:
    shop.queries = VIEWS | {"by_grade": "SELECT grade, count(*) AS n FROM lines GROUP BY grade, id"}
    parts = shop.parts
    shop.project.write("b.sql", views(shop.queries))
    shop.project.run()
    shop.check()
    assert shop.parts.keys() == parts.keys()
    shop.write_orders(2, 20)
    shop.without_spark()
    shop.check()


# --- what is shared ---------------------------------------------------------------------------------


def parts_of(project: Project) -> list[str]:
    with planned(project.spec, project.spark) as (graph, _):
        return [
            " ".join(name.table for name in table.dataset.shared_by)
            for table in graph.tables
            if table.dataset.shared_by
        ]


@pytest.mark.verify
def test_what_is_recomputed_shares_nothing(tmp_path: Path, spark: SparkSession) -> None:
    of = {
        "a": BY_CITY,
        "sketch": "SELECT theta_sketch_estimate(theta_sketch_agg(id)) AS n FROM lines",
        "varies": "SELECT city, count(*) AS n FROM lines WHERE rand() < 2 GROUP BY city",
    }
    full = "CREATE MATERIALIZED VIEW whole TBLPROPERTIES ('headrace.refresh_policy' = 'full') AS " + BY_NAME
    project = Shop.new(tmp_path / "project", spark, {}).project
    project.write("b.sql", f"{views(of)}{full};")
    assert parts_of(project) == []
    # Strict views stay strict.
    strict = (
        "CREATE MATERIALIZED VIEW strict TBLPROPERTIES ('headrace.refresh_policy' = 'incremental_strict') AS "
    )
    project.write("c.sql", f"{strict}{BY_NAME};")
    assert parts_of(project) == ["a strict"]


@pytest.mark.verify
def test_a_product_that_readers_filter_is_no_part(tmp_path: Path, spark: SparkSession) -> None:
    product = (
        "CREATE TEMPORARY VIEW pairs AS SELECT o.*, c.name, c.customer AS other FROM orders o, customers c;"
    )
    query = (
        "CREATE MATERIALIZED VIEW {} AS SELECT name, count(*) AS n FROM pairs "
        "WHERE customer = other AND {} GROUP BY name;"
    )
    text = product + query.format("a", "cents > 5") + query.format("b", "cents > 6")
    project = Shop.new(tmp_path / "project", spark, {}).project
    project.write("b.sql", text)
    assert parts_of(project) == []


@pytest.mark.verify
def test_a_table_and_its_dropped_rows_share_their_query(tmp_path: Path, spark: SparkSession) -> None:
    text = (
        LINES + "CREATE MATERIALIZED VIEW by_city (CONSTRAINT few EXPECT (n < 3) ON VIOLATION DROP ROW) AS "
        f"{BY_CITY};"
    )
    shop = Shop.new(tmp_path / "project", spark, {})
    shop.project.write("b.sql", text)
    shop.project.run()
    assert parts_of(shop.project) == ["by_city"]
    shop.queries = {"by_city": BY_CITY}
    for number in range(2, 5):
        shop.change(number)
        shop.without_spark()
        files = f"{shop.project.path('by_city__headrace_dropped')}/*.parquet"
        dropped = {*duckdb.execute(f"SELECT city, n, cents FROM read_parquet('{files}')").fetchall()}
        assert {*shop.project.rows("by_city")} | dropped == {*shop.expected("by_city")}
        assert all(row[1] >= 3 for row in dropped)


def test_explain_shows_parts_their_tables_and_their_state(shop: Shop) -> None:
    text = shop.explanation()
    first, *others = text.split("\n\n")
    tables = (f"spark_catalog.default.{name}" for name in sorted(VIEWS))
    assert first.startswith(f"shared part of {', '.join(tables)}")
    assert "bytes of state" in first
    reader = next(each for each in others if each.startswith("spark_catalog.default.by_city "))
    assert "reads a part shared with spark_catalog.default.best, spark_catalog.default.by_name\n" in reader


def test_an_error_of_a_part_is_one_of_the_views_that_have_it(tmp_path: Path, spark: SparkSession) -> None:
    lines = LINES.replace("o.cents > 5", "CAST(o.city AS INT) > 5")
    shop = Shop.new(tmp_path / "project", spark, {})
    shop.project.write("b.sql", lines + views(VIEWS).removeprefix(LINES))
    report = shop.project.run()
    assert states(report) == dict.fromkeys(sorted(VIEWS), "FAILED")
    for name in VIEWS:
        error = event(report, name).error
        assert isinstance(error, EvaluationError)
        (step,) = error.where
        # The view itself, in whose query the value is.
        assert f"CREATE MATERIALIZED VIEW {name} " in step.line()
        assert "'cork'" in error.what


def test_the_setting_is_true_or_false(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=READ)
    text = f"{SPEC}configuration: {{headrace.shared_parts: sometimes}}\n"
    (project.root / "spark-pipeline.yml").write_text(text)
    with pytest.raises(BadDefinition) as refused:
        project.run()
    assert refused.value.where
    assert refused.value.fix
    assert_golden(MESSAGES / "pipeline_shared_parts_setting.txt", told(refused.value, project.root))


@pytest.mark.verify
def test_what_spark_refuses_to_cut_is_not_shared(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(*_: object) -> None:
        raise PySparkException("no such plan")

    monkeypatch.setattr(shared_parts, "relation_of_columns", refuses)
    shop = Shop.new(tmp_path / "project", spark, VIEWS)
    assert parts_of(shop.project) == []
    assert "no parts are shared: no such plan" in caplog.text


def test_an_input_that_only_spark_reads_does_not_need_it_while_it_stays(
    tmp_path: Path, spark: SparkSession
) -> None:
    shop = Shop.new(tmp_path / "project", spark, VIEWS)
    rates = shop.project.root / "rates/1.xml"
    rates.parent.mkdir()
    rates.write_text("<all><r><city>bath</city><rate>2</rate></r></all>")
    read = "spark.read.schema('city STRING, rate INT').xml('rates', rowTag='r')"
    rated = f"@dp.temporary_view\ndef rates():\n    return {read}\n"
    shop.project.write("a.py", f"{READ}\n{rated}")
    joined = LINES.replace("USING (customer)", "USING (customer) LEFT JOIN rates r ON r.city = o.city")
    shop.project.write("b.sql", joined + views(VIEWS).removeprefix(LINES))
    shop.project.run()
    shop.write_orders(2, 10)
    shop.without_spark()
    shop.check()
    rates.write_text("<all><r><city>cork</city><rate>3</rate></r></all>")
    error = event(run_pipeline(shop.project.spec, never, place=Place.HERE), "by_city").error
    assert isinstance(error, NeedsSpark)
    assert "xml" in error.why
