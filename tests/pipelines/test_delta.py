"""Delta tables as inputs: what a pipeline makes of their versions is what the newest one holds."""

from __future__ import annotations

import json
import struct
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from headrace.errors import UnreadableSource
from headrace.pipelines import leaves, table_plan
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.inputs import DeltaInput, RunDeltaTables
from headrace.pipelines.maintenance import explain_pipeline
from headrace.pipelines.planned_project import planned
from headrace.pipelines.table_versions import TableVersions
from tests.golden import assert_golden
from tests.pipelines.project import SPEC, Project, changed, event, methods, rows_read, states
from tests.pipelines.test_errors import GOLDEN, told
from tests.pipelines.test_inputs import HEAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.pipelines.pipeline_run import RunReport

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.verify]

FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    return Project.new(tmp_path / "project", spark)


def orders(*rows: tuple[Any, ...]) -> Any:
    names = ("id", "shop", "day", "price")
    types = (pa.int64(), pa.string(), pa.date32(), pa.float64())
    columns = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.table(columns, names=names)


JOINED = (
    HEAD
    + """
@dp.table
def shops():
    return spark.readStream.schema("shop STRING, city STRING").json("shops")

@dp.materialized_view(table_properties={"headrace.refresh_policy": "incremental_strict"})
def revenue():
    orders = spark.read.format("delta").load("orders")
    return orders.join(spark.table("shops"), "shop").groupBy("city", "day").agg(F.sum("price").alias("price"))

@dp.materialized_view
def dear():
    return spark.read.format("delta").load("orders").where("price > 5")
"""
)
SHOPS = {"a": "Oslo", "b": "Bergen", "x/y=é %[1]": "Oslo"}


def completed(project: Project) -> RunReport:
    """Run the project; each table is COMPLETED."""
    report = project.run()
    assert set(states(report).values()) == {"COMPLETED"}, [str(each.error) for each in report.events.values()]
    return report


def assert_right(project: Project) -> None:
    """Compare with what plain Python makes of the table, as `deltalake` reads it."""
    rows = pa.table(deltalake.DeltaTable(project.root / "orders").scan()).to_pylist()
    revenue: dict[tuple[str, date | None], float] = {}
    for row in rows:
        if row["shop"] in SHOPS:
            key = SHOPS[row["shop"]], row["day"]
            revenue[key] = revenue.get(key, 0.0) + row["price"]
    assert project.rows("revenue") == Counter((*key, price) for key, price in revenue.items())
    names = ("id", "shop", "day", "price")
    dear = Counter(tuple(row[name] for name in names) for row in rows if row["price"] > 5)
    assert project.rows("dear") == dear


DAY, NEXT = date(2026, 1, 1), date(2026, 1, 2)


@pytest.mark.parametrize(
    ("configuration", "partitioned"), [(FEED, ["shop", "day"]), ({}, [])], ids=["feed", "files"]
)
def test_a_view_follows_a_delta_table(
    project: Project, configuration: dict[str, str], partitioned: list[str]
) -> None:
    path = project.root / "orders"
    project.write("a.py", JOINED)
    project.add("shops", 1, [{"shop": shop, "city": city} for shop, city in SHOPS.items()])
    rows = [(1, "a", DAY, 4.0), (2, "b", DAY, 6.0), (2, "b", DAY, 6.0), (3, "x/y=é %[1]", None, 8.0)]
    first = orders(*rows, (4, None, NEXT, 9.0))
    deltalake.write_deltalake(path, first, partition_by=partitioned or None, configuration=configuration)

    def table() -> Any:
        return deltalake.DeltaTable(path)

    def merge() -> None:
        source = orders((2, "b", DAY, 7.0), (9, "a", NEXT, 1.0))
        merged = table().merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merged.when_matched_update_all().when_not_matched_insert_all().execute()

    report = completed(project)
    assert methods(report) == {"shops": "append", "revenue": "incremental", "dear": "incremental, stateless"}
    assert_right(project)
    steps: dict[str, Any] = {
        "append": lambda: deltalake.write_deltalake(path, orders((5, "a", DAY, 5.5)), mode="append"),
        "update": lambda: table().update(predicate="id = 1", new_values={"price": 10.5}),
        "delete": lambda: table().delete("id = 5"),
        "merge": merge,
        "optimize": lambda: table().optimize.compact(),
        "no change": lambda: None,
        "two": lambda: (
            table().delete("id = 3"),
            table().update(predicate="id = 9", new_values={"shop": "b"}),
        ),
    }
    for name, step in steps.items():
        step()
        report = completed(project)
        assert_right(project)
        quiet = name in ("optimize", "no change")
        assert changed(report) == (set() if quiet else {"revenue", "dear"}), name
        updated = event(report, "revenue").updated
        assert updated is not None
        assert not updated.why, name


