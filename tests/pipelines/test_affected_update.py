"""Tables without an incremental form, run by run: recomputed for the keys of changed rows, or for all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import HeadraceError
from headrace.pipelines import affected_update
from headrace.pipelines.affected_update import AffectedRows
from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.definitions import Place, Policy
from headrace.pipelines.event_log import EventLog
from headrace.pipelines.maintenance import explain_pipeline
from headrace.pipelines.planned_project import planned
from headrace.pipelines.table_versions import TableVersions
from tests.pipelines.project import Project, changed, dies, event, methods, rows_read, states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.materialized_view
def base():
    return SparkSession.active().read.schema("k INT, v INT").json("in")

@dp.materialized_view
def kinds():
    return SparkSession.active().read.schema("k INT, n STRING").json("kinds")
"""
SQL = """
CREATE MATERIALIZED VIEW groups AS
  SELECT b.k, max(n) AS n, bigint(theta_sketch_estimate(theta_sketch_agg(v))) AS v
  FROM base b LEFT JOIN kinds ON b.k = kinds.k GROUP BY b.k;
CREATE MATERIALIZED VIEW places AS
  SELECT *, bigint(theta_sketch_estimate(theta_sketch_agg(v) OVER (PARTITION BY k))) AS n FROM base;
CREATE MATERIALIZED VIEW sizes AS SELECT v, count(*) AS n FROM groups GROUP BY v;
"""
Row = tuple[int | None, int]
TABLES = ("groups", "places", "sizes")


def as_json(rows: Iterable[tuple[Any, Any]], names: tuple[str, str] = ("k", "v")) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in rows]


def expected(rows: Iterable[Row], kinds: Iterable[tuple[int, str]]) -> dict[str, Counter[Any]]:
    distinct: dict[int | None, set[int]] = {}
    for key, value in (found := list(rows)):
        distinct.setdefault(key, set()).add(value)
    names = dict(sorted(kinds))
    return {
        "groups": Counter(
            (key, None if key is None else names.get(key), len(values)) for key, values in distinct.items()
        ),
        "places": Counter((key, value, len(distinct[key])) for key, value in found),
        "sizes": Counter(Counter(map(len, distinct.values())).items()),
    }


def published(project: Project) -> dict[str, Counter[Any]]:
    return {name: project.rows(name) for name in TABLES}


@pytest.fixture
def project(tmp_path: Path, spark: SparkSession) -> Project:
    made = Project.new(tmp_path / "project", spark, a_py=PYTHON, b_sql=SQL)
    made.add("in", 1, as_json((None if key == 9 else key, key + at) for key in range(10) for at in range(3)))
    made.add("kinds", 1, as_json([(3, "a"), (4, "b")], ("k", "n")))
    return made


ROWS: list[Row] = [(None if key == 9 else key, key + at) for key in range(10) for at in range(3)]
KINDS = [(3, "a"), (4, "b")]


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.verify)])
def test_the_rows_of_changed_keys_are_recomputed_and_their_readers_get_the_difference(
    project: Project, monkeypatch: pytest.MonkeyPatch, few: bool
) -> None:
    if not few:
        monkeypatch.setattr(affected_update, "FEW", 0)  # As if the keys were many: Spark compares the rows.
    first = project.run()
    assert methods(first)["groups"] == methods(first)["places"] == "recompute, affected keys"
    assert published(project) == expected(ROWS, KINDS)
    monkeypatch.setattr(TableVersions, "replace", dies)  # From here on nothing is made from all rows.
    more: list[Row] = [(3, 77), (None, 78), (11, 1)]
    project.add("in", 2, as_json(more))
    report = project.run()
    assert published(project) == expected(ROWS + more, KINDS)
    assert {name: rows_read(report, name) for name in TABLES} == {"groups": 3, "places": 3, "sizes": 5}
    project.add("in", 2, as_json([(4, 77)]))  # Rows go, one of them to another key, and a key with them.
    report = project.run()
    assert published(project) == expected([*ROWS, (4, 77)], KINDS)
    project.add("kinds", 1, as_json([(3, "z"), (4, "b")], ("k", "n")))
    report = project.run()
    assert published(project) == expected([*ROWS, (4, 77)], [(3, "z"), (4, "b")])
    assert changed(report) == {"kinds", "groups"}
    (record,) = EventLog(project.spec.storage).records(table="spark_catalog.default.groups", last=1)
    assert (record.method, record.from_all_rows) == ("recompute, affected keys", False)
    assert (record.rows_read, record.rows_inserted, record.rows_deleted, record.rows) == (2, 1, 1, 10)


