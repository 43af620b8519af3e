"""Inputs that cannot be asked for their changes: read once in a run, and compared with the run before."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import StructType

from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import SNAPSHOTS, Policy, TableName
from headrace.pipelines.errors import QueryRefused
from headrace.pipelines.input_identity import place_of, without_secrets
from headrace.pipelines.pipeline_run import RunReport, run_pipeline
from headrace.pipelines.query_errors import message_of, source_message
from headrace.pipelines.weighted_rows import can_be_grouped, kinds_in
from tests.pipelines.project import Project, changed, event, methods, rows_read, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.verify]

SOURCE = '''
import json
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader

spark = SparkSession.active()
FOLDER = Path({root!r})

class Reader(DataSourceReader):
    """Reads the rows in a file; with `moving`, one more each time."""

    def __init__(self, options):
        self.options = options

    def read(self, partition):
        if (at := self.options["password"]) != "geheim":
            raise ValueError(f"password={{at}} is wrong")
        file = FOLDER / self.options["table"]
        rows = json.loads(file.read_text())
        if "moving" in self.options:
            file.write_text(json.dumps([*rows, [len(rows), "late", 1]]))
        yield from map(tuple, rows)

class Rows(DataSource):
    @classmethod
    def name(cls):
        return "ledger"

    def schema(self):
        return "id INT, city STRING, amount INT"

    def reader(self, schema):
        return Reader(self.options)

spark.dataSource.register(Rows)

def ledger(**options):
    return spark.read.format("ledger").options(password="geheim", table="rows.json", **options).load()
'''

VIEWS = """
@dp.materialized_view
def large():
    return ledger().where("amount > 5")

@dp.materialized_view
def by_city():
    return ledger().groupBy("city").agg(F.count("*").alias("n"), F.sum("amount").alias("amount"))
"""

PAIRS = """
@dp.materialized_view
def pairs():
    return ledger().alias("a").join(ledger().alias("b"), F.expr("a.id < b.id AND a.city = b.city")).select(
        F.col("a.id").alias("one"), F.col("b.id").alias("other"))
