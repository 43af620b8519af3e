"""Several streams in one frame: a stream number, and a column of rows for each stream.

port int, ..., row0 struct<...>, row1 struct<...>, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from headrace.expr.spark_columns import spark_schema, spark_type
from headrace.expr.types import INT64, Field, Rows, Schema
from headrace.io.source import WEIGHT
from headrace.spark.batch.operators import exact_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


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
