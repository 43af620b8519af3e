"""Delta tables as targets and sinks: they hold what is published, and their feeds tell what changed of it."""

from __future__ import annotations

import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from headrace.pipelines import catalog
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.deliveries import DeltaPublisher, _is_comparable
from headrace.pipelines.errors import BadDefinition
from headrace.tables.delta_table import DeltaLakeTable
from tests.pipelines.project import Project, event, states
from tests.pipelines.test_delta import completed
from tests.pipelines.test_inputs import HEAD, ids
from tests.pipelines.test_kills import PYTHON, Killed, killed_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pa = pytest.importorskip("pyarrow")
pyarrow_parquet = pytest.importorskip("pyarrow.parquet")
deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed")

pytestmark = [pytest.mark.spark, pytest.mark.verify]


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    return Project.new(tmp_path / "project", spark)


def opened(project: Project, name: str) -> Any:
    return deltalake.DeltaTable(project.root / "storage/delta/default" / name)


def plain(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Count rows, those with NaN too."""
    return Counter(tuple("NaN" if each != each else each for each in row) for row in rows)


def delivered(project: Project, name: str) -> Counter[tuple[Any, ...]]:
    table = opened(project, name)
    names = [field.name for field in table.schema().fields]
    return plain(tuple(row[each] for each in names) for row in pa.table(table.scan()).to_pylist())


def feed(
    project: Project, name: str, version: int
) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    """Return what a version inserts, and what it deletes."""
    names = [field.name for field in opened(project, name).schema().fields]
    rows = pa.table(opened(project, name).load_cdf(version, version)).to_pylist()

    def of(kind: str) -> Counter[tuple[Any, ...]]:
        return plain(tuple(row[each] for each in names) for row in rows if row["_change_type"] == kind)

    assert {row["_change_type"] for row in rows} <= {"insert", "delete"}
    return of("insert"), of("delete")


def assert_delivered(
    project: Project, name: str, before: Counter[tuple[Any, ...]]
) -> Counter[tuple[Any, ...]]:
    """Compare with what is published, and the newest version's feed with what changed of it."""
    now = plain(project.rows(name).elements())
    assert delivered(project, name) == now
    inserted, deleted = feed(project, name, opened(project, name).version())
    changed = inserted.copy()
    changed.subtract(deleted)
    expected = now.copy()
    expected.subtract(before)
    assert {row: n for row, n in changed.items() if n} == {row: n for row, n in expected.items() if n}
    assert not before or set(inserted) | set(deleted) <= {row for row, n in expected.items() if n}
    return now


def rows(*values: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(("id", "x", "zip", "a b"), each, strict=True)) for each in values]


# Of partitions whose folders are escaped, `deltalake` does not find the feed.
@pytest.mark.parametrize(
    ("partitioned", "zip_code"), [([], "é/1"), (["zip"], "01")], ids=["flat", "partitioned"]
)
def test_a_delta_target_holds_what_is_published(
    project: Project, partitioned: list[str], zip_code: str
) -> None:
    project.write("a.py", HEAD + f"""
@dp.materialized_view(format="delta", partition_cols={partitioned})
def kept():
    read = spark.read.schema("id LONG, x STRING, zip STRING, `a b` TIMESTAMP").json("in")
    return read.withColumn("x", F.col("x").cast("double"))
""")  # fmt: skip
    at = "2026-01-01T00:00:00.123456Z"
    project.add(
        "in",
        1,
        rows((1, "1.5", zip_code, at), (2, "NaN", "0", None), (2, "NaN", "0", None), (3, "-0.0", "", at)),
    )
    completed(project)
    before = assert_delivered(project, "kept", Counter())
    assert opened(project, "kept").metadata().partition_columns == partitioned
    steps: list[Any] = [
        lambda: project.add("in", 2, rows((2, "NaN", "0", None), (4, None, None, None), (3, "0.0", "", at))),
        lambda: project.add("in", 3, rows((4, None, None, None), (5, "2.5", "0", None))),
        (project.root / "in/2.json").unlink,  # Copies of rows go, and others stay.
        lambda: project.add("in", 1, rows((1, "1.5", zip_code, at), (6, "7.0", zip_code, at))),
    ]
    for step in steps:
        step()
        completed(project)
        before = assert_delivered(project, "kept", before)
    version = opened(project, "kept").version()
    completed(project)
    assert opened(project, "kept").version() == version == len(steps)
    for file in (project.root / "in").iterdir():
        file.unlink()
    completed(project)
    assert feed(project, "kept", len(steps) + 1) == (Counter(), before)
    assert not delivered(project, "kept")