"""

Rows = Sequence[tuple[int, str, int]]


class Ledger(Project):
    """A project that reads a Python data source. text: of its views."""

    @classmethod
    def of(cls, root: Path, spark: SparkSession, text: str) -> Ledger:
        made = cls.new(root / "project", spark)
        made.write("a.py", SOURCE.format(root=str(made.root)) + text)
        return cls(made.root, spark)

    def put(self, rows: Rows) -> None:
        (self.root / "rows.json").write_text(json.dumps(rows))

    @property
    def text_of_catalogue(self) -> str:
        return (self.root / "storage/catalog/current/catalog.json").read_text()


def snapshots(report: RunReport) -> list[TableName]:
    return [name for name in report.events if name.database == SNAPSHOTS]


def check(project: Ledger, rows: Rows, *, pairs: bool = False) -> None:
    cities: dict[str, list[int]] = {}
    for _, city, amount in rows:
        cities.setdefault(city, []).append(amount)
    assert project.rows("large") == Counter(row for row in rows if row[2] > 5)
    assert project.rows("by_city") == Counter((c, len(each), sum(each)) for c, each in cities.items())
    if pairs:
        assert project.rows("pairs") == Counter(
            (a, b) for a, city, _ in rows for b, other, _ in rows if a < b and city == other
        )


def test_what_reads_a_data_source_gets_the_difference(tmp_path: Path, spark: SparkSession) -> None:
    project = Ledger.of(tmp_path, spark, VIEWS + PAIRS)
    rows = [(at, "abc"[at % 3], at) for at in range(30)]
    project.put(rows)
    report = project.run(policy=Policy.INCREMENTAL_STRICT)
    assert len(snapshots(report)) == 1
    assert methods(report)["pairs"] == methods(report)["by_city"] == "incremental"
    assert methods(report)["large"] == "incremental, stateless"
    check(project, rows, pairs=True)

    rows = [*rows[1:], (40, "a", 7), (40, "a", 7)]
    project.put(rows)
    report = project.run()
    check(project, rows, pairs=True)
    assert rows_read(report, "by_city") == rows_read(report, "large") == 2  # one of them twice

    # Rows in another order are the same rows.
    project.put(rows[::-1])
    before = project.text_of_catalogue
    assert not changed(project.run())
    assert project.text_of_catalogue == before
    assert "geheim" not in before


def test_all_tables_of_a_run_see_the_same_rows(tmp_path: Path, spark: SparkSession) -> None:
    project = Ledger.of(tmp_path, spark, VIEWS.replace("ledger()", "ledger(moving='1')"))
    project.put([])
    for number in range(3):
        project.run()
        check(project, [(at, "late", 1) for at in range(number)])


def test_an_input_that_cannot_be_read_leaves_the_tables(tmp_path: Path, spark: SparkSession) -> None:
    project = Ledger.of(
        tmp_path, spark, VIEWS + "@dp.materialized_view\ndef beside():\n    return spark.range(2)\n"
    )
    rows: Rows = [(1, "a", 9)]
    project.put(rows)
    project.run()
    (project.root / "rows.json").rename(project.root / "gone.json")
    report = project.run()
    (snapshot,) = snapshots(report)
    assert states(report) == {
        snapshot.table: "FAILED", "large": "SKIPPED", "by_city": "SKIPPED", "beside": "COMPLETED",
    }  # fmt: skip
    assert "No such file" in message_of(report.events[snapshot].error or AssertionError())
    check(project, rows)
    project.put([(1, "a", 9), (2, "a", 1)])
    project.run()
    check(project, [(1, "a", 9), (2, "a", 1)])


def test_secrets_are_not_told(tmp_path: Path, spark: SparkSession) -> None:
    project = Ledger.of(tmp_path, spark, VIEWS)
    project.write("a.py", SOURCE.format(root=str(project.root)).replace('"geheim", t', '"gehe1m", t') + VIEWS)
    project.put([])
    report = project.run()
    (snapshot,) = snapshots(report)
    text = (
        f"{report.events[snapshot].dataset} {message_of(report.events[snapshot].error or AssertionError())}"
    )
    assert "password=*** is wrong" in text
    assert "gehe1m" not in text
    assert report.events[snapshot].dataset.title == "snapshot of ledger (table=rows.json)"
    # Another password is another way to the same rows.
    project.write("a.py", SOURCE.format(root=str(project.root)) + VIEWS)
    assert snapshots(project.run()) == [snapshot]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("jdbc:postgresql://me:a/b@host/db?password=x&ssl=1", "jdbc:postgresql://***@host/db?password=***&ssl=1"),
        ("jdbc:oracle:thin:scott/tiger@//host/db", "jdbc:oracle:thin:***@//host/db"),
        ("cannot open jdbc:postgresql://u:p@ss@host/db, or", "cannot open jdbc:postgresql://***@host/db, or"),
        ("//host;password={p;w d}}e};database=d", "//host;password=***;database=d"),
        ("//host;password=ab,cd;database=d", "//host;password=***;database=d"),
        ("password = 'a''b c' AND token=x)y", "password = *** AND token=***"),
        ("'Authorization': 'Bearer a.b c', 'x'", "'Authorization': '***', 'x'"),
        ("Authorization: Basic YTpi\nHost: h", "Authorization: ***\nHost: h"),
        ("x?sig=a%2Bb&auth=c&X-Amz-Signature=d&passcode=e&design=f",
         "x?sig=***&auth=***&X-Amz-Signature=***&passcode=***&design=f"),
        ("{'accessKey': 'x y', \"token\": \"z\"}", "{'accessKey': ***, \"token\": ***}"),
        ('.option("password", "geheim").load()', '.option("password", ***).load()'),
        ("at token: x, SELECT 1 AS secret", "at token: x, SELECT 1 AS secret"),
    ],
)  # fmt: skip
def test_secrets_in_texts(text: str, shown: str) -> None:
    assert without_secrets(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:sqlserver://host:1433;databaseName=d;user=u;password={p;w d}", "jdbc:sqlserver://host:1433"),
        ("jdbc:postgresql://u:p?s;s@host/db?user=u", "jdbc:postgresql://***@host/db"),
        ("jdbc:db2://host:50000/db:user=u;password=p;", "jdbc:db2://host:50000/db"),
        ("https://host/in.json?sv=1&sig=x#y", "https://host/in.json"),
        ("s3://key:x/y@bucket/a=1/b", "s3://***@bucket/a=1/b"),
    ],
)
def test_places_are_shown_without_users_and_parameters(url: str, shown: str) -> None:
    assert place_of(url) == shown


def test_options_that_may_be_secrets_are_told_nowhere(tmp_path: Path, spark: SparkSession) -> None:
    text = VIEWS.replace("ledger()", "ledger(sas='{0}', path='https://me:{0}@host/a?x={0}')")
    project = Ledger.of(tmp_path, spark, text.format("f1rst"))
    rows: Rows = [(1, "a", 9)]
    project.put(rows)
    report = project.run()
    (snapshot,) = snapshots(report)
    title = report.events[snapshot].dataset.title
    assert title == "snapshot of ledger (path=https://***@host/a, table=rows.json)"
    # A token that rotates is another way to the same rows.
    project.write("a.py", SOURCE.format(root=str(project.root)) + text.format("sec0nd"))
    rows = [*rows, (2, "b", 10)]
    project.put(rows)
    report = project.run()
    assert snapshots(report) == [snapshot]
    check(project, rows)
    assert rows_read(report, "by_city") == 1
    for secret in ("f1rst", "sec0nd", "geheim"):
        assert secret not in project.text_of_catalogue
        assert not any(secret in path.name for path in project.root.rglob("*"))


def test_tables_that_are_not_selected_catch_up(tmp_path: Path, spark: SparkSession) -> None:
    project = Ledger.of(tmp_path, spark, VIEWS + """
