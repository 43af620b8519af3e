"""Changelogs as targets: a tick for each version that is published, with what it changed."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipelines.project import Project, event
from tests.pipelines.test_inputs import HEAD
from tests.pipelines.test_kills import Killed, killed_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.verify]

LATEST = """
@dp.table
def records():
    return spark.readStream.schema("id INT, v INT, at INT").json("in")

dp.create_streaming_table("latest"{})
dp.create_auto_cdc_flow("latest", "records", ["id"], "at", column_list=["id", "v"])
"""


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    return Project.new(tmp_path / "project", spark, a_py=HEAD + LATEST.format(', format="changelog"'))


def changes(project: Project) -> dict[int, Counter[Any]]:
    """Return the changes of each tick, as another reader of Parquet sees them."""
    import duckdb

    found: dict[int, Counter[Any]] = {}
    files = project.root / "storage/changelog/default/latest/tick=*/*.parquet"
    query = (
        f"SELECT tick, weight, * EXCLUDE (tick, weight) FROM read_parquet('{files}', hive_partitioning=true)"
    )
    for tick, weight, *row in duckdb.sql(query).fetchall():
        found.setdefault(tick, Counter())[tuple(row)] += weight
    return found


def add(project: Project, number: int, *rows: tuple[int, int]) -> None:
    project.add("in", number, [{"id": id_, "v": v, "at": number} for id_, v in rows])


def test_each_version_is_a_tick_of_what_it_changed(project: Project) -> None:
    add(project, 1, (1, 10), (2, 20))
    project.run()
    add(project, 2, (2, 21), (3, 30))
    project.run()
    assert not project.run().failed  # Nothing is new, and Spark is not started.
    add(project, 3, (1, 10))
    project.run()  # The row is the same.
    assert changes(project) == {1: {(1, 10): 1, (2, 20): 1}, 2: {(2, 20): -1, (2, 21): 1, (3, 30): 1}}
    assert project.rows("latest") == Counter([(1, 10), (2, 21), (3, 30)])


def test_what_was_not_delivered_comes_with_the_next_run(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(project, 1, (1, 10))
    project.run()
    with monkeypatch.context() as patch:
        for writer in ("save", "write_table"):
            patch.setattr(f"headrace.pipelines.deliveries.{writer}", no_space)
        add(project, 2, (1, 11))
        failed = event(project.run(), "latest")
        assert failed.state.value == "FAILED"
    assert project.rows("latest") == Counter([(1, 11)])
    add(project, 3, (2, 20))
    project.run()
    assert changes(project) == {1: {(1, 10): 1}, 2: {(1, 10): -1, (1, 11): 1}, 3: {(2, 20): 1}}


def no_space(*_: object) -> None:
    raise OSError("No space left on device")


@pytest.mark.parametrize("stride", [2, 3])
def test_killed_anywhere_it_adds_up_to_the_table(project: Project, stride: int) -> None:
    held: dict[int, int] = {}
    for number in range(1, 9):
        held |= {number % 3: number, 10 + number: number}
        add(project, number, (number % 3, number), (10 + number, number))
        with suppress(Killed), killed_before(stride * number + 9):
            project.run()
    project.run()
    total: Counter[Any] = Counter()
    for tick in changes(project).values():
        total.update(tick)
    assert {row: n for row, n in total.items() if n} == project.rows("latest") == Counter(held.items())


def test_it_begins_with_all_rows_that_are_there_and_again_with_other_columns(project: Project) -> None:
    project.write("a.py", HEAD + LATEST.format(""))
    add(project, 1, (1, 10))
    project.run()
    project.write("a.py", HEAD + LATEST.format(', format="changelog"'))
    add(project, 2, (2, 20))
    project.run()
    assert changes(project) == {1: {(1, 10): 1}, 2: {(2, 20): 1}}
    project.write(
        "a.py", HEAD + LATEST.format(', format="changelog"').replace('["id", "v"]', '["id", "v", "at"]')
    )
    project.run(full=["latest"])
    assert changes(project) == {3: {(1, 10, 1): 1, (2, 20, 2): 1}}