def numbers(*rows: tuple[int, str | None]) -> Any:
    ids, names = zip(*rows, strict=True)
    return pa.table({"id": pa.array(ids, pa.int64()), "s": pa.array(names, pa.string())})


def test_sql_reads_delta_tables_by_their_paths(project: Project) -> None:
    path = project.root / "in"
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW n AS
            WITH x AS (SELECT id FROM delta.`in` WHERE id > 1) SELECT count(*) AS n, max(x.id) AS id FROM x;
        CREATE MATERIALIZED VIEW first AS SELECT a.id FROM delta.`in` a JOIN delta.`in` b ON a.id = b.id - 1;
        CREATE STREAMING TABLE seen AS SELECT id, upper(s) AS s FROM STREAM(delta.`in`);
        """)  # fmt: skip
    deltalake.write_deltalake(path, numbers((1, "a"), (2, None)))
    completed(project)
    deltalake.write_deltalake(path, numbers((3, "c")), mode="append")
    with planned(project.spec, project.spark) as (graph, plans):
        text = explain_pipeline(graph, plans, project.spec.storage)
    assert f"reads the Delta table {path}, version 0 to 1, by its files" in text
    report = completed(project)
    assert project.rows("n") == Counter([(2, 3)])
    assert project.rows("first") == Counter([(1,), (2,)])
    assert project.rows("seen") == Counter([(1, "A"), (2, None), (3, "C")])
    updated = event(report, "n").updated
    assert updated is not None
    assert updated.rows_in == 1


def test_streams_get_the_rows_of_new_versions(project: Project) -> None:
    path = project.root / "in"
    project.write("a.py", HEAD + """
@dp.table
def seen():
    return spark.readStream.format("delta").load("in").select("id")

@dp.table
def once():
    return spark.readStream.format("delta").load("in").select("s").dropDuplicates()

dp.create_streaming_table("latest")
dp.create_auto_cdc_flow("latest", "records", ["id"], "id")

@dp.temporary_view
def records():
    return spark.readStream.format("delta").load("in")
""")  # fmt: skip
    deltalake.write_deltalake(path, numbers((1, "a"), (2, "b")))
    completed(project)
    table = deltalake.DeltaTable(path)
    deltalake.write_deltalake(path, numbers((3, "b"), (3, "b")), mode="append")
    table.update_incremental()
    table.optimize.compact()
    completed(project)
    merged = deltalake.DeltaTable(path).merge(
        numbers((4, "c")), "t.id = s.id", source_alias="s", target_alias="t"
    )
    merged.when_not_matched_insert_all().execute()
    more = pa.table({"id": pa.array([5], pa.int64()), "s": ["d"], "more": [1]})
    deltalake.write_deltalake(path, more, mode="append", schema_mode="merge")
    completed(project)
    assert project.rows("seen") == Counter({(1,): 1, (2,): 1, (3,): 2, (4,): 1, (5,): 1})
    assert project.rows("once") == Counter([("a",), ("b",), ("c",), ("d",)])
    assert project.rows("latest").total() == 5
    deltalake.DeltaTable(path).delete("id = 1")
    report = project.run()
    assert states(report)["seen"] == "FAILED"
    assert "has taken rows back" in str(event(report, "seen").error)
    assert project.rows("seen").total() == 6


def test_versions_without_a_way_from_one_to_the_next_are_read_whole(project: Project) -> None:
    path = project.root / "in"
    project.write("a.py", HEAD + """
@dp.materialized_view
def n():
    return spark.read.format("delta").load("in").groupBy("s").count()

@dp.materialized_view
def rows():
    return spark.read.format("delta").load("in").select("id", "s")

@dp.materialized_view
def first():
    return spark.read.format("delta").option("versionAsOf", 0).load("in").select("id")
