"""What is written and read again is the same, value by value."""

from __future__ import annotations

import base64
import csv
import json
import math
from datetime import date, datetime
from decimal import Decimal
from functools import singledispatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given

from headrace.expr.code_runtime import NAN
from headrace.expr.functions.intervals import to_text
from headrace.expr.types import (
    DataType,
    DecimalType,
    FloatingType,
    IntervalType,
    ListType,
    MapType,
    Schema,
    StructType,
)
from headrace.io import CsvFiles, Feed, JsonFiles, ParquetFiles
from headrace.io.arrow import read_part, rows_to_table, table_to_rows, write_part
from tests.io.feeds import read
from tests.io.internal_rows import FLAT_WITH_ROWS, SCHEMAS_WITH_ROWS

Rows = list[tuple[Any, ...]]


def assert_same(found: Any, wanted: Rows) -> None:
    # repr tells -0.0 from 0.0 and one zone from another, which == does not.
    assert repr(found) == repr(wanted)
    assert_nan_is_one(found)


def assert_nan_is_one(value: Any) -> None:
    if isinstance(value, float) and value != value:
        assert value is NAN
    elif isinstance(value, tuple | list):
        for part in value:
            assert_nan_is_one(part)


@given(SCHEMAS_WITH_ROWS)
def test_rows_survive_arrow(drawn: tuple[Schema, Rows]) -> None:
    schema, rows = drawn
    assert_same(table_to_rows(rows_to_table(rows, schema), schema), rows)
    weighted = [(*row, at - 2) for at, row in enumerate(rows)]
    assert_same(
        table_to_rows(rows_to_table(weighted, schema, weighted=True), schema, weighted=True), weighted
    )


@given(SCHEMAS_WITH_ROWS)
def test_rows_survive_part_files_and_the_parquet_source(drawn: tuple[Schema, Rows]) -> None:
    schema, rows = drawn
    with TemporaryDirectory() as folder:
        file = Path(folder, "a.parquet")
        write_part(file, rows, schema, weighted=False)
        assert_same(read_part(file, schema, weighted=False), rows)
        assert_same(read(ParquetFiles(folder), Feed("s", schema)), rows)


@given(SCHEMAS_WITH_ROWS)
def test_the_parquet_source_reads_wider_writings_too(drawn: tuple[Schema, Rows]) -> None:
    """Large lists and strings, nothing marked as not null, columns in another order."""
    schema, rows = drawn
    with TemporaryDirectory() as folder:
        table = rows_to_table(rows, schema)
        wider = pa.schema([pa.field(f.name, _wider(f.type)) for f in table.schema])
        pq.write_table(table.cast(wider).select(schema.names[::-1]), Path(folder, "a.parquet"))
        assert_same(read(ParquetFiles(folder), Feed("s", schema)), rows)


def _wider(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_string(arrow):
        return pa.large_string()
    if pa.types.is_binary(arrow):
        return pa.large_binary()
    if pa.types.is_int32(arrow) or pa.types.is_duration(arrow):
        return pa.int64()
    if pa.types.is_list(arrow):
        return pa.large_list(_wider(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(f.name, _wider(f.type)) for f in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(_wider(arrow.key_type), _wider(arrow.item_type))
    return arrow


@singledispatch
def as_json(type_: DataType, value: Any) -> Any:
    """A value as a user would write it in JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(type_, IntervalType):
        return to_text(value, type_.first, type_.last)
    return value.isoformat() if isinstance(value, date | datetime) else value


@as_json.register
def _(type_: DecimalType, value: Decimal) -> Any:
    return str(value)


@as_json.register
def _(type_: ListType, value: tuple[Any, ...]) -> Any:
    return [None if v is None else as_json(type_.element, v) for v in value]


@as_json.register
def _(type_: MapType, value: tuple[Any, ...]) -> Any:
    named = ((as_json(type_.key, k), v) for k, v in value)
    return {
        k if isinstance(k, str) else json.dumps(k): None if v is None else as_json(type_.value, v)
        for k, v in named
    }


@as_json.register
def _(type_: StructType, value: tuple[Any, ...]) -> Any:
    return {f.name: as_json(f.type, v) for f, v in zip(type_.fields, value) if v is not None}


@given(SCHEMAS_WITH_ROWS)
def test_rows_survive_json_as_lines_and_as_an_array(drawn: tuple[Schema, Rows]) -> None:
    schema, rows = drawn
    objects = [as_json(StructType(schema.fields), row) for row in rows]
    with TemporaryDirectory() as folder:
        lines = "".join(json.dumps(o, ensure_ascii=False) + "\n" for o in objects)
        Path(folder, "a.json").write_bytes(lines.encode())
        Path(folder, "b.json").write_text(json.dumps(objects, indent=1), encoding="utf-8")
        assert_same(read(JsonFiles(folder), Feed("s", schema)), rows * 2)


@given(FLAT_WITH_ROWS)
def test_rows_survive_csv(drawn: tuple[Schema, Rows]) -> None:
    schema, rows = drawn
    # An empty field is null where null is allowed.
    wanted = [
        tuple(None if v == "" and f.nullable else v for f, v in zip(schema.fields, row)) for row in rows
    ]
    with TemporaryDirectory() as folder:
        with Path(folder, "a.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL)
            writer.writerow(schema.names)
            for row in rows:
                writer.writerow("" if v is None else as_csv(f.type, v) for f, v in zip(schema.fields, row))
        assert_same(read(CsvFiles(folder), Feed("s", schema)), wanted)


def as_csv(type_: DataType, value: Any) -> str:
    if isinstance(type_, FloatingType) and not math.isfinite(value):
        return json.dumps(value)  # NaN, Infinity, -Infinity
    if isinstance(type_, IntervalType):
        return to_text(value, type_.first, type_.last)
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
