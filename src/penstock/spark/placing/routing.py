"""From rows to shards: a route compiled to a function, the same in every process, for ever."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import singledispatch
from typing import Any, TypeAlias

from penstock.expr.python import RUNTIME, Scope, key
from penstock.expr.types import Schema
from penstock.io.delivery.table_keys import bucketing
from penstock.spark.placing.placement import ByBucket, ByKey, Route, ToAll, ToOne
from penstock.state.codec import key_encoder

Rows: TypeAlias = list[tuple[Any, ...]]
Divide: TypeAlias = Callable[[Rows], dict[int, Rows]]


def divider(route: Route, schema: Schema, shards: int, *, weighted: bool) -> Divide:
    """A function that says which of the given rows go to which shard.

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
    buckets = bucketing("", schema, route.columns, route.buckets)

    def divide(rows: Rows) -> dict[int, Rows]:
        parts: dict[int, Rows] = {}
        for row in rows:
            parts.setdefault(buckets.bucket(row) % shards, []).append(row)
        return parts

    return divide


def _key_function(route: ByKey, schema: Schema, weighted: bool) -> Callable[[Rows], list[Any]]:
    variables = tuple(f"c{at}" for at in range(len(schema.fields)))
    scope = Scope(schema, variables, {})
    values = "".join(f"{key(e, scope)}, " for e in route.keys)
    unpack = "".join(f"{v}, " for v in (*variables, *(("weight",) if weighted else ())))
    source = f"def keys_of(rows):\n    return [({values}) for {unpack}in rows]\n"
    names: dict[str, Any] = {**RUNTIME, **scope.constants}
    exec(source, names)
    return names["keys_of"]