""")  # fmt: skip

    def write(*rows: tuple[int, str | None]) -> None:
        deltalake.write_deltalake(path, numbers(*rows), mode="overwrite")

    def vacuumed() -> None:
        write((7, "x"), (8, "x"))
        deltalake.DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def made_anew() -> None:
        path.rename(project.root / "old")
        for number in range(7):
            deltalake.write_deltalake(path, numbers((number, "n")), mode="append")

    def widened() -> None:
        more = pa.table({"id": pa.array([5], pa.int64()), "s": ["d"], "more": [1]})
        deltalake.write_deltalake(path, more, mode="append", schema_mode="merge")

    write((1, "a"), (1, "a"), (2, None))
    steps: dict[str, tuple[Any, bool]] = {
        "first": (lambda: None, True),
        "overwrite": (lambda: write((2, None), (3, "b")), False),
        "restore": (lambda: deltalake.DeltaTable(path).restore(0), False),
        "vacuum": (vacuumed, True),
        "columns": (widened, True),
        "another table": (made_anew, True),
    }
    for name, (step, whole) in steps.items():
        step()
        report = completed(project)
        found = pa.table(deltalake.DeltaTable(path).scan()).to_pylist()
        assert project.rows("rows") == Counter((row["id"], row["s"]) for row in found), name
        counts = Counter(row["s"] for row in found)
        assert project.rows("n") == Counter(counts.items()), name
        updated = event(report, "n").updated
        assert updated is not None
        assert updated.why.startswith("from all rows: ") is whole, name
        if name != "another table":
            assert project.rows("first") == Counter({(1,): 2, (2,): 1})


def test_a_version_whose_files_are_gone(project: Project) -> None:
    path = project.root / "in"
    for number in range(2):
        deltalake.write_deltalake(path, numbers((number, "a")), mode="overwrite")
    deltalake.DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    project.write("a.py", HEAD + """
@dp.materialized_view
def old():
    return spark.read.format("delta").load("in", versionAsOf=0)
""")  # fmt: skip
    report = project.run()
    assert states(report) == {"old": "FAILED"}
    error = event(report, "old").error
    assert isinstance(error, UnreadableSource)
    assert_golden(GOLDEN / "delta_files_gone.txt", told(error, project.root))


def test_files_that_another_reader_lists_are_no_files_to_us(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in the plans of Delta's own jar, which hides rows by deletion vectors.
    index = MagicMock()
    index.getClass().getName.return_value = "org.apache.spark.sql.delta.files.TahoeLogFileIndex"
    relation = MagicMock()
    relation.location.return_value = index
    monkeypatch.setattr(leaves, "_is", lambda *_: True)
    node = MagicMock()
    node.simpleString.return_value = "Relation [id#1L] parquet"
    found: Any = leaves._files(node, relation, False, MagicMock())
    assert isinstance(found, leaves.UnversionedLeaf)


def commit(path: Path, number: int, *actions: dict[str, Any]) -> None:
    """Write a commit as engines do that know more of Delta than `deltalake` writes."""
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{number:020d}.json").write_text("\n".join(map(json.dumps, actions)))


def added(path: Path, name: str, **more: Any) -> dict[str, Any]:
    size = (path / name).stat().st_size
    return {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": 0,
        "dataChange": True,
        **more,
    }


def protocol(*features: str, **configuration: str) -> list[dict[str, Any]]:
    noted = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": noted if configuration else {}}]
    metadata = {"schemaString": json.dumps({"type": "struct", "fields": fields}), "partitionColumns": []}
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    given = {"id": "made by hand", "format": {"provider": "parquet", "options": {}}, "createdTime": 0}
    return [
        {"protocol": {**versions, "readerFeatures": [*features], "writerFeatures": [*features]}},
        {"metaData": {**given, **metadata, "configuration": configuration}},
    ]


def deletion_vector(*positions: int) -> dict[str, Any]:
    """Return a deletion vector within the log: a 64-bit array of one roaring bitmap, in Z85."""
    data = struct.pack("<IQIIIHHI", 1681511377, 1, 0, 12346, 1, 0, len(positions) - 1, 16)
    data += b"".join(struct.pack("<H", each) for each in positions)
    size = len(data)
    data += bytes(-size % 4)
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(data) // 4}I", data)
    text = "".join(digits[word // 85**at % 85] for word in words for at in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": len(positions)}


def test_rows_that_files_do_not_hold_as_they_are(project: Project) -> None:
    project.write("a.py", HEAD + """
