"""Compilation of a route to a function from rows to shards, stable across processes and releases."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import singledispatch
from typing import Any, TypeAlias

import pyarrow as pa

from headrace.expr.check import check
from headrace.expr.code_emission import is_bounded
from headrace.expr.compile_python import Scope, dict_key_source, runtime_names
from headrace.expr.tree import Column
from headrace.expr.types import DataType, Rows, Schema, StrType, parts_of
from headrace.io.keyed_tables import build_bucketing
from headrace.spark.placing.row_placement import ByBucket, ByKey, Route, ToAll, ToOne
from headrace.state.codec import key_encoder

Divide: TypeAlias = Callable[[Rows], dict[int, Rows]]
DivideTable: TypeAlias = Callable[[pa.Table], dict[int, pa.Table]]


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
    keys_of, shards_of = _key_function(route, schema, weighted), _shards_of_keys(route, schema, shards)

    def divide(rows: Rows) -> dict[int, Rows]:
        parts: dict[int, Rows] = {}
        for row, shard in zip(rows, shards_of(keys_of(rows)), strict=True):
            part = parts.get(shard)
            if part is None:
                parts[shard] = [row]
            else:
                part.append(row)
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
    """Return a function that divides a table as `row_divider` divides its rows.

    None if keys are computed, or have no hash of columns.
    """
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
    if not names or len(names) < len(route.keys) or not all(map(_has_codes, _key_types(route, schema))):
        return None

    import polars as pl

    from headrace.arrangement.codes import codes_of

    def divide(table: pa.Table) -> dict[int, pa.Table]:
        if not len(table):
            return {}
        keys: Any = [pl.from_arrow(table.column(name)) for name in names]
        return _parts(table, _shards_of_codes(codes_of(keys, exact=False), shards))

    return divide


def _parts(table: pa.Table, at: Any) -> dict[int, pa.Table]:
    """Return the rows of each shard, in their order."""
    import numpy as np

    there = np.flatnonzero(np.bincount(at)).tolist()
    if len(there) == 1:
        return {there[0]: table}
    return {shard: table.filter(pa.array(at == shard)) for shard in there}


# --- shards of keys -----------------------------------------------------------------------------------

DIVISION = "codes"
"""Name of the function that divides keys among shards: where state is depends on it."""

_FEW = 64
"""Keys below which building columns costs more than hashing one by one."""

_LOW, _SHIFT = (1 << 64) - 1, 33
"""Mask of a code's bits, and how many of them are left out: the upper ones are mixed best."""


def _key_types(route: ByKey, schema: Schema) -> list[DataType]:
    return [check(expr, schema).type for expr in route.keys]


def _has_codes(type: DataType) -> bool:
    """Return whether columns of a type have the codes of `headrace.arrangement.codes`."""
    if parts_of(type):
        return False
    from headrace.expr.polars_columns import polars_type

    return polars_type(type) is not None


def _shards_of_codes(codes: Any, shards: int) -> Any:
    import numpy as np

    return ((codes.view(np.uint64) >> np.uint64(_SHIFT)) % np.uint64(shards)).astype(np.int64)


def _shards_of_keys(
    route: ByKey, schema: Schema, shards: int
) -> Callable[[list[tuple[Any, ...]]], Iterable[int]]:
    """Return a function from keys to their shards.

    Keys that columns hold are divided by the hash of columns, so that they need not become Python values.
    Others, such as lists, are divided by the checksum of their bytes.
    """
    types = _key_types(route, schema)
    if not all(map(_has_codes, types)):
        encode, crc32 = key_encoder(), zlib.crc32
        return lambda keys: [crc32(encode(key)) % shards for key in keys]
    import polars as pl

    from headrace.arrangement.codes import coder, codes_of
    from headrace.expr.polars_columns import dtype_of, to_series

    texts = [isinstance(type, StrType) for type in types]
    code_of = coder([pl.Binary() if x else dtype_of(type) for x, type in zip(texts, types)], exact=False)

    def one(key: tuple[Any, ...]) -> int:
        # Rows, unlike columns, may hold halves of characters.
        if True in texts:
            key = tuple(
                [
                    value.encode("utf-8", "surrogatepass") if is_text and value is not None else value
                    for is_text, value in zip(texts, key)
                ]
            )
        return ((code_of(key) & _LOW) >> _SHIFT) % shards

    def shards_of(keys: list[tuple[Any, ...]]) -> Iterable[int]:
        if len(keys) < _FEW or not types:
            return map(one, keys)
        try:
            columns = [to_series(type, [*values]) for type, values in zip(types, zip(*keys))]
        except (ValueError, TypeError, OverflowError, pl.exceptions.PolarsError):
            return map(one, keys)
        return _shards_of_codes(codes_of(columns, exact=False), shards).tolist()

    return shards_of


def _key_function(route: ByKey, schema: Schema, weighted: bool) -> Callable[[Rows], list[Any]]:
    variables = tuple(f"c{at}" for at in range(len(schema.fields)))
    scope = Scope(schema, variables, {})
    values = "".join(f"{dict_key_source(e, scope)}, " for e in route.keys)
    unpack = "".join(f"{v}, " for v in (*variables, *(("weight",) if weighted else ())))
    source = f"def keys_of(rows):\n    return [({values}) for {unpack}in rows]\n"
    names: dict[str, Any] = {**runtime_names(bounded=is_bounded()), **scope.constants}
    exec(source, names)
    return names["keys_of"]
