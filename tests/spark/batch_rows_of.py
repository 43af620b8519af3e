"""Rows into DataFrames and back, and a batch beside the oracle, for the tests of batch mode."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from headrace.engine.change import Change, TickOutput
from headrace.engine.engine import Engine
from headrace.expr.row_classes import from_user
from headrace.expr.types import DataType, ListType, Schema, StructType
from headrace.flow.flow import Flow
from headrace.io.arrow import rows_to_table, table_to_rows
from headrace.io.source import WEIGHT
from headrace.operators.endpoints import SourceOperator
from headrace.spark.batch.run_batch import lower_flow
from headrace.spark.ticks.failures import decoded_errors
from headrace.testing import answers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Bag = Counter[tuple[Any, ...]]


def frame_of(
    spark: SparkSession, schema: Schema, changes: Iterable[Change[Any]], *, weighted: bool
) -> DataFrame:
    """User rows with weights as a DataFrame; with a column `weight` if `weighted`."""
    rows = from_user(schema, what="test")([c.row for c in changes])
    if weighted:
        rows = [(*row, c.weight) for row, c in zip(rows, changes)]
    from pyspark.sql.types import LongType, StructField, StructType

    from headrace.expr.spark_columns import spark_schema

    # Spark 4.3 misreads null elements of lists where it groups straight on Arrow's memory; a local
    # relation copies the rows first.
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "48MB")
    try:
        weight = [StructField(WEIGHT, LongType(), False)] * weighted
        return spark.createDataFrame(
            rows_to_table(rows, schema, weighted=weighted),
            StructType([*spark_schema(schema).fields, *weight]),
        )
    finally:
        spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")


def bag_of_frame(frame: DataFrame, schema: Schema) -> Bag:
    assert frame.columns == list(schema.names)
    return Counter(table_to_rows(frame.toArrow(), schema))


def frames_of(
    spark: SparkSession, flow: Flow, inputs: Mapping[str, list[Change[Any]]]
) -> dict[str, DataFrame]:
    """The input of each source."""
    graph, frames = flow.graph(), dict[str, "DataFrame"]()
    for name, node in graph.sources.items():
        operator = graph.nodes[node].operator
        assert isinstance(operator, SourceOperator)
        frames[name] = frame_of(spark, operator.schema, inputs.get(name, []), weighted=not operator.append)
    return frames


def batch_bags(spark: SparkSession, flow: Flow, inputs: Mapping[str, list[Change[Any]]]) -> dict[str, Bag]:
    """What every sink holds, by batch mode."""
    graph = flow.graph()
    with decoded_errors():
        sinks = lower_flow(graph, frames_of(spark, flow, inputs)).sinks
        return {n: bag_of_frame(frame, graph.nodes[graph.sinks[n]].schema) for n, frame in sinks.items()}


def told_in_json(rows: Bag, schema: Schema) -> Counter[str]:
    """Numbers, text, bytes, lists and rows as Spark's `to_json` tells them, without columns that are null."""
    told: Counter[str] = Counter()
    for row, count in rows.items():
        columns = _told(row, StructType(schema.fields))
        told[json.dumps(columns, separators=(",", ":"))] += count
    return told


def _told(value: Any, type: DataType) -> Any:
    if value is not None and isinstance(type, ListType):
        return [_told(element, type.element) for element in value]
    if value is not None and isinstance(type, StructType):
        parts = zip(type.fields, value, strict=True)
        return {field.name: _told(part, field.type) for field, part in parts if part is not None}
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    return value


def json_of_many(
    spark: SparkSession, cases: Mapping[str, tuple[Flow, Mapping[str, list[Change[Any]]]]]
) -> dict[str, Counter[str]]:
    """What the only sink of each of many flows holds, by batch mode, all of them in one job of Spark."""
    frames: list[DataFrame] = []
    for name, (flow, inputs) in cases.items():
        frame = lower_flow(flow.graph(), frames_of(spark, flow, inputs)).sinks["out"]
        frames.append(frame.select(f.lit(name).alias("name"), f.to_json(f.struct("*")).alias("row")))
    with decoded_errors():
        rows = reduce(lambda one, other: one.unionAll(other), frames).toArrow().to_pylist()
    found: dict[str, Counter[str]] = {name: Counter() for name in cases}
    for row in rows:
        found[row["name"]][row["row"]] += 1
    return found


def true_bags(flow: Flow, inputs: Mapping[str, list[Change[Any]]]) -> dict[str, Bag]:
    """What every sink holds, by the oracle."""
    graph = flow.graph()
    totals: dict[str, Bag] = {}
    for name, changes in inputs.items():
        rows = from_user(graph.nodes[graph.sources[name]].schema, what="test")([c.row for c in changes])
        totals[name] = Counter()
        for row, change in zip(rows, changes):
            totals[name][row] += change.weight
    return {name: +bag for name, bag in answers(graph, totals).items()}


class NeverQuiet(Exception):
    """Rows are deferred for ever."""


def bags_in_one_tick(flow: Flow, inputs: Mapping[str, list[Change[Any]]]) -> dict[str, Bag]:
    """What every sink holds after a tick with all input, those for deferred rows, and the end of input.

    Raises `NeverQuiet` for a flow of which nobody sees the end.
    """
    engine, graph = Engine(flow), flow.graph()
    totals: dict[str, Bag] = {name: Counter() for name in graph.sinks}

    def add(output: TickOutput) -> None:
        while True:
            for name, changes in output.items():
                for *row, weight in changes.raw:
                    totals[name][tuple(row)] += weight
            if not engine.pending:
                return
            if engine.ticks > _MANY_TICKS:
                raise NeverQuiet
            output = engine.tick()

    append = engine.program.source_append
    add(engine.tick(**{n: [c.row for c in cs] if append[n] else cs for n, cs in inputs.items()}))
    if engine.awaited_ends:
        add(engine.end())
    return {name: Counter({row: n for row, n in bag.items() if n}) for name, bag in totals.items()}


_MANY_TICKS = 100
