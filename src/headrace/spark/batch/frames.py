"""Frames of a batch: sources as DataFrames, places of operators, and several streams in one frame.

A source is the given DataFrame, validated, as a bag of rows or with ordinals. An ordinal is the original
position of a row, in two extra columns: the number of its part, and the position within the part. For files,
these are the number of the file, ordered by name, and of the row in it; for Python rows, the first is the
number of the batch. For a user's DataFrame, the order is that in which Spark delivers its rows: by partition,
then by position.

Several streams share a frame as a stream number, and a column of rows for each stream:

    port int, ..., row0 struct<...>, row1 struct<...>, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from headrace.errors import BadInput, WrongType
from headrace.expr.spark_columns import from_hashable, hashable, quoted, spark_schema, spark_type
from headrace.expr.tree import Expr
from headrace.expr.types import INT64, Field, Rows, Schema
from headrace.io.source import WEIGHT
from headrace.lowering.forms import lower_operator
from headrace.operators.endpoints import SourceOperator
from headrace.operators.rows import Filter, Select
from headrace.spark.native_expressions import to_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from headrace.graph.node import FlowGraph, Node


@dataclass(frozen=True, slots=True)
class Site:
    """Place of an operator in a batch (`headrace.lowering.forms.BatchContext`)."""

    node: Node
    inputs: tuple[DataFrame, ...]
    schemas: tuple[Schema, ...]
    frames: Mapping[str, DataFrame]

    def column(self, expr: Expr, over: int | Schema = 0) -> Column:
        return to_column(expr, self.schemas[over] if isinstance(over, int) else over)

    def named(self, name: str) -> Column:
        return exact_column(name)

    def group_rows(self, frame: DataFrame, schema: Schema, *aggregates: Column) -> DataFrame:
        return grouped_rows(frame, schema, *aggregates)

    def empty(self) -> DataFrame:
        from pyspark.sql import SparkSession

        session = self.inputs[0].sparkSession if self.inputs else SparkSession.active()
        return session.createDataFrame([], spark_schema(self.node.schema))


def exact_column(name: str) -> Column:
    """Return the column with exactly this name, even with special characters."""
    from pyspark.sql import functions as f

    return f.col(quoted(name))


def rename_columns(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Rename all columns by position."""
    return frame.toDF(*names)


def grouped_rows(frame: DataFrame, schema: Schema, *aggregates: Column) -> DataFrame:
    """Group equal rows, and return each once, with aggregates of its copies.

    Spark 4.3 groups maps, too, but takes null values in them for zeros and gives the column another name.
    """
    keys = (hashable(field.type, exact_column(field.name)).alias(field.name) for field in schema.fields)
    grouped = frame.groupBy(*keys).agg(*aggregates)
    rows = (from_hashable(field.type, exact_column(field.name)).alias(field.name) for field in schema.fields)
    made = grouped.columns[len(schema.fields) :]
    return grouped.select(*rows, *map(exact_column, made))


_COPIES = "__copies"


@lower_operator.register(SourceOperator)
def _(operator: SourceOperator, context: Site) -> DataFrame:
    frame = frame_of_source(operator, context.node, context.frames)
    columns = checked_columns(operator, frame)
    if operator.append or WEIGHT not in frame.columns:
        return frame.select(*columns)
    return _bag(frame.select(*columns, weight_column(operator, frame).alias(_COPIES)), operator)


