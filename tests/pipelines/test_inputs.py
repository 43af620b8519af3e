"""What tables are made of, from run to run: files, patterns, tables of every layout, constants, code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.pipelines import table_versions
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import Place
from headrace.pipelines.errors import CatalogDamaged
from tests.golden import MESSAGES, assert_golden
from tests.pipelines.project import Project, changed, dies, event, methods, rows_read, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.verify]

HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.active()
"""


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    return Project.new(tmp_path / "project", spark)


def ids(*values: int) -> list[dict[str, Any]]:
    return [{"id": value} for value in values]


def test_patterns_find_more_from_run_to_run(project: Project) -> None:
    project.write("a.py", HEAD + """
@dp.table
def events():
    return spark.readStream.schema("id INT").json("in/*.json")

@dp.materialized_view
def count():
    return spark.read.schema("id INT").json("in/*.json").groupBy().count()

@dp.materialized_view
def others():
    two, one = (spark.read.schema("id INT").json(f"in/{at}*.json") for at in (2, 1))
    return two.unionAll(one)
""")  # fmt: skip
    project.add("in", 1, ids(1))
    project.add("in", 2, ids(2))
    project.run()
    project.add("in", 3, ids(3))
    project.add("in", 10, ids(4))
    report = project.run()
    assert project.rows("events") == Counter([(1,), (2,), (3,), (4,)])
    assert project.rows("count") == Counter([(4,)])
    assert project.rows("others") == Counter([(1,), (2,), (4,)])
    assert rows_read(report, "count") == 2


@pytest.mark.parametrize("place", [Place.AUTO, Place.SPARK])
def test_rows_that_came_are_counted_before_any_filter(project: Project, place: Place) -> None:
    project = replace(project, place=place)
    project.write("a.py", HEAD + """
@dp.table
def events():
    return spark.readStream.schema("id INT").json("in").where("id > 2")

@dp.materialized_view
def twice():
    read = spark.read.schema("id INT").json("in")
    return read.where("id > 2").unionAll(read.where("id > 3"))

@dp.materialized_view
def of_both():
    return spark.table("twice").unionAll(spark.read.schema("id INT").json("in"))

@dp.table
def none():
    return spark.readStream.schema("id INT").json("in").where("false")

dp.create_sink("out", "json", {"path": "out"})

@dp.append_flow(target="out")
def to_out():
    return spark.readStream.table("events")
""")  # fmt: skip
    project.add("in", 1, ids(1, 2, 3, 4))
    project.run()
    project.add("in", 2, ids(2, 3, 4))
    report = project.run()
    assert {table: rows_read(report, table) for table in ("events", "twice", "of_both", "out")} == {
        "events": 3,
        "twice": 3,
        # Without Spark, equal rows that come are one change.
        "of_both": (3 if place is Place.SPARK else 2) + 3,
        "out": 2,
    }
    # Files that no row is wanted of are not read by Spark.
    assert rows_read(report, "none") == (None if place is Place.SPARK else 3)
    report = project.run()
    assert {rows_read(report, name.table) for name in report.events} == {0}
    assert project.rows("twice") == Counter({(3,): 2, (4,): 4})


def test_files_that_a_stream_has_read_stay_read(project: Project) -> None:
    project.write(
        "a.py", HEAD + "@dp.table\ndef events():\n    return spark.readStream.schema('id INT').json('in')\n"
    )
    file = project.add("in", 1, ids(1))
    project.run()
    file.rename(project.root / "aside.json")
    project.run()
    (project.root / "aside.json").rename(file)
    project.run()
    assert project.rows("events") == Counter([(1,)])


