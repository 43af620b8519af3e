"""Update of a table by affected keys: the rows with the keys of changed rows, as they are and as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.expr.spark_columns import quoted
from headrace.pipelines.affected_keys import KeyedPlan, KeyedRelation
from headrace.pipelines.definitions import RESERVED
from headrace.pipelines.leaves import ConstantLeaf, UnversionedLeaf, relation_like
from headrace.pipelines.run_snapshot import RunSnapshot
from headrace.pipelines.table_versions import TableVersions
from headrace.pipelines.weighted_rows import WEIGHT, difference
from headrace.queries.plan_details import frame_of_plan, java_class
from headrace.queries.planning import PlanCopier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BROADCAST = 1_000_000
"""Keys up to which each task gets all of them."""

MAX_SHARE = 0.5
"""Share of a table's rows that have affected keys, from which on all rows are recomputed."""


@dataclass(frozen=True, slots=True)
class WholeIsCheaper(Exception):
    """Raised if so many rows of a table have affected keys that recomputing all costs less."""

    affected: int
    rows: int


@dataclass(frozen=True, slots=True)
class AffectedRows:
    """The rows of a query's answer, and of its table, that have the keys of changed rows.

    changes: of the inputs, by `exact`.
    """

    keyed: KeyedPlan
    snapshot: RunSnapshot
    changes: Mapping[str, DataFrame]

    def write(self, writer: TableVersions) -> int:
        """Write the table's next version and return its number, like `TableVersions.append`.

        Raises `WholeIsCheaper`.
        """
        with _persisted(self.keys()) as keys:
            count = keys.count()
            if not count:
                return writer.last.version
            few = _broadcast(keys) if count <= _BROADCAST else keys
            with _persisted(self.of_keys(writer.rows(), few)) as before:
                held = before.count()
                if held > MAX_SHARE * writer.last.rows:
                    raise WholeIsCheaper(held, writer.last.rows)
                now = self.answer(few).select(*map(quoted, before.columns))
                return writer.apply(difference(before, now))

    def keys(self) -> DataFrame:
        """Return the keys of the changed rows, each once."""
        found = [
            self._keys_in(each, self.changes[each.leaf.exact])
            for each in self.keyed.relations
            if each.leaf is not None and each.keys
        ]
        return reduce(lambda one, two: one.union(two), found).distinct()

    def _keys_in(self, relation: KeyedRelation, changes: DataFrame) -> DataFrame:
        spark = self.snapshot.spark
        rows = frame_of_plan(relation_like(relation.node, changes.drop(WEIGHT), spark), spark)
        return rows.select(*(self._column(key).alias(_key(at)) for at, key in enumerate(relation.keys)))

    def _column(self, expression: Any) -> Column:
        from pyspark.sql import Column

        return Column(java_class(self.snapshot.spark, "org.apache.spark.sql.classic.ExpressionUtils").column(expression))

    def answer(self, keys: DataFrame) -> DataFrame:
        """Return the rows of the answer that have some keys, computed from the inputs' rows with these keys."""
        relations = iter(self.keyed.relations)

        def restricted(_: Any) -> Any:
            return self._relation(next(relations), keys)

        spark = self.snapshot.spark
        rows = frame_of_plan(PlanCopier(spark, relations=restricted).plan(self.keyed.plan), spark)
        # Rows that come of fixed inputs alone have any key.
        return self.of_keys(rows, keys)

    def _relation(self, relation: KeyedRelation, keys: DataFrame) -> Any:
        if relation.leaf is None or isinstance(relation.leaf, (ConstantLeaf, UnversionedLeaf)):
            return None
        spark = self.snapshot.spark
        whole = relation_like(relation.node, self.snapshot.input(relation.leaf).whole(), spark)
        if not relation.keys:
            return whole
        rows = frame_of_plan(whole, spark)
        same = _all_equal(list(map(self._column, relation.keys)), keys)
        plan: Any = rows.join(keys, same, "left_semi")
        return plan._jdf.queryExecution().analyzed()

    def of_keys(self, rows: DataFrame, keys: DataFrame) -> DataFrame:
        """Return the rows of a table or an answer that have some keys."""
        same = _all_equal([rows[quoted(name)] for name in self.keyed.columns], keys)
        return rows.join(keys, same, "left_semi")


def _key(at: int) -> str:
    return f"{RESERVED}key_{at}"


def _all_equal(columns: list[Column], keys: DataFrame) -> Column:
    return reduce(lambda one, two: one & two, (each.eqNullSafe(keys[_key(at)]) for at, each in enumerate(columns)))


def _broadcast(keys: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return f.broadcast(keys)


@contextmanager
def _persisted(rows: DataFrame) -> Iterator[DataFrame]:
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
