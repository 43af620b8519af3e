"""Queries of expectations: the rows of a table that are kept, that are dropped, and that violate others.

A condition is a filter over the query of its table, so that all engines evaluate it. Dropped rows are
a dataset of that query with the negated filter; violations of other expectations are a dataset over the
table and its dropped rows. Both are maintained as all datasets are, and tell the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from headrace.errors import Step
from headrace.expr.spark_columns import quoted
from headrace.pipelines.definitions import FAILED_EXPECTATIONS, Dataset
from headrace.pipelines.errors import BadDefinition
from headrace.pipelines.expectations import Expectation, OnViolation
from headrace.pipelines.query_errors import message_of
from headrace.queries.plan_details import with_subqueries
from headrace.queries.planning import reads_current_time

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


def checked_conditions(dataset: Dataset, rows: DataFrame) -> dict[str, Column]:
    """Return the conditions of a dataset by the names of its expectations.

    rows: a frame of its columns.

    Raises `BadDefinition` for a condition that is not a boolean of one row, and for a column of our name.
    """
    if FAILED_EXPECTATIONS in map(str.lower, rows.columns):
        raise BadDefinition(
            f"{dataset.name} has expectations and a column {FAILED_EXPECTATIONS!r}",
            where=list(dict.fromkeys([dataset.location, dataset.expectations[0].location])),
            why="Its dropped rows have this column with the names of the expectations that they fail.",
            fix="give the column another name",
            dataset=str(dataset.name),
        )
    return {each.name: _checked(each, dataset, rows) for each in dataset.expectations}


def _checked(expectation: Expectation, dataset: Dataset, rows: DataFrame) -> Column:
    from pyspark.sql import functions as f

    try:
        column = f.expr(expectation.condition) if expectation.column is None else expectation.column
        plan: Any = rows.where(column)._jdf.queryExecution().analyzed()  # pyright: ignore
    except PySparkException as error:
        raise _refused(expectation, dataset, message_of(error)) from None
    if plan.subqueriesAll().size():
        raise _refused(
            expectation, dataset, "A condition is over the columns of one row, and has no subquery."
        )
    if not plan.deterministic() or reads_current_time(plan, rows.sparkSession):
        raise _refused(
            expectation,
            dataset,
            "The same row must pass or fail in every run; random values and the current time change.",
            "compare with a column that the query computes, such as the time at which a row came",
        )
    return column


def _refused(expectation: Expectation, dataset: Dataset, why: str, fix: str = "") -> BadDefinition:
    columns = "correct the condition: SQL text or a column, true for rows that pass"
    return BadDefinition(
        f"the expectation {expectation.name!r} of {dataset.name} cannot be checked",
        where=[Step(expectation.location, expectation.text)],
        why=why,
        fix=fix or columns,
        dataset=str(dataset.name),
    )


def check_can_drop(dataset: Dataset, frame: DataFrame, *, records: bool) -> None:
    """Raise `BadDefinition` for a table whose query cannot be evaluated twice, for kept and dropped rows.

    records: whether the query is an AUTO CDC flow.
    """
    dropping = [each for each in dataset.expectations if each.on_violation is OnViolation.DROP]
    plan: Any = frame._jdf.queryExecution().analyzed()  # pyright: ignore
    random = not all(each.deterministic() for each in with_subqueries(plan))
    if dropping and (records or random):
        what = "has an AUTO CDC flow" if records else "has random values"
        raise BadDefinition(
            f"the expectation {dropping[0].name!r} drops rows of {dataset.name}, which {what}",
            where=list(dict.fromkeys([dataset.location, dropping[0].location])),
            why="A later record may correct the row."
            if records
            else "A row that is dropped could be kept when the query is evaluated for the table.",
            fix="declare it on a table that the flow reads"
            if records
            else "store the values in a table first",
            dataset=str(dataset.name),
        )


def with_declared_types(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows of a query with the types that its table declares, which conditions see."""
    from pyspark.sql import functions as f

    found = {each.name: each.dataType for each in frame.schema.fields}
    if all(found[each.name] == each.dataType for each in schema.fields):
        return frame
    types = {each.name: each.dataType for each in schema.fields}
    return frame.select(
        *(f.col(quoted(each)).cast(types[each]).alias(each) for each in frame.columns),
    )


def kept_rows(rows: DataFrame, dropping: Sequence[Column]) -> DataFrame:
    """Return the rows that pass all conditions of expectations that drop."""
    return rows.where(reduce(lambda one, other: one & other, map(_passes, dropping)))


def failing_rows(rows: DataFrame, conditions: Mapping[str, Column]) -> DataFrame:
    """Return the rows that fail a condition, with the names of those that they fail."""
    from pyspark.sql import functions as f

    passes = {name: _passes(column) for name, column in conditions.items()}
    names = [f.when(~passed, f.lit(name)) for name, passed in passes.items()]
    failing = rows.where(~reduce(lambda one, other: one & other, passes.values()))
    return failing.withColumn(FAILED_EXPECTATIONS, f.array_compact(f.array(*names)))


def _passes(condition: Column) -> Column:
    """Return a condition with null as false."""
    from pyspark.sql import functions as f

    return f.coalesce(condition, f.lit(False))


def columns_with_failed(schema: StructType) -> StructType:
    """Return columns with that of failed expectations."""
    from pyspark.sql.types import ArrayType, StringType, StructType

    return StructType([*schema.fields]).add(FAILED_EXPECTATIONS, ArrayType(StringType()))