@pytest.mark.parametrize("layout", ["format='orc'", "partition_cols=['zip', 'day']"])
def test_tables_of_every_layout_have_readers(project: Project, layout: str) -> None:
    project.write("a.py", HEAD + f"""
SCHEMA = "id INT, zip STRING, day DATE"

@dp.table({layout})
def events():
    return spark.readStream.schema(SCHEMA).json("in")

@dp.table({layout})
def again():
    return spark.readStream.table("events")

@dp.materialized_view({layout})
def kept():
    return spark.table("events").where("id > 0")

@dp.materialized_view
def counts():
    return spark.table("kept").groupBy("zip").agg(F.count("*").alias("n"), F.max("day").alias("day"))
""")  # fmt: skip
    zips: list[str | None] = ["01234", "a/b=c", "", None, "é %"]
    for number in range(1, 4):
        rows = [
            {"id": at - 1, "zip": zip_code, "day": f"2026-01-0{number}" if at else None}
            for at, zip_code in enumerate(zips)
        ]
        project.add("in", number, rows)
        assert set(states(project.run()).values()) == {"COMPLETED"}
        counts = {zip_code: n for (zip_code, n, _day) in project.rows("counts")}
        # Files of Parquet and ORC keep an empty text; a partition of it is null, as everywhere in Spark.
        expected: dict[str | None, int] = {}
        for at, zip_code in enumerate(zips):
            if at > 1:
                key = zip_code or None if "partition" in layout else zip_code
                expected[key] = expected.get(key, 0) + number
        assert counts == expected
    (project.root / "in/2.json").unlink()
    project.run()


@pytest.mark.parametrize("layout", ["", "format='orc'", "partition_cols=['zip', 'day']"])
def test_rows_taken_back_rewrite_the_files_that_hold_them(project: Project, layout: str) -> None:
    project.write("a.py", HEAD + f"""
@dp.materialized_view
def base():
    return spark.read.schema("id INT, x DOUBLE, zip STRING, day DATE").json("in")

@dp.materialized_view({layout})
def kept():
    return spark.table("base").where("id >= 0")
""")  # fmt: skip
    project = project.by_spark if "orc" in layout else project
    zips: list[str | None] = ["01234", "a/b=[c]", None, "é %"]

    def put(*days: int, copies: int = 1) -> None:
        for day in days:
            rows = [{"id": at, "zip": of, "day": f"2026-01-0{day}"} for at, of in enumerate(zips)]
            project.add("in", day, [{**row, "x": x} for row in rows for x in (None, 0.5)] * copies)
        project.run()

    def files() -> dict[int, Path]:
        return {file.stat().st_ino: file for file in project.path("kept").rglob("*") if file.is_file()}

    def rows() -> Counter[Any]:
        folder = project.path("kept").resolve()
        read = project.spark.read.orc if "orc" in layout else project.spark.read.parquet
        return Counter((row.id, row.x, row.zip, str(row.day)) for row in read(f"file:{folder}").collect())

    def expected(**copies: int) -> Counter[Any]:
        return Counter(
            {
                (at, x, of, f"2026-01-0{day[1:]}"): count
                for day, count in copies.items()
                for at, of in enumerate(zips)
                for x in (None, 0.5)
            }
        )

    put(1)
    put(2, copies=2)
    assert rows() == expected(d1=1, d2=2)
    before = files()
    project.add("in", 3, [])
    put(2, copies=1)  # One copy of each row of a day goes.
    assert rows() == expected(d1=1, d2=1)
    shared = files().keys() & before.keys()
    assert 0 < len(shared) < len(before)
    (project.root / "in/1.json").unlink()
    project.run()
    assert rows() == expected(d2=1)
    assert not files().keys() & shared


def test_constants_are_part_of_a_query(project: Project) -> None:
    text = """CREATE MATERIALIZED VIEW a AS
        SELECT * FROM VALUES (1, '{}'), (2, 'b') AS t(id, colour) WHERE colour <> '{}';"""
    for colour, other in (("#1", "x"), ("#2", "x"), ("#2", "#2")):
        project.write("a.sql", text.format(colour, other))
        project.run()
        assert project.rows("a") == Counter([row for row in [(1, colour), (2, "b")] if row[1] != other])