def test_a_run_that_dies_around_a_delivery(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(
        "a.sql",
        "CREATE MATERIALIZED VIEW kept USING delta AS SELECT id, count(*) AS n FROM json.`in` GROUP BY id;",
    )
    project.add("in", 1, ids(1, 2))
    completed(project)
    before = assert_delivered(project, "kept", Counter())
    commit, append = PipelineCatalog.commit, DeltaLakeTable.append

    def dies_after(real: Any) -> Any:
        def done(*arguments: Any) -> None:
            real(*arguments)
            raise KeyboardInterrupt

        return done

    for at, (kind, name, real) in enumerate(
        [(PipelineCatalog, "commit", commit), (DeltaLakeTable, "append", append)], 2
    ):
        with monkeypatch.context() as patch:
            patch.setattr(kind, name, dies_after(real))
            project.add("in", at, ids(at * 10))
            with pytest.raises(KeyboardInterrupt):
                project.run()
        published = plain(project.rows("kept").elements())
        assert published != before
        assert (delivered(project, "kept") == before) is (kind is PipelineCatalog)
        completed(project)
        before = assert_delivered(project, "kept", before)
    assert opened(project, "kept").version() == 2

    # Two versions are missed: the next delivery is the difference.
    with monkeypatch.context() as patch:
        patch.setattr(DeltaPublisher, "publish", lambda *_: (_ for _ in ()).throw(OSError("no space left")))
        for at in (4, 5):
            project.add("in", at, ids(1, at * 10))
            report = project.run()
            assert states(report) == {"kept": "FAILED"}
            assert "no space left" in str(event(report, "kept").error)
    completed(project)
    assert_delivered(project, "kept", before)
    assert opened(project, "kept").version() == 3


# What is cut off in the middle leaves iterators open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.seeds(4, verify_from=1)
def test_a_run_that_ends_before_any_file_operation(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    draw = random.Random(seed)
    python = PYTHON.replace("dp.materialized_view", "dp.materialized_view(format='delta')")
    project = Project.new(tmp_path / "project", spark, a_py=python)
    with killed_before(1 << 60) as operations:
        project.add("in", 0, [{"id": 1, "v": 1, "at": 0}])
        project.run()
    before = plain(project.rows("positive").elements())
    for number in range(1, 4):
        records = [{"id": draw.randrange(4), "v": draw.randrange(-3, 9), "at": number} for _ in range(5)]
        project.add("in", number, records)
        most = operations()
        with killed_before(draw.randrange(most // 2, most)), suppress(Killed):
            project.run()
        assert delivered(project, "positive") in (before, plain(project.rows("positive").elements()))
        completed(project)
        before = plain(project.rows("positive").elements())
        assert delivered(project, "positive") == before


def test_columns_and_partitions_of_a_delta_target_change(project: Project) -> None:
    text = HEAD + """
@dp.materialized_view(format="delta", partition_cols={})
def kept():
    return spark.read.schema("id LONG, k INT").json("in").select({})
"""  # fmt: skip
    project.add("in", 1, [{"id": 1, "k": 2}])
    for partitions, columns, expected in (
        ([], "'id'", [(1,)]),
        ([], "'id', 'k'", [(1, 2)]),
        (["k"], "'id', 'k'", [(1, 2)]),
        ([], "'id', 'k'", [(1, 2)]),
        ([], "'id', F.array('k').alias('k')", [(1, [2])]),
    ):
        project.write("a.py", text.format(partitions, columns))
        completed(project)
        found = [tuple(row.values()) for row in pa.table(opened(project, "kept").scan()).to_pylist()]
        assert found == expected
        assert opened(project, "kept").metadata().partition_columns == partitions
    # Lists are not compared: the rows are replaced.
    project.add("in", 1, [{"id": 1, "k": 3}])
    completed(project)
    assert [row["k"] for row in pa.table(opened(project, "kept").scan()).to_pylist()] == [[3]]


def test_only_columns_that_deltalake_compares_as_spark_does_are_merged(spark: SparkSession) -> None:
    def comparable(columns: str) -> bool:
        schema = StructType.fromDDL(columns)
        assert isinstance(schema, StructType)
        return _is_comparable(schema)

    assert comparable("id INT, geo STRING, x DOUBLE, map BINARY, at TIMESTAMP, price DECIMAL(9, 2)")
    assert not any(map(comparable, ("a ARRAY<INT>", "a MAP<INT, INT>", "a STRUCT<b: INT>", "a VARIANT")))
    assert not comparable("a STRING COLLATE UTF8_LCASE")


def test_a_catalogue_made_anew_has_other_versions(project: Project) -> None:
    project.write("a.sql", "CREATE MATERIALIZED VIEW kept USING delta AS SELECT id FROM json.`in`;")
    project.add("in", 1, ids(1))
    completed(project)
    for folder in ("catalog", "tables", "changes", "state"):
        if (project.root / "storage" / folder).exists():
            (project.root / "storage" / folder).rename(project.root / f"old-{folder}")
    project.add("in", 1, ids(2, 3))
    completed(project)
    assert delivered(project, "kept") == Counter([(2,), (3,)])


def test_streaming_tables_are_delivered(project: Project) -> None:
    project.write("a.py", HEAD + """
@dp.table(format="delta", partition_cols=["k"])
def seen():
    return spark.readStream.schema("id LONG, k INT").json("in")

dp.create_streaming_table("latest", format="delta")
dp.create_auto_cdc_flow("latest", "seen", ["id"], "k")
""")  # fmt: skip
    before: dict[str, Counter[tuple[Any, ...]]] = {"seen": Counter(), "latest": Counter()}
    for number in range(3):
        project.add("in", number, [{"id": id, "k": number + id % 2} for id in range(number, 4)])
        completed(project)
        before = {name: assert_delivered(project, name, rows) for name, rows in before.items()}
    assert before["latest"] == Counter([(0, 0), (1, 2), (2, 2), (3, 3)])
    # What is delivered needs no changes kept.
    completed(project)
    assert not [*(project.root / "storage/changes/default").glob("latest/*")]


def test_a_delta_sink_gets_each_row_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write("a.py", HEAD + """
dp.create_sink("out", "delta", {"path": "out"})

@dp.append_flow(target="out")
def one():
    return spark.readStream.schema("id LONG, s STRING").json("in")
""")  # fmt: skip
    project.add("in", 1, [{"id": 1, "s": "a"}])
    completed(project)
    project.add("in", 2, [{"id": 2}])
    real = DeltaPublisher.append

    def append(*arguments: Any) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(DeltaPublisher, "append", append)
        with pytest.raises(KeyboardInterrupt):
            project.run()
    completed(project)
    project.add("in", 3, [{"id": 3, "s": "c"}])
    completed(project)
    found = pa.table(deltalake.DeltaTable(project.root / "out").scan()).to_pylist()
    assert Counter(tuple(row.values()) for row in found) == Counter([(1, "a"), (2, None), (3, "c")])


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_a_sink_loses_no_rows_when_the_storage_is_restored_from_a_backup(project: Project, form: str) -> None:
    project.write("a.py", HEAD + f"""
dp.create_sink("out", "{form}", {{"path": "out"}})

@dp.append_flow(target="out")
def one():
    return spark.readStream.schema("id LONG").json("in")
""")  # fmt: skip
    storage, backup = project.root / "storage", project.root / "backup"
    project.add("in", 1, ids(1))
    completed(project)
    shutil.copytree(storage, backup, symlinks=True)
    project.add("in", 2, ids(2))
    completed(project)
    shutil.rmtree(storage)
    backup.rename(storage)
    project.add("in", 3, ids(3))
    completed(project)
    completed(project)
    out = project.root / "out"
    table = deltalake.DeltaTable(out).scan() if form == "delta" else pyarrow_parquet.read_table(out)
    # What came after the backup comes again.
    assert Counter(pa.table(table)["id"].to_pylist()) == Counter({1: 1, 2: 2, 3: 1})


def test_the_id_of_a_catalogue_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    with PipelineCatalog.open(tmp_path, None) as opened:
        monkeypatch.setattr(catalog, "sync_folder", synced.append)
        assert opened.identity == opened.identity
    assert synced == [tmp_path / "catalog"]


def test_the_package_of_delta_tables_is_missing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    project.write("a.sql", "CREATE MATERIALIZED VIEW kept USING delta AS SELECT 1 AS x;")
    with pytest.raises(BadDefinition) as error:
        project.run()
    assert error.value.where
    assert "pip install 'headrace[delta]'" in error.value.fix
