"""`auto` makes a table from all rows where its changes are estimated to cost more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.pipelines import table_plan, table_update
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import Policy, TableName
from headrace.pipelines.table_plan import FACTOR, LEAST, MAX_ESTIMATED, Costs, Measured
from headrace.state.commit import read_checked, write_checked
from headrace.state.inspection import inspect
from tests.pipelines.project import Project, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MILLION = 1_000_000


def test_nothing_is_estimated_before_anything_was_measured() -> None:
    assert Costs().why_whole(MILLION, 10) == ""
    assert Costs().after(9.0, LEAST - 1, whole=True) == Costs().after(9.0, None, whole=True) == Costs()


def test_until_ticks_are_measured_a_change_costs_some_rows_of_the_whole() -> None:
    measured = Costs().after(12.0, MILLION, whole=True)
    assert measured.why_whole(int(MILLION / FACTOR), MILLION) == ""
    assert measured.why_whole(1_900_000, MILLION) == (
        "from all rows: 1,900,000 changes estimated at 46 s, all 1,000,000 rows at 12 s"
    )


def test_a_measured_tick_tells_what_changes_cost() -> None:
    measured = Costs(Measured(12.0, MILLION), Measured(1.0, 100_000))
    assert measured.why_whole(MILLION, MILLION) == ""
    assert measured.why_whole(MILLION, MILLION // 2) == (
        "from all rows: 1,000,000 changes estimated at 10 s, all 500,000 rows at 6.0 s"
    )


def test_what_does_not_grow_with_changes_is_not_multiplied() -> None:
    # 20 s of which most were the writing of the table, for few changes.
    measured = Costs(Measured(120.0, 10 * MILLION), Measured(20.0, 10_000))
    assert measured.why_whole(100_000, 10 * MILLION) == ""
    assert "estimated at 140 s" in measured.why_whole(5_010_000, 10 * MILLION)


def test_few_changes_are_never_more_than_the_whole() -> None:
    assert Costs(Measured(1.0, LEAST), Measured(900.0, LEAST)).why_whole(LEAST - 1, LEAST) == ""


def test_a_slow_update_from_changes_does_not_prevent_all_others() -> None:
    measured = Costs(Measured(12.0, MILLION), Measured(900.0, LEAST))
    for _ in range(MAX_ESTIMATED):
        assert measured.why_whole(LEAST, MILLION)
        kept = Costs.from_entry(measured.to_entry())
        measured = kept.after(12.0, MILLION, whole=True, estimated=True)
    assert measured.why_whole(LEAST, MILLION) == ""
    measured = measured.after(1.0, LEAST, whole=False)
    assert measured == Costs(Measured(12.0, MILLION), Measured(1.0, LEAST))
    # What was made from all rows for another reason does not count.
    again = Costs(Measured(12.0, MILLION), Measured(900.0, LEAST))
    for _ in range(MAX_ESTIMATED):
        again = again.after(12.0, MILLION, whole=True)
    assert again.why_whole(LEAST, MILLION)


def test_costs_are_kept_as_numbers() -> None:
    measured = Costs(Measured(1.5, 3), None, 2)
    assert Costs.from_entry(measured.to_entry()) == measured
    assert Costs.from_entry({}) == Costs()


SQL = """
CREATE MATERIALIZED VIEW base AS SELECT id FROM json.`in`;
CREATE MATERIALIZED VIEW parity AS SELECT id % 2 AS k, count(*) AS n FROM base GROUP BY id % 2;
CREATE MATERIALIZED VIEW odd AS SELECT id FROM base WHERE id % 2 = 1;
CREATE MATERIALIZED VIEW most AS SELECT max(n) AS n FROM parity;
"""


class Clock:
    """A clock by which each update takes `seconds`."""

    def __init__(self) -> None:
        self.now, self.seconds = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


def add(project: Project, number: int, ids: range) -> None:
    project.add("in", number, [{"id": id_} for id_ in ids])


@pytest.mark.verify
@pytest.mark.spark
def test_a_large_change_makes_a_table_from_all_rows(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(table_update, "perf_counter", clock)
    monkeypatch.setattr(table_plan, "LEAST", 5)
    project = Project.new(tmp_path / "project", spark, a_sql=SQL).by_spark
    add(project, 1, range(10))
    clock.seconds = 10
    project.run()
    add(project, 2, range(10, 16))
    clock.seconds = 20
    project.run()

    add(project, 3, range(16, 46))
    report = project.run()
    why = "from all rows: 30 changes estimated at 68 s, all 46 rows at 46 s"
    for table in ("parity", "odd"):
        updated = event(report, table).updated
        assert updated is not None
        assert updated.why == why
    assert project.rows("parity") == Counter([(0, 23), (1, 23)])
    assert project.rows("odd") == Counter((id_,) for id_ in range(1, 46, 2))
    entries = PipelineCatalog.last_entries(project.root / "storage")
    assert [entries[TableName("default", table)].costs.get("estimated") for table in ("parity", "base")] == [
        [1],
        None,
    ]
    following = event(report, "most").updated
    assert following is not None
    assert (following.rows_in, following.why) == (4, "")

    add(project, 4, range(46, 146))
    report = project.run(policy=Policy.INCREMENTAL)
    assert {each.updated.why for each in report.events.values() if each.updated} == {""}
    assert project.rows("parity") == Counter([(0, 73), (1, 73)])

    # A catalogue of a version that measured nothing.
    file = project.root / "storage/catalog/current/catalog.json"
    content = read_checked(file)
    for _, _, entry in content["tables"]:
        del entry["costs"]
    write_checked(file, content, durable=False)
    add(project, 5, range(146, 1146))
    report = project.run()
    assert {each.updated.why for each in report.events.values() if each.updated} == {""}
    assert project.rows("parity") == Counter([(0, 573), (1, 573)])


@pytest.mark.verify
@pytest.mark.spark
def test_state_of_many_rows_is_in_more_shards(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_update, "SHARD_ROWS", 3)
    project = Project.new(tmp_path / "project", spark, a_sql=SQL)
    for number, ids in enumerate((range(10), range(10, 40))):
        add(project, number, ids)
        project.run()
        state = inspect(project.root / "storage/state/default/parity/1/checkpoint")
        assert state.shards == 4
        assert project.rows("parity") == Counter([(0, ids.stop // 2), (1, ids.stop // 2)])