def test_code_is_part_of_a_query(project: Project) -> None:
    text = HEAD + """
FACTOR, KNOWN = {}, frozenset(["a", "b", "c", "d"])

@F.udf("int")
def scaled(x):
    # {}
    return x * FACTOR if str(x) not in KNOWN else 0

@dp.materialized_view
def a():
    return spark.range(3).select(scaled("id").alias("x"))
"""  # fmt: skip
    project.write("a.py", text.format(2, ""))
    project.run()
    project.write("a.py", text.format(2, "A comment\n    # more."))
    assert not changed(project.run())
    project.write("a.py", text.format(3, ""))
    assert changed(project.run()) == {"a"}
    assert project.rows("a") == Counter([(0,), (3,), (6,)])


def test_a_stream_beside_the_table_it_reads(project: Project) -> None:
    project.write(
        "a.sql",
        """
        CREATE STREAMING TABLE copied AS WITH new AS (SELECT * FROM STREAM(met)) SELECT * FROM new;
        CREATE MATERIALIZED VIEW declared (id INT COMMENT 'x', other BIGINT) AS SELECT id, other FROM copied;
        """,
    )
    project.write("a.py", HEAD + """
@dp.table
def events():
    return spark.readStream.schema('id INT').json('in')

@dp.table
def met():
    new, old = spark.readStream.table("events"), spark.table("events").withColumnRenamed("id", "other")
    return new.join(old, F.col("other") < F.col("id"))
""")  # fmt: skip
    project.add("in", 1, ids(1, 2))
    project.run()
    project.add("in", 2, ids(3))
    project.run()
    assert project.rows("met") == project.rows("declared") == Counter([(2, 1), (3, 1), (3, 2)])


def test_a_stream_gets_every_copy_of_a_row(project: Project) -> None:
    project.write("a.py", HEAD + """
@dp.materialized_view
def up():
    read = spark.read.schema("id INT").json("in")
    return read.join(read.groupBy("id").agg(F.count("*").alias("n")), "id")

@dp.table
def down():
    return spark.readStream.table("up")

@dp.table
def later():
    return spark.readStream.table("up")
""")  # fmt: skip
    for number in range(1, 4):
        project.add("in", number, [{"id": number}] * number)
        project.run("up", "down", *(["later"] if number != 2 else []))
    expected = Counter({(number, number): number for number in range(1, 4)})
    assert project.rows("up") == project.rows("down") == project.rows("later") == expected


def test_a_storage_beside_the_project(tmp_path: Path, spark: SparkSession) -> None:
    project = Project.new(tmp_path / "project", spark, a_py=HEAD + """
@dp.materialized_view
def base():
    return spark.read.schema("id INT").json("in")

@dp.materialized_view
def kept():
    return spark.table("base").where("id > 0")
""")  # fmt: skip
    project = replace(project, storage="../storage")
    spec = project.root / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("storage: storage", "storage: ../storage"))
    project.add("in", 1, [{"id": 1}, {"id": 2}])
    project.run()
    project.add("in", 1, [{"id": 1}, {"id": 3}])
    project.run()
    assert project.rows("kept") == Counter([(1,), (3,)])


def test_nulls_in_maps_stay(project: Project) -> None:
    project.write("a.py", HEAD + """
@dp.materialized_view
def t():
    return spark.read.schema("id INT, m MAP<STRING, INT>, s ARRAY<STRUCT<m: MAP<STRING, DOUBLE>>>").json("in")

@dp.materialized_view
def u():
    return spark.table("t")
""")  # fmt: skip
    rows = [
        {"id": 1, "m": {"k": 1, "j": None}, "s": [{"m": {"2": None, "1": 0.5}}, None, {"m": None}]},
        {"id": 2, "m": None, "s": None},
    ]
    project.add("in", 1, rows)
    project.add("in", 2, [{**rows[0], "id": 3}])
    project.run()
    (project.root / "in/2.json").unlink()
    project.run()

    def held(table: str) -> list[Any]:
        found = project.spark.read.parquet(f"file:{project.path(table).resolve()}")
        return sorted((row.id, repr(row.m and sorted(row.m.items())), repr(row.s)) for row in found.collect())

    assert held("u") == held("t")
    assert held("u")[0][1:] == (
        "[('j', None), ('k', 1)]",
        "[Row(m={'1': 0.5, '2': None}), None, Row(m=None)]",
    )


