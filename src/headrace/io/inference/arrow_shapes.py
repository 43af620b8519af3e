"""Shapes of the columns of Parquet files: their types, nullable where a null occurs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT64,
    INT64,
    INTERVAL,
    STR,
    TIMESTAMP,
    DataType,
    DecimalType,
)
from headrace.io.files.file_reader import unreadable
from headrace.io.files.parquet_rows import fits, plain
from headrace.io.inference.shapes import Shape

_PLAIN = (BOOL, INT64, FLOAT64, STR, BYTES, DATE, TIMESTAMP, INTERVAL)
_ROWS = 1 << 13


def parquet_shapes(name: str, path: Path) -> Iterator[tuple[int, Mapping[str, Shape]]]:
    """Yield the shapes of batches of rows, with their length."""
    try:
        with pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            empty = pa.RecordBatch.from_pylist([], schema=file.schema_arrow)
            yield 0, _shapes(empty)
            for batch in file.iter_batches(_ROWS):
                yield batch.num_rows, _shapes(batch)
    except pa.ArrowException as error:
        raise unreadable(name, path, f"it is not Parquet: {error}") from error


def _shapes(batch: pa.RecordBatch) -> Mapping[str, Shape]:
    return {name: _shape(column) for name, column in zip(batch.schema.names, batch.columns)}


def _shape(array: Any) -> Shape:
    nullable, arrow = array.null_count > 0, array.type
    if types.is_null(arrow):
        return Shape(nullable=True)
    if types.is_map(arrow):
        return Shape(key=_shape(array.keys), element=_shape(array.items), nullable=nullable)
    if types.is_list(arrow) or types.is_large_list(arrow) or types.is_fixed_size_list(arrow):
        return Shape(element=_shape(array.flatten()), nullable=nullable)
    if types.is_struct(arrow):
        # Fields of a null row are null, whether they ever are otherwise or not.
        parts = array.filter(array.is_valid()).flatten()
        return Shape(fields={f.name: _shape(part) for f, part in zip(arrow, parts)}, nullable=nullable)
    declared = _declared(plain(arrow))
    return Shape(declared, nullable=nullable, problem="" if declared else f"no column type holds {arrow}")


def _declared(arrow: pa.DataType) -> DataType | None:
    if types.is_decimal(arrow):
        return (
            DecimalType(arrow.precision, arrow.scale) if 0 <= arrow.scale <= arrow.precision <= 38 else None
        )
    return next((each for each in _PLAIN if fits(each, arrow)), None)
