"""Update of a table by affected keys: its rows with the keys of changed rows are computed anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from headrace.expr.spark_columns import quoted
from headrace.pipelines.affected_keys import KeyedPlan, KeyedRelation
from headrace.pipelines.catalog import Positions
from headrace.pipelines.definitions import RESERVED
from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.leaves import ConstantLeaf, UnversionedLeaf, relation_like
from headrace.pipelines.run_snapshot import RunSnapshot
from headrace.pipelines.table_versions import TableVersions
from headrace.pipelines.weighted_rows import (
    FEW,
    MAX_BYTES,
    WEIGHT,
    as_changes,
    comparable_schema,
    consolidate_arrow,
    difference,
    split_by_key,
)
from headrace.queries.plan_details import frame_of_plan, java_class
from headrace.queries.planning import PlanCopier

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_BROADCAST = 1_000_000
"""Keys up to which each task gets all of them."""

_MANY = 200_000
"""Rows with affected keys from which on Spark compares them."""

MAX_SHARE = 0.5
"""Share of a table's rows that have affected keys, from which on all rows are recomputed."""


class WholeIsCheaper(Exception):
    """Raised if so many rows of a table have affected keys that recomputing all costs less."""

    def __init__(self, affected: int, rows: int) -> None:
        super().__init__(f"{affected:,} of {rows:,} rows have the keys of changed rows")


@dataclass(frozen=True, slots=True)
class AffectedRows:
    """The rows of a query's answer, and of its table, that have the keys of changed rows.

    read: positions of the inputs up to which the table was computed.
    """

    keyed: KeyedPlan
    snapshot: RunSnapshot
    read: Positions

    def write(self, writer: TableVersions) -> int:
        """Write the table's next version and return its number, like `TableVersions.append`.

        Few keys are handled in this process, and Spark only runs the query. Raises `WholeIsCheaper`.
        """
        columns = comparable_schema(writer.table.schema)
        if columns is not None and writer.table.layout == "parquet":
            try:
                return self._write_here(writer, columns)
            except NeedsSpark:
                pass
        with _persisted(self.keys()) as keys:
            count = keys.count()
            few = _broadcast(keys) if count <= _BROADCAST else keys
            with _persisted(self.of_keys(writer.rows(), few)) as before:
                _check_share(before.count(), writer)
                now = self.answer(few).select(*map(quoted, before.columns))
                return writer.apply(difference(before, now))

    # -- in this process --

    def _write_here(self, writer: TableVersions, columns: pa.Schema) -> int:
        """Write the next version with Spark for the query alone. Raises `NeedsSpark` if it reads much."""
        import polars as pl
        import pyarrow as pa

        names = list(self.keyed.columns)
        if any(pa.types.is_floating(columns.field(name).type) for name in names):
            raise NeedsSpark("a float is compared as Spark does")
        files = writer.files()
        if sum(file.stat().st_size for file in files) > MAX_BYTES:
            raise NeedsSpark(f"{writer.table.name} is large")
        keys = self._keys_here(pa.schema([columns.field(name) for name in names]))
        if not len(keys):
            return writer.last.version
        frame: Any = pl.from_arrow(keys)
        held = [columns.empty_table()]
        for file in files:
            of_file = writer.read_file(file, columns)
            held.append(split_by_key(of_file, frame, names)[1])
        before = pa.concat_tables(held)
        _check_share(len(before), writer)
        if len(before) > _MANY:
            raise NeedsSpark(f"{len(before):,} rows have the keys of changed rows")
        now = writer.collect(self.answer(_broadcast(self._in_spark(keys, writer))), columns)
        changes = pa.concat_tables([as_changes(before, -1), as_changes(now)])
        return writer.apply_here(consolidate_arrow(changes), columns)

    def _keys_here(self, columns: pa.Schema) -> pa.Table:
        """Return the keys of the changed rows, each once. Raises `NeedsSpark` if they are many."""
        import polars as pl
        import pyarrow as pa

        try:
            found = pa.concat_tables([self._columns_here(each, columns) for each in self._keyed_relations])
        except NeedsSpark:
            found = self.keys().limit(FEW + 1).toArrow().rename_columns(columns.names).cast(columns)
        frame: Any = pl.from_arrow(found)
        keys = frame.unique().to_arrow().cast(columns)
        if len(keys) > FEW:
            raise NeedsSpark(f"{len(keys):,} keys are affected")
        return keys

    def _columns_here(self, relation: KeyedRelation, columns: pa.Schema) -> pa.Table:
        """Return the keys of an input's changed rows, which are columns of it. Raises `NeedsSpark`."""
        assert relation.leaf is not None
        if any(key.nodeName() != "AttributeReference" for key in relation.keys):
            raise NeedsSpark("its key is computed")
        given, before = self.snapshot.input(relation.leaf), self.read.get(relation.leaf.key)
        if given.bytes_changed(before) > MAX_BYTES:
            raise NeedsSpark("many rows have changed")
        rows = given.changes_here(before).select([key.name() for key in relation.keys])
        return rows.rename_columns(columns.names).cast(columns)

    def _in_spark(self, keys: pa.Table, writer: TableVersions) -> DataFrame:
        from pyspark.sql.types import StructType

        schema = StructType()
        for at, name in enumerate(self.keyed.columns):
            schema = schema.add(_key(at), writer.table.schema[name].dataType)
        return self.snapshot.spark.createDataFrame(keys.rename_columns(schema.names), schema)

    # -- by Spark --

    @property
    def _keyed_relations(self) -> list[KeyedRelation]:
        return [each for each in self.keyed.relations if each.keys]

    def keys(self) -> DataFrame:
        """Return the keys of the changed rows, each once."""
        found = map(self._keys_in, self._keyed_relations)
        return reduce(lambda one, two: one.union(two), found).distinct()

    def _keys_in(self, relation: KeyedRelation) -> DataFrame:
        assert relation.leaf is not None
        spark = self.snapshot.spark
        changes = self.snapshot.input(relation.leaf).changes(self.read.get(relation.leaf.key))
        assert changes is not None
        rows = frame_of_plan(relation_like(relation.node, changes.drop(WEIGHT), spark), spark)
        return rows.select(*(self._column(key).alias(_key(at)) for at, key in enumerate(relation.keys)))

    def _column(self, expression: Any) -> Column:
        from pyspark.sql import Column

        return Column(
            java_class(self.snapshot.spark, "org.apache.spark.sql.classic.ExpressionUtils").column(expression)
        )

    def answer(self, keys: DataFrame) -> DataFrame:
        """Return the answer's rows with some keys, computed from the inputs' rows with these keys."""
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
    return reduce(
        lambda one, two: one & two, (each.eqNullSafe(keys[_key(at)]) for at, each in enumerate(columns))
    )


def _broadcast(keys: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return f.broadcast(keys)


def _check_share(affected: int, writer: TableVersions) -> None:
    if affected > MAX_SHARE * writer.last.rows:
        raise WholeIsCheaper(affected, writer.last.rows)


@contextmanager
def _persisted(rows: DataFrame) -> Iterator[DataFrame]:
    kept = rows.persist()
    try:
        yield kept
    finally:
        kept.unpersist()