@dp.materialized_view
def other():
    return ledger(other="1").groupBy().count()
""")  # fmt: skip
    project.put([(1, "a", 9)])
    report = project.run()
    assert len(snapshots(report)) == 2
    project.put([(1, "a", 9), (2, "a", 10)])
    report = project.run("large")
    assert Counter(states(report).values()) == {"COMPLETED": 2, "EXCLUDED": 3}
    assert project.rows("large").total() == 2
    assert project.rows("by_city") == Counter([("a", 1, 9)])
    rows: Rows = [(2, "a", 10), (3, "b", 1)]
    project.put(rows)
    project.run("large")
    project.put([*rows, (4, "b", 1)])
    report = project.run()
    check(project, [*rows, (4, "b", 1)])
    assert rows_read(report, "by_city") == 4
    assert project.rows("other") == Counter([(3,)])
    assert rows_read(project.run(full=["by_city"]), "by_city") == 3


def test_inputs_whose_rows_cannot_be_compared_are_recomputed(tmp_path: Path, spark: SparkSession) -> None:
    text = """
@dp.materialized_view
def a():
    frame = spark.createDataFrame([(1, "x")], "id INT, v STRING COLLATE UTF8_LCASE")
    return frame.groupBy().agg(F.sum("id").alias("id"))
"""
    project = Ledger.of(tmp_path, spark, text)
    report = project.run()
    assert not snapshots(report)
    assert methods(report) == {"a": "recompute"}
    assert project.rows("a") == Counter([(1,)])


def test_rows_in_memory_and_streams_beside_them(tmp_path: Path, spark: SparkSession) -> None:
    text = """
KNOWN = spark.createDataFrame([({0}, "one")], "id INT, name STRING")

@dp.temporary_view
def known():
    return KNOWN.where("id > 0")

@dp.materialized_view
def names():
    other = spark.createDataFrame([(1, "1")], "id INT, name STRING")
    return spark.table("known").groupBy("name").count().unionAll(other.groupBy("name").count())

@dp.table
def events():
    events = spark.readStream.schema("id INT").json("in")
    return events.join(KNOWN, "id").select("id", "name")
"""
    project = Ledger.of(tmp_path, spark, text.format(1))
    project.add("in", 1, [{"id": 1}, {"id": 2}])
    report = project.run()
    assert len(snapshots(report)) == 2
    assert project.rows("names") == Counter([("one", 1), ("1", 1)])
    assert project.rows("events") == Counter([(1, "one")])
    project.write("a.py", SOURCE.format(root=str(project.root)) + text.format(2))
    project.add("in", 2, [{"id": 1}, {"id": 2}])
    report = project.run()
    assert project.rows("events") == Counter([(1, "one"), (2, "one")])
    assert methods(report)["names"] == "incremental"
    assert changed(report) == {"events", *(name.table for name in snapshots(report)[:1])}


@contextmanager
def connected(spark: SparkSession, url: str) -> Generator[Any]:
    """Provide a statement of a database in Spark's JVM; the database is closed then."""
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", "/dev/null")
    connection = jvm.java.sql.DriverManager.getConnection(f"{url};create=true")
    try:
        yield connection.createStatement()
    finally:
        connection.close()
        with pytest.raises(Py4JJavaError, match="shutdown"):
            jvm.java.sql.DriverManager.getConnection(f"{url};shutdown=true")


