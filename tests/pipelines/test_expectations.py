"""Expectations: kept and dropped rows, their counts, and failures, as found in all rows by plain Python.

The oracle holds all input rows and evaluates each expectation in plain Python. Batches insert, change and
delete rows, some of which violate several expectations at once.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.pipelines.definitions import DROPPED, VIOLATIONS, Place, Policy
from headrace.pipelines.errors import BadDefinition, ExpectationFailed
from headrace.pipelines.in_process_update import InProcessUpdater
from headrace.pipelines.pipeline_run import run_pipeline
from headrace.pipelines.table_update import Updated, Updater
from tests.golden import assert_golden
from tests.pipelines.project import Project, changed, event, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.pipeline_run import RunReport

pytestmark = pytest.mark.spark

GOLDEN = Path(__file__).parent

Row = tuple[int | None, int | None, str | None]
Predicate = Callable[[Row], bool]

HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headrace.pipelines import create_streaming_table, expect, expect_all, expect_all_or_drop
from headrace.pipelines import expect_all_or_fail, expect_or_drop, expect_or_fail

spark = SparkSession.active()
COLUMNS = "id INT, price INT, country STRING"
"""

# One above and one below the decorator of Spark, a column beside texts.
CHECKS_OF_PYTHON = """
@expect("cheap", "price < 50")
@expect_or_drop("has id", F.col("id").isNotNull())
@dp.{kind}
@expect_all_or_drop({{"known": "country IN ('DE', 'FR')"}})
@expect_or_fail("whole", "price >= 0 OR price IS NULL")
def orders():
    return {query}
"""
FILES = 'spark.read.schema(COLUMNS).json("in")'
QUERIES = {
    "stateless": FILES,
    "with state": FILES + ".dropDuplicates()",
    "recomputed": FILES,
}

EXPECTED: dict[str, Predicate] = {
    "cheap": lambda row: row[1] is not None and row[1] < 50,
    "has id": lambda row: row[0] is not None,
    "known": lambda row: row[2] in ("DE", "FR"),
    "whole": lambda row: row[1] is None or row[1] >= 0,
}
DROPPING = ("known", "has id")


def some_rows(random: random.Random, count: int) -> list[Row]:
    return [
        (
            random.choice([None, *range(6)]),
            random.choice([None, *range(0, 100, 9)]),
            random.choice([None, "DE", "FR", "XX"]),
        )
        for _ in range(count)
    ]


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "price", "country"), row, strict=True)) for row in rows]


def is_kept(row: Row) -> bool:
    return all(EXPECTED[name](row) for name in DROPPING)


def counts_of(rows: Mapping[Row, int]) -> dict[str, tuple[int, int]]:
    """Count rows that pass, and that fail, each expectation."""
    whole = sum(rows.values())
    failed = {name: sum(n for row, n in rows.items() if not holds(row)) for name, holds in EXPECTED.items()}
    return {name: (whole - count, count) for name, count in failed.items()}


def dropped_rows(project: Project) -> Counter[Row]:
    """Return the dropped rows, after a look at their reasons."""
    found = Counter[Row]()
    files = f"{project.path(f'orders{DROPPED}')}/*.parquet"
    for *row, failed in duckdb.sql(f"SELECT * FROM read_parquet('{files}')").fetchall():
        assert set(failed) == {name for name in DROPPING if not EXPECTED[name](tuple(row))}
        found[tuple(row)] += 1
    return found


def assert_as_recomputed(
    project: Project, report: RunReport, now: Counter[Row], before: Counter[Row]
) -> None:
    assert project.rows("orders") == Counter({row: n for row, n in now.items() if is_kept(row)})
    assert dropped_rows(project) == Counter({row: n for row, n in now.items() if not is_kept(row)})
    updated = event(report, "orders").updated
    assert updated is not None
    assert updated.expectation_totals == counts_of(now)
    assert updated.expectations == counts_of(now - before)


QUICK = ((2, Place.HERE), (3, Place.SPARK))
"""Updates before a death, and where they run, that `make test` tries."""


@pytest.fixture(params=QUERIES)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_a_view_and_its_counts_are_as_recomputed_after_each_batch(
    kind: str, tmp_path: Path, spark: SparkSession
) -> None:
    text = HEAD + CHECKS_OF_PYTHON.format(kind="materialized_view", query=QUERIES[kind])
    project = Project.new(tmp_path / "project", spark, a_py=text)
    policy = Policy.FULL if kind == "recomputed" else Policy.INCREMENTAL_STRICT
    drawn, files, before = random.Random(7), dict[int, list[Row]](), Counter[Row]()
    for batch in range(3):
        files[batch] = some_rows(drawn, 12)
        if batch == 1:  # Rows change, and rows go.
            files[0] = [*files[0][3:], *some_rows(drawn, 2)]
        if batch == 2:
            del files[1]
            (project.root / "in/1.json").unlink()
        for number in {0, batch} & files.keys():
            project.add("in", number, as_json(files[number]))
        report = project.run(policy=policy)
        now = Counter(row for rows in files.values() for row in rows)
        if kind == "with state":
            now = Counter(now.keys())
        assert states(report)["orders"] == "COMPLETED", event(report, "orders").error
        assert_as_recomputed(project, report, now, before)
        before = now