@pytest.mark.verify
@pytest.mark.seeds(4)
def test_random_changes_of_files_leave_what_all_rows_give(
    tmp_path: Path, spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2 == 0:
        monkeypatch.setattr(affected_update, "FEW", 0)
    draw, project = random.Random(seed), Project.new(tmp_path / "project", spark, a_py=PYTHON, b_sql=SQL)
    files: dict[int, list[Row]] = {}
    kinds = [(key, draw.choice("ab")) for key in range(8)]

    def some(count: int) -> list[Row]:
        return [(draw.choice([None, *range(20)]), draw.randrange(50)) for _ in range(count)]

    for run in range(5):
        files[run] = some(60 if run == 0 else 3)
        if run == 2:
            files[0] = [*files[0][4:], *some(1)]
        if run == 3:
            kinds[draw.randrange(8)] = (draw.randrange(8), "c")
            del files[draw.randrange(1, 3)]
        for number in range(5):
            if number in files:
                project.add("in", number, as_json(files[number]))
            else:
                (project.root / f"in/{number}.json").unlink(missing_ok=True)
        project.add("kinds", 1, as_json(kinds, ("k", "n")))
        report = project.run()
        assert set(states(report).values()) == {"COMPLETED"}
        greatest = {key: max(n for k, n in kinds if k == key) for key, _ in kinds}
        assert published(project) == expected(
            [row for rows in files.values() for row in rows], greatest.items()
        )


FIXED = """
CREATE MATERIALIZED VIEW groups AS
  SELECT v, max(n) AS n, bigint(theta_sketch_estimate(theta_sketch_agg(b.k))) AS t
  FROM base b JOIN kinds ON b.k = kinds.k GROUP BY v;
"""


def why(project: Project, **keywords: Any) -> tuple[bool, str]:
    done = event(project.run(**keywords), "groups")
    assert done.updated is not None, done.error
    updated = done.updated
    return updated.whole, updated.why


def test_all_rows_are_recomputed_where_the_key_does_not_help(project: Project) -> None:
    project.write("b.sql", FIXED)
    assert why(project) == (True, "from all rows: first run")
    project.add("kinds", 2, as_json([(5, "c")], ("k", "n")))
    fixed = "from all rows: table spark_catalog.default.kinds has changed, which has no v"
    assert why(project) == (True, fixed)
    assert project.rows("groups") == Counter(
        {(3, "a", 1): 1, (4, "b", 2): 1, (5, "c", 3): 1, (6, "c", 2): 1, (7, "c", 1): 1}
    )
    project.add("in", 2, as_json([(3, at) for at in range(3, 8)]))
    assert why(project) == (True, "from all rows: 5 of 5 rows have the keys of changed rows")
    project.add("in", 3, as_json([(4, 3)]))
    assert why(project) == (
        False,
        "the query aggregates by ThetaSketchAgg, which has no incremental form yet",
    )
    assert project.rows("groups")[(3, "b", 2)] == 1
    assert why(project) == (
        False,
        "the query aggregates by ThetaSketchAgg, which has no incremental form yet",
    )
    assert why(project, full=["groups"]) == (True, "from all rows: --full-refresh")
    project.write("b.sql", FIXED.replace("max(n)", "min(n)"))
    whole, reason = why(project)
    assert whole
    assert "its query has changed" in reason
    assert project.rows("groups")[(3, "a", 2)] == 1
    assert why(project, policy=Policy.FULL)[0] is False  # Nothing has changed.


def test_without_spark_only_a_table_whose_inputs_are_as_they_were_is_up_to_date(project: Project) -> None:
    project.run()
    assert set(states(project.run(place=Place.HERE)).values()) == {"COMPLETED"}
    project.add("in", 2, as_json([(3, 77)]))
    report = project.run(place=Place.HERE)
    error = event(report, "groups").error
    assert isinstance(error, HeadraceError)
    assert error.code == "NeedsSpark" or "Spark" in error.what
    assert states(report) == {
        "base": "COMPLETED",
        "kinds": "COMPLETED",
        "groups": "FAILED",
        "places": "FAILED",
        "sizes": "SKIPPED",
    }
    project.run()
    assert published(project) == expected([*ROWS, (3, 77)], KINDS)


@pytest.mark.verify
def test_a_run_that_dies_at_any_step_leaves_its_keys_to_the_next_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.run()
    before, more = published(project), list[Row]()
    for number, (owner, step) in enumerate(
        [
            (AffectedRows, "answer"),
            (TableVersions, "apply_here"),
            (TableVersions, "_take_over"),
            (PipelineCatalog, "commit"),
        ]
    ):
        more.append((number % 2 or None, 90 + number))
        project.add("in", 2 + number, as_json(more[-1:]))
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(owner, step, dies)
            project.run()
        assert published(project) == before
    project.run()
    assert published(project) == expected(ROWS + more, KINDS)


@pytest.mark.verify
def test_a_table_that_has_lost_rows_is_made_from_all(project: Project) -> None:
    project.run()
    next(project.path("groups").glob("*.parquet")).unlink()
    project.add("in", 2, as_json([(3, 77)]))
    updated = event(project.run(), "groups").updated
    assert updated is not None
    assert updated.whole
    assert "has lost rows" in updated.why
    assert published(project) == expected([*ROWS, (3, 77)], KINDS)


def test_explain_names_the_method_the_key_and_what_lacks_it(project: Project) -> None:
    project.write("c.sql", FIXED.replace("groups", "fixed"))
    with planned(project.spec, project.spark) as (graph, plans):
        text = explain_pipeline(graph, plans, project.spec.storage)
    (fixed,) = (block for block in text.split("\n\n") if "default.fixed" in block.partition("\n")[0])
    assert fixed.splitlines()[1:5] == [
        "  recomputed by Spark for the keys of changed rows; what follows gets the difference",
        "  key: v",
        "  from all rows if these change: table spark_catalog.default.kinds",
        "  why: the query aggregates by ThetaSketchAgg, which has no incremental form yet",
    ]