@pytest.fixture
def database(spark: SparkSession) -> Iterator[Any]:
    with connected(spark, "jdbc:derby:memory:shop") as statement:
        yield statement


def test_tables_of_a_database(tmp_path: Path, spark: SparkSession, database: Any) -> None:
    project = Project.new(tmp_path / "project", spark)
    project.write("a.py", """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()

def read(table):
    options = {"url": "jdbc:derby:memory:shop", "dbtable": table, "password": "geheim"}
    return spark.read.format("jdbc").options(**options).load()

@dp.materialized_view
def revenue():
    orders, people = read("orders"), read("people")
    return orders.join(people, "ID").groupBy("NAME").agg(F.sum("AMOUNT").alias("amount"))

@dp.materialized_view
def adults():
    return read("people").where("NAME <> 'bob'").select("NAME")
""")  # fmt: skip
    database.execute("CREATE TABLE people (id INT, name VARCHAR(20), code CHAR(3))")
    database.execute("CREATE TABLE orders (id INT, amount DECIMAL(9, 2), placed TIMESTAMP)")
    database.execute("INSERT INTO people VALUES (1, 'ann', 'a'), (2, 'bob', 'b')")
    database.execute("INSERT INTO orders VALUES (1, 2.50, CURRENT_TIMESTAMP), (2, 1, NULL), (2, 1, NULL)")
    report = project.run(policy=Policy.INCREMENTAL_STRICT)
    assert [report.events[name].dataset.title for name in snapshots(report)] == [
        "snapshot of people at jdbc:derby:memory:shop", "snapshot of orders at jdbc:derby:memory:shop",
    ]  # fmt: skip
    assert {name: str(amount) for name, amount in project.rows("revenue")} == {"ann": "2.50", "bob": "2.00"}
    database.execute("UPDATE orders SET amount = 10 WHERE id = 1")
    database.execute("INSERT INTO people VALUES (3, 'eve', 'c')")
    report = project.run()
    assert {name: str(amount) for name, amount in project.rows("revenue")} == {"ann": "10.00", "bob": "2.00"}
    assert rows_read(report, "revenue") == 3
    assert project.rows("adults") == Counter([("ann",), ("eve",)])
    stored = PipelineCatalog.last_entries(project.root / "storage")
    assert not any("geheim" in f"{name} {entry}" for name, entry in stored.items())


def test_a_database_that_is_gone_leaves_its_tables(tmp_path: Path, spark: SparkSession) -> None:
    url = f"jdbc:derby:{tmp_path}/shop"
    project = Project.new(tmp_path / "project", spark)
    project.write("a.py", f"""
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.temporary_view
def people():
    return spark.read.format("jdbc").options(url={url!r}, dbtable="people").load()

@dp.materialized_view
def adults():
    return spark.table("people").where("ID > 1").select("ID")
""")  # fmt: skip
    project.write("b.sql", """
        CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM adults;
        CREATE MATERIALIZED VIEW beside AS SELECT count(*) AS n FROM json.`in`;
        """)  # fmt: skip
    project.add("in", 1, [{"id": 1}])
    with pytest.raises(QueryRefused, match="shop' not found"):
        project.run()
    with connected(spark, url) as database:
        database.execute("CREATE TABLE people (id INT)")
        database.execute("INSERT INTO people VALUES (1), (2)")
        project.run()
        database.execute("RENAME TABLE people TO away")
        # By a kept analysis a run begins, and what needs Spark fails; else the project cannot be analysed.
        report = project.run()
        assert states(report)["adults"] == states(report)["counted"] == "SKIPPED"
        (error,) = [str(each.error) for name, each in report.events.items() if name.database == SNAPSHOTS]
        assert "'PEOPLE' does not exist" in error
        with pytest.raises(QueryRefused, match="'PEOPLE' does not exist"):
            project.by_spark.run()
        database.execute("RENAME TABLE away TO people")
        database.execute("INSERT INTO people VALUES (3)")
    there = (project.root / "transformations/a.py").read_text()
    project.write("a.py", there.replace(url, "jdbc:hive2://127.0.0.1:1/shop"))
    project.add("in", 2, [{"id": 2}])
    report = project.run()
    assert states(report) == {"adults": "FAILED", "counted": "SKIPPED", "beside": "COMPLETED"}
    assert "Connection refused" in message_of(event(report, "adults").error or AssertionError())
    assert project.rows("adults") == Counter([(2,)])
    assert project.rows("counted") == Counter([(1,)])
    assert project.rows("beside") == Counter([(2,)])
    project.write("a.py", there)
    report = project.run()
    assert project.rows("adults") == Counter([(2,), (3,)])
    assert rows_read(report, "counted") == 1


