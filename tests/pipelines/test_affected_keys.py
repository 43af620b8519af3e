"""Keys of answers: which they are for each operator, and that only rows with affected keys change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from headrace.pipelines.affected_keys import KeyedPlan, keyed_plan
from headrace.pipelines.affected_update import AffectedRows
from headrace.pipelines.definitions import TableName
from headrace.pipelines.graph import AnalysedQuery, Graph
from headrace.pipelines.leaves import TableLeaf, with_leaves
from headrace.pipelines.planned_project import planned
from headrace.pipelines.table_plan import Method, TablePlan
from headrace.pipelines.weighted_rows import difference
from tests.pipelines.project import Project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.pipelines.run_snapshot import RunSnapshot

pytestmark = pytest.mark.spark

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F
import pandas as pd

spark = SparkSession.active()

@dp.materialized_view
def base():
    return spark.read.schema("k INT, g INT, v INT, x DOUBLE, s STRING").json("in")

@dp.materialized_view
def other():
    return spark.read.schema("k INT, g INT, n STRING").json("other")

@F.pandas_udf("double")
def middle(v: pd.Series) -> float:
    return v.median()

@dp.materialized_view
def python_window():
    return spark.table("base").select("*", middle("v").over(Window.partitionBy("k")).alias("m"))
"""
SKETCH = "theta_sketch_estimate(theta_sketch_agg(v)) AS t"
PARSED = "from_csv(s, 'a INT').a AS a"
OVER = "theta_sketch_estimate(theta_sketch_agg(v) OVER (PARTITION BY {})) AS t"

KEYED = {
    "groups": ("k", f"SELECT k, {SKETCH} FROM base GROUP BY k"),
    "groups_by_two": ("h, k", f"SELECT g AS h, k, {SKETCH} FROM base GROUP BY k, g"),
    "groups_by_expression": ("r", f"SELECT k % 3 AS r, {SKETCH} FROM base GROUP BY k % 3"),
    "function_of_groups": ("r", f"SELECT -k AS r, {SKETCH} FROM base GROUP BY k"),
    "having": ("k", f"SELECT k, {SKETCH} FROM base GROUP BY k HAVING count(*) > 1 ORDER BY k"),
    "floats": ("x", f"SELECT x, {SKETCH} FROM base GROUP BY x"),
    "grouping_sets": ("k", f"SELECT k, g, {SKETCH} FROM base GROUP BY GROUPING SETS ((k, g), (k))"),
    "pivot": (
        "k",
        """SELECT * FROM (SELECT k, g, v FROM base)
        PIVOT (theta_sketch_estimate(theta_sketch_agg(v)) FOR g IN (0, 1))""",
    ),
    "window": ("k, g", f"SELECT *, {OVER.format('k, g')} FROM base"),
    "windows": ("k", f"SELECT *, {OVER.format('k')}, sum(v) OVER (PARTITION BY k, g) AS u FROM base"),
    "best_of_each": (
        "k",
        f"""SELECT * FROM (SELECT *, {OVER.format("k")},
        row_number() OVER (PARTITION BY k, g ORDER BY v, s) AS r FROM base) WHERE r < 3""",
    ),
    "distinct": ("k, a", f"SELECT DISTINCT k, {PARSED} FROM base"),
    "union": (
        "k",
        f"SELECT k, {SKETCH} FROM base GROUP BY k UNION ALL SELECT g, {SKETCH} FROM base GROUP BY g",
    ),
    "except_all": ("k", f"SELECT k, {PARSED} FROM base EXCEPT ALL SELECT g, 1 FROM other"),
    "intersect": ("k, a", f"SELECT k, {PARSED} FROM base INTERSECT SELECT k, g FROM other"),
    "join": ("k", f"SELECT b.k, n, {SKETCH} FROM base b JOIN other o ON b.k = o.k GROUP BY b.k, n"),
    "join_of_nulls": (
        "k",
        f"SELECT o.k, {SKETCH} FROM base b JOIN other o ON b.k <=> o.k AND b.g < o.g GROUP BY o.k",
    ),
    "left_join": ("k", f"SELECT b.k, n, {SKETCH} FROM base b LEFT JOIN other o ON b.k = o.k GROUP BY b.k, n"),
    "right_join": ("k", f"SELECT o.k, {SKETCH} FROM base b RIGHT JOIN other o ON b.k = o.k GROUP BY o.k"),
    "full_join": (
        "k",
        f"SELECT k, n, t FROM (SELECT k, {SKETCH} FROM base GROUP BY k) FULL JOIN other USING (k)",
    ),
    "semi_join": ("k", f"SELECT k, {SKETCH} FROM base LEFT SEMI JOIN other USING (k) GROUP BY k"),
    "anti_join": ("k", f"SELECT k, {SKETCH} FROM base LEFT ANTI JOIN other USING (k) GROUP BY k"),
    "self_join": (
        "k",
        f"SELECT a.k, {SKETCH} FROM base b JOIN (SELECT k, g FROM base) a ON a.k = b.g GROUP BY a.k",
    ),
    "common_table": (
        "k",
        f"""WITH a AS (SELECT k, {SKETCH} FROM base GROUP BY k)
        SELECT a.k, a.t, b.t AS u FROM a JOIN a b ON a.k = b.k""",
    ),
    "explode": (
        "k",
        f"SELECT k, e, {SKETCH} FROM base LATERAL VIEW explode(array(1, g)) AS e GROUP BY k, e",
    ),
    "python_window": ("k", ""),
}
"""Queries without an incremental form, and their keys, to which all their inputs are traced."""