def test_columns_of_a_stream_come_and_go(project: Project) -> None:
    text = HEAD + """
@dp.table
def events():
    return spark.readStream.schema("id INT, v INT").json("in").select({})

@dp.table
def again():
    return spark.readStream.table("events").select("id")
"""  # fmt: skip
    project.write("a.py", text.format("'id'"))
    project.add("in", 1, [{"id": 1, "v": 5}])
    project.run()
    project.write("a.py", text.format("'id', 'v'"))
    project.run()
    assert project.rows("events") == Counter([(1, None)])
    project.add("in", 2, [{"id": 2, "v": 6}])
    project.run()
    assert project.rows("events") == Counter([(1, None), (2, 6)])
    assert project.rows("again") == Counter([(1,), (2,)])
    project.write("a.py", text.format("F.col('id').cast('string').alias('id')"))
    report = project.run()
    assert states(report)["events"] == "FAILED"
    assert "rows of another form: id" in str(event(report, "events").error)
    assert project.rows("events") == Counter([(1, None), (2, 6)])


def test_versions_that_a_run_could_not_publish_are_gone_on_with(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("a.py", HEAD + """
@dp.table
def events():
    return spark.readStream.schema("id INT").json("in")

@dp.materialized_view
def total():
    return spark.table("events").groupBy().agg(F.sum("id").alias("id"))
""")  # fmt: skip
    project.add("in", 1, ids(1))
    project.run()

    with monkeypatch.context() as patch:
        patch.setattr(PipelineCatalog, "commit", dies)
        for number in (2, 3):
            project.add("in", number, ids(10**number))
            with pytest.raises(KeyboardInterrupt):
                project.run()
            assert project.rows("events") == Counter([(1,)])
    project.add("in", 4, ids(10_000))
    assert changed(project.run()) == {"events", "total"}
    assert project.rows("total") == Counter([(11_101,)])
    assert project.rows("events") == Counter([(1,), (100,), (1_000,), (10_000,)])


def test_rows_that_came_and_went_unread_are_nothing_to_a_reader(project: Project) -> None:
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW base AS SELECT id FROM json.`in`;
        CREATE MATERIALIZED VIEW inverse AS SELECT 1 / id AS x FROM base;
        CREATE STREAMING TABLE seen AS SELECT * FROM STREAM(base);
        """)  # fmt: skip
    project.add("in", 1, ids(1))
    project.run()
    project.add("in", 2, ids(0))
    assert states(project.run("base", "inverse")) == {
        "base": "COMPLETED",
        "inverse": "FAILED",
        "seen": "EXCLUDED",
    }
    (project.root / "in/2.json").unlink()
    project.add("in", 3, ids(4))
    assert set(states(project.run()).values()) == {"COMPLETED"}
    assert project.rows("inverse") == Counter([(1.0,), (0.25,)])
    assert project.rows("seen") == Counter([(1,), (4,)])


def test_a_flow_that_was_away_goes_on_where_it_was(project: Project) -> None:
    flow = (
        "@dp.append_flow(target='t')\ndef {0}():\n    return spark.readStream.schema('id INT').json('{0}')\n"
    )
    both = HEAD + "dp.create_streaming_table('t')\n" + flow.format("one") + flow.format("two")
    project.add("one", 1, ids(1))
    project.add("two", 1, ids(2))
    for text in (both, both.partition("@dp.append_flow(target='t')\ndef two")[0], both):
        project.write("a.py", text)
        project.run()
        assert project.rows("t") == Counter([(1,), (2,)])


def test_many_small_files_are_merged(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_versions, "MANY", 4)
    project.write("a.py", HEAD + """
@dp.table
def events():
    return spark.readStream.schema("id INT").json("in")

@dp.materialized_view
def groups():
    return spark.table("events").groupBy("id").count()
""")  # fmt: skip
    for number in range(1, 6):
        project.add("in", number, ids(number))
        project.run()
        assert project.rows("events") == Counter((id_,) for id_ in range(1, number + 1))
        assert project.rows("groups").total() == number
        assert len(list(project.path("events").iterdir())) <= 4 + 2


def test_files_of_a_table_that_are_missing_are_told(project: Project) -> None:
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW base AS SELECT id FROM json.`in`;
        CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM base;
        """)  # fmt: skip
    project.add("in", 1, ids(1, 2))
    project.run()
    for file in project.path("base").glob("*.parquet"):
        file.unlink()
    project.add("in", 2, ids(3))
    report = project.run()
    assert states(report) == {"base": "FAILED", "n": "SKIPPED"}
    assert "P807 CatalogDamaged: spark_catalog.default.base has lost rows" in str(event(report, "base").error)
    project.run(full=["base"])
    project.run()
    assert project.rows("n") == Counter([(3,)])


