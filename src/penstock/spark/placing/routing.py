"""Compilation of a route to a function from rows to shards, stable across processes and releases."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.compile_python import Scope, dict_key_source, runtime_names
from penstock.expr.function_bases import is_bounded
from penstock.expr.tree import Column
from penstock.expr.types import Schema, parts_of
from penstock.io.arrow import table_to_rows
from penstock.io.delivery.table_keys import build_bucketing
from penstock.spark.placing.row_placement import ByBucket, ByKey, Route, ToAll, ToOne
from penstock.state.codec import key_encoder

Rows: TypeAlias = list[tuple[Any, ...]]
Divide: TypeAlias = Callable[[Rows], dict[int, Rows]]
DivideTable: TypeAlias = Callable[[pa.Table], dict[int, pa.Table]]

_compute: Any = pc  # generated at import time, unseen by type checkers


def row_divider(route: Route, schema: Schema, shards: int, *, weighted: bool) -> Divide:
    """Compile a route to a function that groups rows by shard.

    weighted: rows have their weight behind the columns.
    """
    if shards == 1:
        return lambda rows: {0: rows}
    return _divider(route, schema, shards, weighted)


@singledispatch
def _divider(route: Route, schema: Schema, shards: int, weighted: bool) -> Divide:
    raise NotImplementedError(type(route))


@_divider.register
def _(route: ToOne, schema: Schema, shards: int, weighted: bool) -> Divide:
    return lambda rows: {0: rows}


@_divider.register
def _(route: ToAll, schema: Schema, shards: int, weighted: bool) -> Divide:
    return lambda rows: dict.fromkeys(range(shards), rows)


@_divider.register
def _(route: ByKey, schema: Schema, shards: int, weighted: bool) -> Divide:
    keys_of = _key_function(route, schema, weighted)
    encode, crc32 = key_encoder(), zlib.crc32

    def divide(rows: Rows) -> dict[int, Rows]:
        parts: dict[int, Rows] = {}
        # Many rows have few keys: a look at those seen costs a fifth of the way to the shard.
        ways: dict[Any, Callable[[Any], None]] = {}
        for row, found in zip(rows, keys_of(rows), strict=True):
            way = ways.get(found)
            if way is None:
                part = parts.setdefault(crc32(encode(found)) % shards, [])
                way = ways[found] = part.append
            way(row)
        return parts

    return divide


@_divider.register
def _(route: ByBucket, schema: Schema, shards: int, weighted: bool) -> Divide:
    buckets = build_bucketing("", schema, route.columns, route.buckets)

    def divide(rows: Rows) -> dict[int, Rows]:
        parts: dict[int, Rows] = {}
        for row in rows:
            parts.setdefault(buckets.bucket(row) % shards, []).append(row)
        return parts

    return divide


def table_divider(route: Route, schema: Schema, shards: int) -> DivideTable | None:
    """Return a function that divides a table as `row_divider` divides its rows; None if keys are computed."""
    if shards == 1:
        return lambda table: {0: table}
    return _table_divider(route, schema, shards)


@singledispatch
def _table_divider(route: Route, schema: Schema, shards: int) -> DivideTable | None:
    return None


@_table_divider.register
def _(route: ToOne, schema: Schema, shards: int) -> DivideTable | None:
    return lambda table: {0: table}


@_table_divider.register
def _(route: ToAll, schema: Schema, shards: int) -> DivideTable | None:
    return lambda table: dict.fromkeys(range(shards), table)


@_table_divider.register
def _(route: ByKey, schema: Schema, shards: int) -> DivideTable | None:
    names = [expr.name for expr in route.keys if isinstance(expr, Column)]
    types = {f.name: f.type for f in schema.fields}
    if len(names) < len(route.keys) or any(parts_of(types[n]) for n in names):
        return None
    keys = Schema(tuple(f for f in schema.fields if f.name in names))
    keys_of = _key_function(route, keys, weighted=False)
    encode, crc32 = key_encoder(), zlib.crc32

    def divide(table: pa.Table) -> dict[int, pa.Table]:
        # Keys become Python values once each, so that a shard is the same as for rows.
        codes, distinct = _distinct(table.select(keys.names))
        shard_of = [crc32(encode(key)) % shards for key in keys_of(table_to_rows(distinct, keys))]
        if len(set(shard_of)) == 1:
            return {shard_of[0]: table}
        at = _compute.take(pa.array(shard_of, pa.int32()), codes)
        return {shard: table.filter(_compute.equal(at, shard)) for shard in sorted(set(shard_of))}

    return divide


def _distinct(keys: pa.Table) -> tuple[Any, pa.Table]:
    """Return the number of each row's key, and the distinct keys by number."""
    first, *others = keys.column_names
    encoded = _encoded(keys.column(first))
    codes, distinct = encoded.indices, pa.table([encoded.dictionary], names=[first])
    for name in others:
        encoded = _encoded(keys.column(name))
        width = max(len(encoded.dictionary), 1)
        # Numbered anew per column, so that a code stays below the square of the number of rows.
        codes = _compute.multiply(codes.cast(pa.int64()), width)
        pairs = _encoded(_compute.add(codes, encoded.indices.cast(pa.int64())))
        before = _compute.divide(pairs.dictionary, width)
        values = encoded.dictionary.take(
            _compute.subtract(pairs.dictionary, _compute.multiply(before, width))
        )
        codes, distinct = pairs.indices, distinct.take(before).append_column(name, values)
    return codes, distinct


def _encoded(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return _compute.dictionary_encode(column, null_encoding="encode")


def _key_function(route: ByKey, schema: Schema, weighted: bool) -> Callable[[Rows], list[Any]]:
    variables = tuple(f"c{at}" for at in range(len(schema.fields)))
    scope = Scope(schema, variables, {})
    values = "".join(f"{dict_key_source(e, scope)}, " for e in route.keys)
    unpack = "".join(f"{v}, " for v in (*variables, *(("weight",) if weighted else ())))
    source = f"def keys_of(rows):\n    return [({values}) for {unpack}in rows]\n"
    names: dict[str, Any] = {**runtime_names(bounded=is_bounded()), **scope.constants}
    exec(source, names)
    return names["keys_of"]