FIXED = {
    "dimension": ("g", f"SELECT b.g, n, {SKETCH} FROM base b LEFT JOIN other o ON b.k = o.k GROUP BY b.g, n"),
    "of_the_greatest": (
        "k",
        f"SELECT b.k, {SKETCH} FROM base b CROSS JOIN (SELECT max(g) AS m FROM other) GROUP BY b.k",
    ),
    "outer": ("k", f"SELECT b.k, {SKETCH} FROM base b LEFT JOIN other o ON b.g = o.k GROUP BY b.k, o.k"),
}
"""Queries whose key is one of `base` only."""

WITHOUT = {
    "all_rows": f"SELECT {SKETCH} FROM base",
    "no_key": f"SELECT {SKETCH} FROM base GROUP BY k",
    "cube": f"SELECT k, g, {SKETCH} FROM base GROUP BY CUBE (k, g)",
    "first_of_all": f"SELECT k, {SKETCH} FROM (SELECT * FROM base ORDER BY v, s LIMIT 5) GROUP BY k",
    "window_of_all": f"SELECT k, sum(v) OVER (ORDER BY v) AS u, {OVER.format('k')} FROM base",
    "texts_of_floats": f"SELECT string(x) AS f, {SKETCH} FROM base GROUP BY string(x)",
    "texts_of_groups": f"SELECT string(x) AS f, t FROM (SELECT x, {SKETCH} FROM base GROUP BY x)",
    "null_supplied": f"SELECT o.k, {SKETCH} FROM base b LEFT JOIN other o ON b.k = o.k GROUP BY o.k",
    "inputs_by_two_keys": (
        f"SELECT a.k, {SKETCH} FROM base b JOIN (SELECT k, g FROM base) a ON a.g = b.g GROUP BY a.k"
    ),
}
"""Queries without a key."""

SQL = {name: query for name, (_, query) in {**KEYED, **FIXED}.items() if query} | WITHOUT