@pytest.mark.parametrize(
    ("updates", "place"),
    [
        pytest.param(updates, place, marks=() if (updates, place) in QUICK else pytest.mark.verify)
        for updates in (1, 2, 3)
        for place in (Place.HERE, Place.SPARK)
    ],
)
def test_a_run_that_dies_in_between_leaves_all_three_tables_to_the_next_one(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, updates: int, place: Place
) -> None:
    text = HEAD + CHECKS_OF_PYTHON.format(kind="materialized_view", query=QUERIES["with state"])
    project = Project.new(tmp_path / "project", spark, a_py=text)
    drawn = random.Random(updates)
    rows = some_rows(drawn, 12)
    project.add("in", 1, as_json(rows))
    project.run()
    before = Counter({*rows})
    tables = project.rows("orders"), dropped_rows(project)

    rows += some_rows(drawn, 12)
    project.add("in", 2, as_json(rows[12:]))
    kind = Updater if place is Place.SPARK else InProcessUpdater
    update, done = kind.run, list[Updater]()

    def dies_after_some(updater: Any) -> Updated:
        updated = update(updater)
        done.append(updater)
        if len(done) == updates:
            raise KeyboardInterrupt
        return updated

    with monkeypatch.context() as patched:
        patched.setattr(kind, "run", dies_after_some)
        with pytest.raises(KeyboardInterrupt):
            project.run(place=place)
    assert (project.rows("orders"), dropped_rows(project)) == tables
    assert_as_recomputed(project, project.run(), Counter({*rows}), before)


def test_a_condition_that_is_wrong_leaves_its_table_out_of_a_run_that_goes_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = Project.new(tmp_path / "project", spark)
    one = "CREATE MATERIALIZED VIEW one AS SELECT 1 AS x;"
    project.write("b.sql", f"{one} CREATE MATERIALIZED VIEW ids AS SELECT id FROM orders;")
    project.write("a.py", HEAD + EDITED.format(least=50, condition="id IS NOT NULL"))
    project.add("in", 1, as_json([(1, 5, "DE"), (None, 60, "FR")]))
    project.run()
    project.write("a.py", HEAD + EDITED.format(least="nothing", condition="id IS NOT NULL"))
    project.add("in", 2, as_json([(2, 5, "DE")]))
    report = run_pipeline(project.spec, spark, skip_invalid=True)
    assert states(report) == {"one": "COMPLETED"}
    assert {type(error) for error in report.errors} == {BadDefinition}
    assert len({str(error) for error in report.errors}) == 1
    assert project.rows("orders") == Counter([(1, 5, "DE")])


STREAMS = """
create_streaming_table(
    "orders",
    schema=COLUMNS,
    expect_all={"cheap": "price < 50"},
    expect_all_or_drop={"has id": F.col("id").isNotNull(), "known": "country IN ('DE', 'FR')"},
    expect_all_or_fail={"whole": "price >= 0 OR price IS NULL"},
)

@dp.append_flow(target="orders")
def one():
    return spark.readStream.schema(COLUMNS).json("in")

@dp.append_flow(target="orders")
def other():
    return spark.readStream.schema("id BIGINT, price INT, country STRING").json("other")
"""


def test_a_streaming_table_and_its_counts_are_as_recomputed_after_each_batch(
    tmp_path: Path, spark: SparkSession
) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + STREAMS)
    drawn, now = random.Random(11), Counter[Row]()
    for batch in range(3):
        before = now.copy()
        for folder in ("in", "other"):
            rows = some_rows(drawn, 8)
            project.add(folder, batch, as_json(rows))
            now.update(rows)
        report = project.run()
        assert states(report)["orders"] == "COMPLETED", event(report, "orders").error
        assert_as_recomputed(project, report, now, before)
    report = project.run()
    assert not changed(report)
    assert_as_recomputed(project, report, now, now)
    # All rows come again where the table is made anew.
    assert_as_recomputed(project, project.run(full=["orders"]), now, Counter())