@dp.materialized_view
def sums():
    return spark.read.format("delta").load("vectors").groupBy().agg(F.sum("id").alias("id"))

@dp.materialized_view
def mapped():
    return spark.read.format("delta").load("mapped")
""")  # fmt: skip
    import pyarrow.parquet as pq

    vectors, mapped = project.root / "vectors", project.root / "mapped"
    vectors.mkdir()
    mapped.mkdir()
    pq.write_table(pa.table({"id": [1, 2, 4, 8]}), vectors / "a.parquet")
    pq.write_table(pa.table({"col-1": [1, 2]}), mapped / "a.parquet")
    commit(vectors, 0, *protocol("deletionVectors"), {"add": added(vectors, "a.parquet")})
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
    commit(mapped, 0, *protocol("columnMapping", **mapping), {"add": added(mapped, "a.parquet")})
    completed(project)
    assert project.rows("sums") == Counter([(15,)])
    assert project.rows("mapped") == Counter([(1,), (2,)])

    for number, positions in ((1, (0, 2)), (2, (0, 1, 2))):
        was = added(
            vectors, "a.parquet", **({"deletionVector": deletion_vector(0, 2)} if number == 2 else {})
        )
        gone = {key: value for key, value in was.items() if key != "modificationTime"} | {
            "deletionTimestamp": 1
        }
        here = added(vectors, "a.parquet", deletionVector=deletion_vector(*positions))
        commit(vectors, number, {"remove": gone}, {"add": here})
        pq.write_table(pa.table({"col-1": [number * 10]}), mapped / f"{number}.parquet")
        commit(mapped, number, {"add": added(mapped, f"{number}.parquet")})
        report = completed(project)
        assert project.rows("sums") == Counter([(10 if number == 1 else 8,)])
        updated = event(report, "sums").updated
        assert updated is not None
        assert updated.rows_in == (2 if number == 1 else 1)
    assert project.rows("mapped") == Counter([(1,), (2,), (10,), (20,)])


def test_partitions_of_times_are_the_same_whatever_zone_a_session_has(project: Project) -> None:
    zone = "configuration: {spark.sql.session.timeZone: America/New_York}\n"
    (project.root / "spark-pipeline.yml").write_text(SPEC + zone)
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW first AS SELECT id, at, local FROM delta.`in`;
        CREATE MATERIALIZED VIEW kept AS SELECT id, at, local FROM delta.`in` WHERE id > 0;
        """)  # fmt: skip
    times = [datetime(2026, 1, number, 12, 0, 0, 500_000) for number in (1, 2, 3)]

    def write(number: int) -> None:
        columns = {
            "id": pa.array([number], pa.int64()),
            "at": pa.array([times[number].replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
            "local": pa.array([times[number]], pa.timestamp("us")),
        }
        partitions = ["at", "local"]
        deltalake.write_deltalake(
            project.root / "in", pa.table(columns), partition_by=partitions, mode="append"
        )

    write(0)
    completed(project)
    write(1)
    completed(project)
    write(2)
    deltalake.DeltaTable(project.root / "in").delete("id = 0")
    report = completed(project)
    assert methods(report) == {"first": "incremental, stateless", "kept": "incremental, stateless"}
    expected = Counter((number, times[number].replace(tzinfo=UTC), times[number]) for number in (1, 2))
    assert project.rows("first") == project.rows("kept") == expected


@pytest.mark.parametrize(
    ("configuration", "updated", "deleted"), [(FEED, 2, 4), ({}, None, None)], ids=["feed", "files"]
)
def test_rows_read_of_delta_tables_are_told_where_the_log_knows_them(
    project: Project, configuration: dict[str, str], updated: int | None, deleted: int | None
) -> None:
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW kept AS SELECT id FROM delta.`in`;
        CREATE STREAMING TABLE seen AS SELECT id FROM STREAM(delta.`in`);
        """)  # fmt: skip
    project, path = project.by_spark, project.root / "in"
    deltalake.write_deltalake(path, numbers((1, "a"), (2, "a"), (3, "a")), configuration=configuration)
    report = completed(project)
    assert (rows_read(report, "kept"), rows_read(report, "seen")) == (3, 3)
    deltalake.write_deltalake(path, numbers((4, "a"), (5, "b")), mode="append")
    report = completed(project)
    assert (rows_read(report, "kept"), rows_read(report, "seen")) == (2, 2)
    deltalake.DeltaTable(path).update(predicate="id = 4", new_values={"s": "'c'"})
    assert rows_read(project.run(), "kept") == updated
    assert project.rows("kept").total() == 5
    deltalake.DeltaTable(path).delete("id <> 4")
    assert rows_read(project.run(), "kept") == deleted
    assert project.rows("kept") == Counter([(4,)])


def test_all_rows_of_a_delta_table_are_weighed_against_its_changes(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_plan, "LEAST", 1)
    project = project.by_spark
    project.write(
        "a.sql", "CREATE MATERIALIZED VIEW n AS SELECT s, count(*) AS n FROM delta.`in` GROUP BY s;"
    )
    deltalake.write_deltalake(project.root / "in", numbers((1, "a"), (2, "a")))
    completed(project)
    deltalake.write_deltalake(project.root / "in", numbers(*[(n, "b") for n in range(8)]), mode="append")
    updated = event(completed(project), "n").updated
    assert updated is not None
    assert updated.why.startswith("from all rows: 8 changes estimated at")


def test_changes_that_may_take_rows_back_are_computed_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project.by_spark
    project.write("a.sql", "CREATE MATERIALIZED VIEW kept AS SELECT id FROM delta.`in` WHERE id > 1;")
    path = project.root / "in"
    deltalake.write_deltalake(path, numbers((1, "a"), (2, "a"), (3, "a")))
    completed(project)
    plans: list[str] = []
    real = TableVersions.apply

    def apply(writer: TableVersions, rows: Any) -> int:
        plans.append(rows._jdf.queryExecution().executedPlan().toString())
        return real(writer, rows)

    monkeypatch.setattr(TableVersions, "apply", apply)
    before = project.spark.sparkContext._jsc.getPersistentRDDs().size()  # type: ignore[union-attr]
    deltalake.DeltaTable(path).delete("id = 2")
    completed(project)
    assert project.rows("kept") == Counter([(3,)])
    (plan,) = plans
    assert plan.count("InMemoryTableScan") >= 2
    assert project.spark.sparkContext._jsc.getPersistentRDDs().size() == before  # type: ignore[union-attr]


def test_a_run_opens_each_version_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("a.sql", """
        CREATE MATERIALIZED VIEW one AS SELECT id FROM delta.`in`;
        CREATE MATERIALIZED VIEW two AS SELECT id FROM delta.`in` WHERE id > 1;
        CREATE STREAMING TABLE seen AS SELECT id FROM STREAM(delta.`in`);
        """)  # fmt: skip
    deltalake.write_deltalake(project.root / "in", numbers((1, "a")))
    with planned(project.spec, project.spark) as (graph, _):
        tables = RunDeltaTables()
        real, opened = deltalake.DeltaTable, MagicMock()
        opened.side_effect = real
        monkeypatch.setattr(deltalake, "DeltaTable", opened)
        for leaf in (leaf for table in graph.tables for query in table.queries for leaf in query.leaves):
            assert isinstance(leaf, leaves.DeltaLeaf)
            read = DeltaInput(leaf, project.spark, tables)
            read.whole()
            read.rows_changed(None)
            read.changes(read.position())
    assert opened.call_count == 1


@pytest.mark.parametrize("case", ["commits", "another_table"])
def test_a_stream_whose_way_to_the_newest_version_is_lost(project: Project, case: str) -> None:
    path = project.root / "in"
    project.write("a.sql", "CREATE STREAMING TABLE seen AS SELECT id FROM STREAM(delta.`in`);")
    deltalake.write_deltalake(path, numbers((1, "a")))
    completed(project)
    if case == "another_table":
        path.rename(project.root / "old")
    for number in (2, 3):
        deltalake.write_deltalake(path, numbers((number, "a")), mode="append")
    if case == "commits":
        deltalake.DeltaTable(path).create_checkpoint()
        (path / f"_delta_log/{1:020d}.json").unlink()
    error = event(project.run(), "seen").error
    assert isinstance(error, PipelineError)
    assert_golden(GOLDEN / f"delta_stream_lost_{case}.txt", told(error, project.root))
    assert project.rows("seen") == Counter([(1,)])