@dataclass
class Rows:
    """Rows of the tables, from which some go and to which others come."""

    draw: random.Random
    held: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict[str, list[tuple[Any, ...]]])

    def change(self, table: str, count: int) -> None:
        held = self.held.setdefault(table, [])
        for _ in range(min(len(held), count // 2)):
            held.pop(self.draw.randrange(len(held)))
        held += [self._row(table) for _ in range(count)]

    def _row(self, table: str) -> tuple[Any, ...]:
        pick = self.draw.choice
        key, group = pick([None, *range(6)]), pick([None, *range(4)])
        if table == "other":
            return key, group, pick([None, "a", "b"])
        return (
            key,
            group,
            pick([None, *range(9)]),
            pick([None, 0.0, -0.0, float("nan"), 1.5]),
            pick(["1", "2", ""]),
        )


@dataclass
class Shapes:
    """The queries as they are planned."""

    spark: SparkSession
    graph: Graph
    plans: Mapping[TableName, TablePlan]

    def plan(self, name: str) -> TablePlan:
        return self.plans[TableName("default", name)]

    def query(self, name: str) -> AnalysedQuery:
        (query,) = self.plan(name).table.queries
        return query

    def keyed(self, name: str) -> KeyedPlan:
        found = keyed_plan(self.plan(name).table, self.query(name), self.graph.names, self.spark)
        assert found is not None
        return found

    def frame(self, table: str, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
        schema = self.graph.table(TableName("default", table)).schema
        return self.spark.createDataFrame(list(rows), schema)

    def frames(self, held: Mapping[str, Iterable[tuple[Any, ...]]]) -> dict[str, DataFrame]:
        """Return rows of tables by the leaves that read them."""
        return {TableName("default", name).keys[0]: self.frame(name, rows) for name, rows in held.items()}


@contextmanager
def shapes_in(folder: Path, spark: SparkSession, names: Iterable[str]) -> Iterator[Shapes]:
    sql = "".join(f"CREATE MATERIALIZED VIEW {name} AS {SQL[name]};\n" for name in names if name in SQL)
    project = Project.new(folder / "project", spark, a_py=PYTHON, b_sql=sql)
    project.add("in", 1, [])
    project.add("other", 1, [])
    with planned(project.spec, spark) as (graph, plans):
        session = spark.getActiveSession()
        assert session is not None
        session.conf.set("spark.sql.shuffle.partitions", 1)
        yield Shapes(session, graph, plans)


@dataclass
class Inputs:
    """What a run gives its tables to read."""

    spark: SparkSession
    before: Mapping[str, DataFrame]
    now: Mapping[str, DataFrame]

    def input(self, leaf: TableLeaf) -> Any:
        before, now = self.before[leaf.key], self.now[leaf.key]

        class Input:
            def whole(self) -> DataFrame:
                return now

            def changes(self, _: object) -> DataFrame:
                return difference(before, now)

        return Input()


@dataclass
class Answers:
    """The answers of a query before and after a change, whole and by keys."""

    shapes: Shapes
    name: str
    before: dict[str, DataFrame]
    now: dict[str, DataFrame]

    def whole(self, rows: dict[str, DataFrame]) -> DataFrame:
        query = self.shapes.query(self.name)
        given = {leaf.exact: (lambda found=rows[leaf.key]: found) for leaf in query.leaves}
        return with_leaves(query.plan, given, self.shapes.graph.names, self.shapes.spark)

    def check(self) -> None:
        inputs = cast("RunSnapshot", Inputs(self.shapes.spark, self.before, self.now))
        affected = AffectedRows(self.shapes.keyed(self.name), inputs, {})
        keys = affected.keys().persist()
        of_keys = affected.answer(keys)
        before = self.whole(self.before)
        kept = before.exceptAll(affected.of_keys(before, keys))
        assert bag(kept.unionByName(of_keys)) == bag(self.whole(self.now))
        keys.unpersist()


def bag(rows: DataFrame) -> Counter[tuple[str, ...]]:
    """Return rows as texts, in which one NaN is as another. Differences have 0.0 for -0.0."""
    return Counter(
        tuple(str(0.0 if value == 0.0 and isinstance(value, float) else value) for value in row)
        for row in rows.collect()
    )


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.verify) for part in (1, 2, 3))])
def test_each_operator_hands_on_keys_that_it_keeps_apart(
    tmp_path: Path, spark: SparkSession, part: int
) -> None:
    names = [*KEYED, *FIXED, *WITHOUT][part::4]
    with shapes_in(tmp_path, spark, names) as shapes:
        for name in names:
            plan = shapes.plan(name)
            if name in WITHOUT:
                assert (name, plan.method, plan.keys) == (name, Method.RECOMPUTE, None)
                continue
            key, _ = {**KEYED, **FIXED}[name]
            assert plan.keys is not None, name
            assert (name, ", ".join(plan.keys.columns)) == (name, key)
            assert (name, len(plan.keys.fixed)) == (name, int(name in FIXED))
            assert (name, plan.method) == (name, Method.AFFECTED)


@pytest.mark.verify
@pytest.mark.seeds(3)
def test_rows_without_the_keys_of_changed_rows_stay_and_the_others_are_those_of_all_rows(
    tmp_path: Path, spark: SparkSession, seed: int
) -> None:
    check_answers(tmp_path, spark, seed, {**KEYED, **FIXED})


def test_only_rows_with_the_keys_of_changed_rows_change(tmp_path: Path, spark: SparkSession) -> None:
    check_answers(tmp_path, spark, 5, ("full_join", "windows"))


def check_answers(folder: Path, spark: SparkSession, seed: int, names: Iterable[str]) -> None:
    with shapes_in(folder, spark, names) as shapes:
        rows = Rows(random.Random(seed))
        rows.change("base", 30)
        rows.change("other", 8)
        before = shapes.frames(rows.held)
        rows.change("base", 4)
        fixed = shapes.frames(rows.held)
        rows.change("other", 2)
        now = shapes.frames(rows.held)
        for name in names:
            Answers(shapes, name, before, now if name in KEYED else fixed).check()