def test_a_catalogue_that_is_damaged(project: Project) -> None:
    project.write("a.sql", "CREATE MATERIALIZED VIEW a AS SELECT id FROM json.`in`;")
    project.add("in", 1, ids(1))
    project.run()
    current = project.root / "storage/catalog/current"
    current.unlink()  # As after a first run that was killed just before it made the link.
    project.add("in", 2, ids(2))
    project.run()
    assert project.rows("a") == Counter([(1,), (2,)])
    file = current / "catalog.json"
    text = file.read_text()
    for damage in (text[:-20], text.replace('"rows":2', '"rows":3'), ""):
        file.write_text(damage)
        with pytest.raises(CatalogDamaged):
            project.run()
    file.write_text(text)
    current.unlink()
    current.symlink_to("../elsewhere")
    with pytest.raises(CatalogDamaged) as error:
        project.run()
    assert_golden(MESSAGES / "catalog_damaged.txt", f"{error.value}\n".replace(str(project.root), "PROJECT"))


def test_queries_that_spark_names_and_types_in_its_own_way(project: Project) -> None:
    text = """
        CREATE MATERIALIZED VIEW a AS SELECT id % 2 AS k, count_if(id > 1) AS n, bool_or(id > 2) AS large,
            collect_list(id) AS ids, array(count(*)) AS counts FROM json.`in` GROUP BY id % 2;
        CREATE MATERIALIZED VIEW b AS SELECT cast(m AS STRING) AS m, count(*) AS n
            FROM (SELECT map('id', id) AS m FROM json.`in`) GROUP BY cast(m AS STRING);
        """
    project.write("b.sql", text)
    project.add("in", 1, ids(1, 2))
    project.run()
    project.write("a.sql", "CREATE MATERIALIZED VIEW before AS SELECT count_if(id > 5) AS n FROM json.`in`;")
    project.add("in", 2, ids(3))
    report = project.run()
    rows = project.rows_of_lists("a")
    assert rows == [(0, 1, False, [2], [1]), (1, 1, True, [1, 3], [2])]
    assert rows_read(report, "a") == 1
    assert project.rows("b").total() == 3


def test_columns_of_any_name(project: Project) -> None:
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW a AS SELECT id AS `a``b`, id % 2 AS `c.d e` FROM json.`in`;
        CREATE MATERIALIZED VIEW b AS WITH x AS (SELECT * FROM a)
            SELECT `c.d e` AS `é``.`, max(`a``b`) AS `SELECT` FROM x GROUP BY `c.d e`;
        """)  # fmt: skip
    project.add("in", 1, ids(1, 2))
    project.run()
    # The numbers of common table expressions go on from query to query.
    project.write("0.sql", "CREATE MATERIALIZED VIEW z AS WITH y AS (SELECT 1 AS n) SELECT * FROM y;")
    project.add("in", 2, ids(3))
    report = project.run()
    assert set(states(report).values()) == {"COMPLETED"}, [str(e.error)[:800] for e in report.events.values()]
    assert project.rows("b") == Counter([(1, 3), (0, 2)])
    assert rows_read(report, "b") == 1


def test_folders_of_partitions(project: Project) -> None:
    project.write("a.py", HEAD + """