RAW = """
@dp.temporary_view
def raw():
    return spark.readStream.schema(COLUMNS).json("in")

@dp.temporary_view
def raw_now():
    return spark.read.schema(COLUMNS).json("in")
"""
FAILING = """\
CREATE OR REFRESH STREAMING TABLE orders (
    id INT,
    price INT, country STRING,
    /* prices: CONSTRAINT x EXPECT (y) /* nested */ */
    CONSTRAINT `whole price` EXPECT (
        price >= 0 AND country <> 'a -- b)'
    ) ON VIOLATION FAIL UPDATE,
    CONSTRAINT cheap EXPECT ((price) < 50)
) AS SELECT * FROM STREAM(raw);

CREATE MATERIALIZED VIEW totals (CONSTRAINT positive EXPECT (price >= 0) ON VIOLATION FAIL UPDATE)
AS SELECT country, sum(price) AS price FROM raw_now GROUP BY country;

CREATE MATERIALIZED VIEW ids AS SELECT id FROM orders;
CREATE MATERIALIZED VIEW countries AS SELECT country FROM totals WHERE price > 5;
"""


def test_rows_that_fail_an_update_leave_the_tables_as_they_were(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + RAW, b_sql=FAILING)
    project.add("in", 1, as_json([(1, 5, "DE"), (2, 60, "FR")]))
    assert {*states(project.run()).values()} == {"COMPLETED"}
    tables = {name: project.rows(name) for name in ("orders", "totals", "ids", "countries")}

    long = "a country of " + "many " * 10 + "words"
    project.add("in", 2, as_json([(3, 7, "DE"), (4, -9, "DE"), (5, -1, long)]))
    for _ in range(2):  # The rows are not taken as read by a run that fails.
        report = project.run()
        assert states(report) == {
            "orders": "FAILED",
            f"orders{VIOLATIONS}": "FAILED",
            "totals": "FAILED",
            f"totals{VIOLATIONS}": "FAILED",
            "ids": "SKIPPED",
            "countries": "SKIPPED",
        }
        assert {name: project.rows(name) for name in tables} == tables
        error = event(report, "orders").error
        assert isinstance(error, ExpectationFailed)
        assert error.facts["expectations"] == {"whole price": 2}
        assert_golden(GOLDEN / "errors/expectation_failed.txt", f"{error}\n")
        error = event(report, "totals").error
        assert isinstance(error, ExpectationFailed)
        assert error.facts["row"] == f"country = '{long[:36]}..., price = -1"

    project.add("in", 2, as_json([(3, 7, "DE")]))
    project.add("in", 3, as_json([(4, 9, "XX")]))
    report = project.run()
    assert {*states(report).values()} == {"COMPLETED"}
    assert project.rows("orders") == Counter([(1, 5, "DE"), (2, 60, "FR"), (3, 7, "DE"), (4, 9, "XX")])
    assert project.rows("totals") == Counter([("DE", 12), ("FR", 60), ("XX", 9)])
    updated = event(report, "orders").updated
    assert updated is not None
    assert updated.expectations == {"whole price": (2, 0), "cheap": (2, 0)}
    assert updated.expectation_totals == {"whole price": (4, 0), "cheap": (3, 1)}


EDITED = """
@expect("cheap", "price < {least}")
@expect_or_drop("has id", "{condition}")
@dp.materialized_view
def orders():
    return spark.read.schema(COLUMNS).json("in")
"""


def test_only_an_expectation_that_drops_rebuilds_its_table(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark)
    project.add("in", 1, as_json([(1, 5, "DE"), (2, 60, "FR"), (None, 30, "FR"), (7, 30, "FR")]))
    project.write("a.py", HEAD + EDITED.format(least=50, condition="id IS NOT NULL"))
    project.run()

    project.write("a.py", HEAD + EDITED.format(least=20, condition="id IS NOT NULL"))
    report = project.run()
    updated = event(report, "orders").updated
    assert updated is not None
    assert not updated.whole
    assert changed(report) == {f"orders{VIOLATIONS}"}
    assert updated.expectations == {"has id": (0, 0), "cheap": (0, 0)}
    assert updated.expectation_totals == {"has id": (3, 1), "cheap": (1, 3)}

    project.write("a.py", HEAD + EDITED.format(least=20, condition="id < 7"))
    report = project.run()
    updated = event(report, "orders").updated
    assert updated is not None
    assert updated.whole
    assert "query has changed" in updated.why
    assert project.rows("orders") == Counter([(1, 5, "DE"), (2, 60, "FR")])
    assert updated.expectation_totals == {"has id": (2, 2), "cheap": (1, 3)}

    project.write("a.py", HEAD + EDITED.partition("@dp")[1] + EDITED.partition("@dp")[2])
    report = project.run()
    assert sum(project.rows("orders").values()) == 4
    assert {name.table for name in report.orphans} == {f"orders{DROPPED}", f"orders{VIOLATIONS}"}