def frame_of_source(operator: SourceOperator, node: Node, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return the DataFrame given for a source. Raises `BadInput` if there is none."""
    frame = frames.get(operator.name)
    if frame is None:
        raise BadInput(
            f"nothing is given for source {operator.name!r}", where=[node.location], source=operator.name
        )
    return frame


def checked_columns(operator: SourceOperator, frame: DataFrame) -> list[Column]:
    """Return a source's declared columns. Raises `WrongType`; tasks raise for forbidden nulls."""
    return [_checked(field, frame, operator) for field in operator.schema.fields]


def _checked(field: Field, frame: DataFrame, operator: SourceOperator) -> Column:
    found = {there.name: there for there in frame.schema.fields}.get(field.name)
    wanted = spark_type(field.type)
    if found is None or found.dataType.simpleString() != wanted.simpleString():
        has = (
            f"no column {field.name!r}"
            if found is None
            else f"{field.name!r} as {found.dataType.simpleString()}"
        )
        raise WrongType(
            f"source {operator.name!r}: its DataFrame has {has}",
            why=f"the flow declares {field}, which is {wanted.simpleString()} on Spark.",
            fix="select and cast in the DataFrame, or change the row type of the flow's source",
            source=operator.name,
            column=field.name,
        )
    column = exact_column(field.name)
    if found.nullable and not field.nullable:
        column = f.coalesce(column, _refused_null(operator, field.name).cast(wanted))
    return column.alias(field.name)


def weight_column(operator: SourceOperator, frame: DataFrame) -> Column:
    """Return the weight of a table source's row; null is an error, since Spark would skip it in sums."""
    if WEIGHT not in frame.columns:
        return f.lit(1).cast("long")
    return f.coalesce(exact_column(WEIGHT).cast("long"), _refused_null(operator, WEIGHT).cast("long"))


def _refused_null(operator: SourceOperator, column: str) -> Column:
    message = f"P201 BadRow: source {operator.name!r}: column {column!r} of its DataFrame is null"
    return f.raise_error(f.lit(message))


def _bag(frame: DataFrame, operator: SourceOperator) -> DataFrame:
    """Expand each row to as many copies as its total weight; a negative total is an error.

    Native operators have rows without weights. A stream would hold such a row back, because further copies
    may still arrive.
    """
    names = operator.schema.names
    total = f.sum(_COPIES).alias(_COPIES)
    sums = grouped_rows(frame, operator.schema, total)
    # As JSON a row is one line, without tabs; `ticks.errors` knows this form.
    row = f.to_json(f.struct(*(exact_column(n) for n in names))) if names else f.lit("{}")
    refusal = f.concat(
        f.lit(f"P201 BadRow: source {operator.name!r} takes a row back more often than it came\t"),
        row,
        f.lit(
            "\tcorrect the input; or run it as a stream, which holds back such rows and tells them in the end"
        ),
    )
    # A list of no copies explodes to no row.
    copies = f.when(exact_column(_COPIES) < 0, f.raise_error(refusal).cast("long")).otherwise(
        exact_column(_COPIES)
    )
    ones = f.array_repeat(f.lit(0), copies.cast("int"))
    return sums.select(*(exact_column(n) for n in names), f.explode(ones).alias(_COPIES)).drop(_COPIES)


PART, PLACE = "headrace part", "headrace place"
ORDINAL = (PART, PLACE)


def with_ordinals(graph: FlowGraph, node_id: int, frames: Mapping[str, DataFrame]) -> DataFrame:
    """Add ordinals to the rows of a source, or of filters and selections over one.

    Changes of a table source also have their weight, in a column `weight`.
    """
    node = graph.nodes[node_id]
    operator = node.operator
    if isinstance(operator, SourceOperator):
        return _numbered(operator, frame_of_source(operator, node, frames))
    before = with_ordinals(graph, node.inputs[0], frames)
    schema = graph.nodes[node.inputs[0]].schema
    if isinstance(operator, Select):
        return before.select(
            *(to_column(expr, schema).alias(name) for name, expr in operator.columns), *ORDINAL
        )
    assert isinstance(operator, Filter)
    assert isinstance(operator.predicate, Expr)
    return before.filter(to_column(operator.predicate, schema))


def _numbered(operator: SourceOperator, frame: DataFrame) -> DataFrame:
    if PART in frame.columns:
        ordinal = [exact_column(PART), exact_column(PLACE)]
    else:
        ordinal = [f.lit(0).cast("long").alias(PART), f.monotonically_increasing_id().alias(PLACE)]
    weight = [] if operator.append else [weight_column(operator, frame).alias(WEIGHT)]
    return frame.select(*checked_columns(operator, frame), *weight, *ordinal)


BATCH = 10_000
"""Maximum number of rows in an Arrow batch."""
_PORT = "port"


@dataclass(frozen=True, slots=True)
class TaggedUnion:
    """Layout of a frame that holds several streams.

    streams: per stream the schema of its rows, and whether they have a weight last.
    """

    streams: tuple[tuple[Schema, bool], ...]

    def type(self) -> Any:
        """Spark type of the frame, without extra columns."""
        from pyspark.sql.types import IntegerType, StructField, StructType

        rows = [StructField(f"row{at}", spark_schema(s), True) for at, s in enumerate(self._schemas())]
        return StructType([StructField(_PORT, IntegerType(), False), *rows])

    def tag_rows(self, frame: DataFrame, port: int, further: Mapping[str, Column]) -> DataFrame:
        """Wrap one stream's rows as structs in the column of its port; the other columns are null.

        port:    a port that belongs to no stream has no rows.
        further: columns between the port and the rows, by name.
        """
        columns = [f.lit(port).alias(_PORT), *(column.alias(name) for name, column in further.items())]
        for at, schema in enumerate(self._schemas()):
            # No cast of the rows that are there: Spark takes a column for nullable where it cannot tell, and
            # refuses to cast such a one to one that is not.
            none = f.lit(None).cast(spark_schema(schema))
            row = f.struct(*(exact_column(n) for n in schema.names)) if at == port else none
            columns.append(row.alias(f"row{at}"))
        return frame.select(*columns)

    def rows(self, batch: pa.RecordBatch, port: int) -> Rows:
        """Return the rows of one stream in a record batch of the frame."""
        import pyarrow
        from pyarrow import compute

        from headrace.io.arrow import table_to_rows

        schema, weighted = self.streams[port]
        arrow: Any = compute  # its functions are made when it is imported; type checkers know none of them
        structs = batch.column(f"row{port}").filter(arrow.equal(batch.column(_PORT), port))
        if structs.type.num_fields == 0:
            # A table without columns would not know how many rows it has.
            return [()] * len(structs)
        table = pyarrow.Table.from_arrays(structs.flatten(), names=[field.name for field in structs.type])
        return table_to_rows(table, schema, weighted=weighted)

    def to_batches(self, rows: Rows, port: int) -> Iterator[pa.RecordBatch]:
        """Convert one stream's rows, without weights, to batches of the frame."""
        import pyarrow

        from headrace.io.arrow import arrow_schema

        kinds = [pyarrow.struct(list(arrow_schema(schema))) for schema in self._schemas()]
        names = [_PORT, *(f"row{at}" for at in range(len(kinds)))]
        for structs in _structs(rows, self.streams[port][0]):
            arrays: list[Any] = [pyarrow.array([port] * len(structs), pyarrow.int32())]
            arrays += [
                structs if at == port else pyarrow.nulls(len(structs), k) for at, k in enumerate(kinds)
            ]
            yield pyarrow.RecordBatch.from_arrays(arrays, names=names)

    def _schemas(self) -> Iterator[Schema]:
        for schema, weighted in self.streams:
            yield Schema((*schema.fields, Field(WEIGHT, INT64))) if weighted else schema


def _structs(rows: Rows, schema: Schema) -> Iterator[Any]:
    import pyarrow

    from headrace.io.arrow import rows_to_table

    if not schema.fields:
        for at in range(0, len(rows), BATCH):
            yield pyarrow.array([{}] * len(rows[at : at + BATCH]), pyarrow.struct([]))
        return
    for batch in rows_to_table(rows, schema).to_batches(max_chunksize=BATCH):
        yield batch.to_struct_array()


def select_stream(frame: DataFrame, port: int, schema: Schema) -> DataFrame:
    """Select one stream's rows from a frame of several."""
    row = exact_column(f"row{port}")
    columns = [row.getField(x.name).cast(spark_type(x.type)).alias(x.name) for x in schema.fields]
    return frame.filter(exact_column(_PORT) == port).select(*columns)