@dp.materialized_view
def whole():
    return spark.read.schema("id INT, year INT").json("in").groupBy("year").count()

@dp.materialized_view
def two():
    return spark.read.schema("id INT").json(["in/year=2025", "in/year=2026"]).groupBy().count()
""")  # fmt: skip
    (project.root / "in").mkdir()
    for year in (2025, 2026):
        project.add(f"in/year={year}", 1, ids(year))
    project.run()
    project.add("in/year=2026", 2, ids(7, 8))
    project.run()
    assert project.rows("whole") == Counter([(2025, 1), (2026, 3)])
    assert project.rows("two") == Counter([(4,)])


def test_deleted_keys_of_records_are_kept_as_long_as_the_table_says(project: Project) -> None:
    project.write("a.py", HEAD + """
@dp.table
def records():
    return spark.readStream.schema("id INT, at INT, op STRING").json("in")

for name, properties in {"for_good": {}, "for_three": {"headrace.tombstones": "3"}}.items():
    dp.create_streaming_table(name, table_properties=properties)
    dp.create_auto_cdc_flow(
        name, "records", ["id"], "at", apply_as_deletes="op = 'D'", except_column_list=["op"]
    )
""")  # fmt: skip
    for number, ats in enumerate(([(1, 1, "U"), (1, 2, "D")], [(2, 6, "U")], [(1, 1, "U")]), 1):
        project.add("in", number, ({"id": key, "at": at, "op": op} for key, at, op in ats))
        assert "FAILED" not in states(project.run()).values()
    assert project.rows("for_good") == Counter([(2, 6)])
    assert project.rows("for_three") == Counter([(1, 1), (2, 6)])


@pytest.mark.parametrize("sequence", ["at", "_commit_version"])
def test_of_one_sequence_a_row_wins_against_a_deletion_of_an_older_one(
    sequence: str, project: Project
) -> None:
    project.write("a.py", HEAD + f"""
@dp.table
def records():
    return spark.readStream.schema("id INT, v INT, {sequence} INT, op STRING").json("in")

for kind in 1, 2:
    dp.create_streaming_table(f"type_{{kind}}")
    dp.create_auto_cdc_flow(
        f"type_{{kind}}", "records", ["id"], "{sequence}", apply_as_deletes="op = 'delete'",
        column_list=["id", "v"], stored_as_scd_type=kind,
    )
""")  # fmt: skip
    given = [(1, 5, 0, "insert"), (2, 5, 0, "insert")], [(1, 5, 1, "delete"), (1, 6, 1, "insert")]
    rewritten = [(2, 5, 1, "insert"), (2, 5, 1, "delete")]
    # Of several deletions of a sequence, one names the row of it: but no commit deletes its own rows.
    several = [(3, 7, 0, "insert"), (3, 6, 1, "insert"), (3, 7, 1, "delete"), (3, 6, 1, "delete")]
    stays = sequence == "_commit_version"
    for number, records in enumerate((*given, rewritten, several), 1):
        names = ("id", "v", sequence, "op")
        project.add("in", number, (dict(zip(names, each, strict=True)) for each in records))
        assert "FAILED" not in states(project.run()).values()
    assert project.rows("type_1") == Counter([(1, 6), (2, 5)] + [(3, 6)] * stays)
    versions = [(1, 5, 0, 1), (1, 6, 1, None), (2, 5, 0, None), (3, 7, 0, 1)]
    assert project.rows("type_2") == Counter(versions + [(3, 6, 1, None)] * stays)


def test_streams_with_state(project: Project) -> None:
    project.write("a.py", HEAD + """
def read(folder):
    return spark.readStream.schema("id INT, v INT, at TIMESTAMP").json(folder)

@dp.table
def distinct():
    return read("in").select("id", "v").dropDuplicates()

@dp.table
def first():
    return read("in").withWatermark("at", "1 hour").dropDuplicates(["id", "at"]).select("id", "v")