class FailedInJava(Exception):
    """An error of PySpark. java_exception: the one of Java behind it."""

    def __init__(self, cause: Any) -> None:
        super().__init__(str(cause))
        self.java_exception = cause


@pytest.mark.parametrize(
    ("message", "state", "unreachable"),
    [
        ("reset", "08006", True), ("shuts down", "57P01", True),
        ("time is up", "HYT00", True),
        ("of Hive", " 08S01", True),
        ("no table", "42P01", False), ("cancelled", "57014", False), ("no database", "3D000", False),
        ("no database", "XJ004", False), ("nothing", None, False), ("No suitable driver", "08001", False),
    ],
)  # fmt: skip
def test_errors_of_a_database_that_is_gone(
    spark: SparkSession, message: str, state: str | None, unreachable: bool
) -> None:
    jvm: Any = spark.sparkContext._jvm
    error = jvm.java.sql.SQLException(message, state)
    said = source_message(FailedInJava(jvm.java.lang.RuntimeException(error)))
    assert said == (f"java.sql.SQLException: {message}", unreachable)


def test_a_url_that_is_none_is_not_unreachable(spark: SparkSession) -> None:
    jvm: Any = spark.sparkContext._jvm
    assert source_message(FailedInJava(jvm.java.net.URISyntaxException("a b", "blank"))) == ("", False)
    refused = source_message(FailedInJava(jvm.java.net.ConnectException("refused")))
    assert refused == ("java.net.ConnectException: refused", True)


@pytest.mark.parametrize(
    ("columns", "kinds", "grouped"),
    [
        ("a STRUCT<geo INT, variant INT, interval INT, collate STRING, void INT, udt INT>",
         {"struct", "integer", "string"}, True),
        ("a ARRAY<STRUCT<v VARIANT>>", {"array", "struct", "variant"}, False),
        ("a MAP<INT, STRING COLLATE UTF8_LCASE>", {"map", "integer", "collated"}, False),
        ("a INTERVAL DAY, b INTERVAL YEAR", {"interval"}, False),
        ("a VOID", {"void"}, True),
    ],
)  # fmt: skip
def test_kinds_are_those_of_types_not_of_names(
    spark: SparkSession, columns: str, kinds: set[str], grouped: bool
) -> None:
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    assert kinds_in(schema) == kinds
    assert can_be_grouped(schema) == grouped


def test_a_snapshot_is_shown_as_its_input(tmp_path: Path, spark: SparkSession) -> None:
    from headrace.pipelines.maintenance import explain_pipeline
    from headrace.pipelines.planned_project import planned
    from headrace.view import to_mermaid
    from headrace.view.picture import picture_of_pipeline

    project = Ledger.of(tmp_path, spark, VIEWS)
    project.put([])
    titles: list[str] = []
    run_pipeline(project.spec, spark, observer=lambda each: titles.append(each.dataset.title))
    assert titles[0] == "snapshot of ledger (table=rows.json)"
    with planned(project.spec, spark) as (graph, plans):
        text = explain_pipeline(graph, plans, project.root / "storage")
        picture = to_mermaid(picture_of_pipeline("p", graph, plans))
    assert text.count("  reads snapshot of ledger (table=rows.json)\n") == 2
    assert "changed since" not in text
    assert "ledger (table=rows.json)" in picture
    assert SNAPSHOTS not in text + picture