def test_expectations_of_a_streaming_table_are_of_rows_that_come_later(
    tmp_path: Path, spark: SparkSession
) -> None:
    query = "@dp.table\ndef orders():\n    return spark.readStream.schema(COLUMNS).json('in')\n"
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + query)
    old = [(1, -5, "DE"), (None, 60, "FR")]
    project.add("in", 1, as_json(old))
    project.run()

    checks = '@expect_or_drop("has id", "id IS NOT NULL")\n@expect_or_fail("whole", "price >= 0")\n'
    project.write("a.py", HEAD + checks + query)
    project.add("in", 2, as_json([(3, 7, "DE"), (None, 8, "DE")]))
    report = project.run()
    assert project.rows("orders") == Counter([*old, (3, 7, "DE")])
    assert dropped_rows_of_one_reason(project) == Counter([(None, 8, "DE")])
    updated = event(report, "orders").updated
    assert updated is not None
    assert updated.expectations == {"has id": (1, 1), "whole": (2, 0)}
    assert updated.expectation_totals == {"has id": (3, 1), "whole": (3, 1)}

    # A row that is dropped may fail the update, too.
    project.add("in", 3, as_json([(None, -1, "DE")]))
    report = project.run()
    assert isinstance(event(report, "orders").error, ExpectationFailed)
    assert dropped_rows_of_one_reason(project) == Counter([(None, 8, "DE")])


def dropped_rows_of_one_reason(project: Project) -> Counter[Row]:
    rows = project.rows_of_lists(f"orders{DROPPED}")
    assert all(failed == ["has id"] for *_, failed in rows)
    return Counter(tuple(row) for *row, _ in rows)


VIEW = """
@dp.temporary_view
@expect_or_drop("has id", "id IS NOT NULL")
@expect_all({"cheap": F.col("price") < 50})
def raw():
    return spark.read.schema(COLUMNS).json("in")

@dp.materialized_view
def ids():
    return spark.table("raw").select("id")

@dp.materialized_view
def reasons():
    dropped = spark.table("raw__headrace_dropped")
    return dropped.select(F.explode("failed_expectations").alias("reason"), "price")

cheap, whole = {"cheap": "price < 50"}, {"whole": "price >= 0"}
create_streaming_table("latest", expect_all=cheap, expect_all_or_fail=whole)
dp.create_auto_cdc_flow("latest", "records", ["id"], "price")

@dp.temporary_view
def records():
    return spark.readStream.schema(COLUMNS).json("in")
"""


def test_temporary_views_and_records_have_expectations(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + VIEW)
    project.add("in", 1, as_json([(1, 5, "DE"), (None, 60, "FR")]))
    project.run()
    project.add("in", 2, as_json([(1, 70, "DE"), (2, 8, "DE")]))
    report = project.run()
    assert {*states(report).values()} == {"COMPLETED"}
    assert project.rows("ids") == Counter([(1,), (1,), (2,)])
    assert project.rows("reasons") == Counter([("has id", 60)])
    updated = event(report, "raw").updated
    assert updated is not None
    assert updated.expectations == {"cheap": (1, 1), "has id": (2, 0)}
    assert updated.expectation_totals == {"cheap": (2, 2), "has id": (3, 1)}
    updated = event(report, "latest").updated
    assert updated is not None
    assert updated.expectation_totals["cheap"] == (1, 2)


PRINTED = """
@expect("cheap", "price < 50")
@expect_or_drop("has id", F.col("id").isNotNull())
@expect_or_fail("whole", "price >= 0")
@dp.materialized_view
def orders():
    return spark.read.schema(COLUMNS).json("in")
"""


def test_counts_are_in_lines_of_text_and_json_and_in_explain(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + PRINTED)
    project.add("in", 1, as_json([(1, 5, "DE"), (None, 60, "FR"), (2, 70, "FR")]))
    monkeypatch.chdir(project.root)

    def headrace(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["pipeline", *arguments])
        assert result.exit_code == 0, result.output
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", result.stdout)
        return text.replace(str(project.root), "PROJECT")

    printed = headrace("explain") + "\n" + headrace("run") + "\n" + headrace("explain")
    assert_golden(GOLDEN / "printed/expectations.txt", printed)
    project.add("in", 2, as_json([(7, 51, "DE")]))
    *_, completed, _ = map(json.loads, headrace("run", "--log-format", "json").splitlines())
    assert completed["expectations"] == {
        "whole": {"on_violation": "fail", "passed": 1, "failed": 0, "total": {"passed": 4, "failed": 0}},
        "has id": {"on_violation": "drop", "passed": 1, "failed": 0, "total": {"passed": 3, "failed": 1}},
        "cheap": {"on_violation": "warn", "passed": 0, "failed": 1, "total": {"passed": 1, "failed": 3}},
    }