@dp.table
def both():
    return read("in").join(read("other").select("id", F.col("v").alias("w")), "id").drop("at")
""")  # fmt: skip
    at = "2026-01-01T00:00:00Z"
    project.add(
        "in", 1, [{"id": 1, "v": 1, "at": at}, {"id": 1, "v": 1, "at": at}, {"id": 2, "v": 2, "at": at}]
    )
    project.add("other", 1, [{"id": 2, "v": 5, "at": at}])
    project.run()
    project.add(
        "in", 2, [{"id": 1, "v": 1, "at": at}, {"id": 2, "v": 7, "at": at}, {"id": 3, "v": 3, "at": at}]
    )
    project.add("other", 2, [{"id": 1, "v": 6, "at": at}])
    report = project.run()
    assert project.rows("distinct") == Counter([(1, 1), (2, 2), (2, 7), (3, 3)])
    assert project.rows("first") == Counter([(1, 1), (2, 2), (3, 3)])
    assert project.rows("both") == Counter([(1, 1, 6)] * 3 + [(2, 2, 5), (2, 7, 5)])
    assert rows_read(report, "both") == 4


def test_a_view_of_columns_that_python_has_not_is_incremental(project: Project) -> None:
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW typed AS
            SELECT id, CAST(v AS TINYINT) AS tiny, CAST(v AS SMALLINT) AS small,
                CAST(at AS TIMESTAMP_NTZ) AS local, CAST(v AS FLOAT) AS real,
                make_ym_interval(0, v) AS months, make_dt_interval(v) AS days
            FROM json.`in`;
        CREATE MATERIALIZED VIEW counts AS SELECT id, count(*) AS n FROM typed GROUP BY id;
        CREATE MATERIALIZED VIEW most AS
            SELECT id, max(tiny) AS tiny, sum(small) AS small, max(local) AS local FROM typed GROUP BY id;
        CREATE MATERIALIZED VIEW spans AS
            SELECT id, max(days) AS longest, sum(days) AS days, max(local) - min(local) AS lasted
            FROM typed GROUP BY id;
        CREATE MATERIALIZED VIEW long AS SELECT id, longest FROM spans WHERE days > INTERVAL 1 DAY;
        """)  # fmt: skip
    for number in range(1, 4):
        project.add("in", number, [{"id": 1, "v": number, "at": f"2026-01-0{number} 10:00:00.5"}])
        found = methods(project.run())
        assert found == {
            "typed": "incremental, stateless",
            "counts": "incremental",
            "most": "incremental",
            "spans": "incremental",
            "long": "incremental, stateless",
        }
    assert project.rows("counts") == Counter([(1, 3)])
    assert project.rows("most") == Counter([(1, 3, 6, datetime(2026, 1, 3, 10, 0, 0, 500_000))])
    day = timedelta(1) // timedelta(microseconds=1)  # as Spark writes them
    assert project.rows("spans") == Counter([(1, 3 * day, 6 * day, 2 * day)])
    assert project.rows("long") == Counter([(1, 3 * day)])


def test_times_in_a_table_with_state(project: Project) -> None:
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW last AS
            SELECT id, max(at) AS at, max(day) AS day
            FROM (SELECT id, timestamp(at) AS at, to_timestamp_ntz(at) AS day FROM json.`in`) GROUP BY id;
        """)  # fmt: skip
    for number in range(1, 4):
        project.add("in", number, [{"id": number % 2, "at": f"2026-01-0{number} 10:00:00.5"}])
        report = project.run()
        assert states(report) == {"last": "COMPLETED"}
        assert methods(report) == {"last": "incremental"}
    days = {id_: (at.isoformat(), day.isoformat()) for id_, at, day in project.rows("last")}
    assert days == {
        0: ("2026-01-02T10:00:00.500000+00:00", "2026-01-02T10:00:00.500000"),
        1: ("2026-01-03T10:00:00.500000+00:00", "2026-01-03T10:00:00.500000"),
    }
