"""Distribution of rows over shards: the spreads of rows, and the routes that send them.

Rows are *spread* by expressions over their columns: rows with equal values of these are on one shard. An
operator that needs equal keys together accepts any spread by columns that its keys determine. A route is
compiled to a function from rows to shards that is stable across processes and releases.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from headrace.expr.check import check
from headrace.expr.compile_python import CodeScope, dict_key_source, runtime_names
from headrace.expr.tree import Column, Expr, FunctionCall, columns_of
from headrace.expr.types import DataType, Rows, Schema, StrType, parts_of
from headrace.expr.typing_rules import is_bounded
from headrace.graph.operator_declarations import EqualRows
from headrace.io.keyed_tables import build_bucketing
from headrace.state.codec import key_encoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.node import FlowGraph, Node


# --- routes: how rows get to shards ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByKey:
    """Route to the shard given by the hash of `keys`."""

    keys: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"by {', '.join(map(str, self.keys))}"


@dataclass(frozen=True, slots=True)
class ByBucket:
    """Route to the shard that owns the row's table bucket."""

    columns: tuple[str, ...] | None
    buckets: int

    def __str__(self) -> str:
        return f"by bucket of {', '.join(self.columns) if self.columns else 'the row'}"


@dataclass(frozen=True, slots=True)
class Gather:
    """Route of all rows to the first shard."""

    def __str__(self) -> str:
        return "all to one"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Route of each row to every shard."""

    def __str__(self) -> str:
        return "to all"


Route: TypeAlias = ByKey | ByBucket | Gather | Broadcast


# --- spreads: where rows are ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowDistribution:
    """Distribution of rows over shards: per position, expressions of equal value that determine the shard.

    positions: None if nothing is known; empty if all rows are on the first shard.
    """

    positions: tuple[tuple[Expr, ...], ...] | None = None

    @property
    def anyhow(self) -> bool:
        return self.positions is None

    @property
    def on_one(self) -> bool:
        return self.positions == ()

    def route(self) -> Route | None:
        """Return the route that co-locates further rows with equal ones; None if the spread is unknown."""
        if self.positions is None:
            return None
        return ByKey(tuple(same[0] for same in self.positions)) if self.positions else Gather()

    def determined_by(self, keys: Sequence[Expr]) -> bool:
        """Return whether rows with equal `keys` are on the same shard."""
        if self.positions is None:
            return False
        columns = {k.name for k in keys if isinstance(k, Column)}
        return all(any(_is_function(expr, keys, columns) for expr in same) for same in self.positions)

    def renamed(self, columns: Iterable[tuple[str, Expr]]) -> RowDistribution:
        """Return the spread in terms of new columns; unknown if they no longer determine it."""
        if self.positions is None:
            return self
        pairs = tuple(columns)
        names = {expr.name: name for name, expr in reversed(pairs) if isinstance(expr, Column)}
        positions: list[tuple[Expr, ...]] = []
        for same in self.positions:
            new = [e for e in (_in_terms_of(expr, pairs, names) for expr in same) if e is not None]
            if not new:
                return ANYHOW
            positions.append(tuple(new))
        return RowDistribution(tuple(positions))


ANYHOW = RowDistribution()
ON_ONE = RowDistribution(())


def spread_by(*keys: Expr) -> RowDistribution:
    return RowDistribution(tuple((key,) for key in keys))


def _is_function(expr: Expr, keys: Sequence[Expr], columns: set[str]) -> bool:
    return columns.issuperset(columns_of(expr)) or any(expr.same(key) for key in keys)


def _in_terms_of(expr: Expr, pairs: Sequence[tuple[str, Expr]], names: dict[str, str]) -> Expr | None:
    for name, computed in pairs:
        if expr.same(computed):
            return Column(name)
    return with_names(expr, names) if names.keys() >= set(columns_of(expr)) else None


def with_names(expr: Expr, names: dict[str, str]) -> Expr:
    """Rename the columns of an expression."""
    if isinstance(expr, Column):
        return Column(names[expr.name])
    if isinstance(expr, FunctionCall):
        return replace(expr, arguments=tuple(with_names(a, names) for a in expr.arguments))
    return expr


# --- operators ----------------------------------------------------------------------------


RouteKeys: TypeAlias = tuple[Expr, ...]


def keys_of(node: Node, graph: FlowGraph) -> tuple[RouteKeys | None, ...] | None:
    """Return the keys that co-locate each input; None for an input that every shard needs in full.

    The result is None if rows may be anywhere, or if all of them must meet.
    """
    keys = node.operator.placement().keys
    if keys is None:
        return None
    pairs = zip(keys, node.inputs, strict=True)
    return tuple(
        whole_row_key(graph.nodes[source].schema) if isinstance(key, EqualRows) else key
        for key, source in pairs
    )


def whole_row_key(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(name) for name in schema.names)


def spread_after(node: Node, graph: FlowGraph, inputs: Sequence[RowDistribution]) -> RowDistribution:
    """Return the distribution of an operator's output, given those of its inputs."""
    if inputs and all(spread.on_one for spread in inputs):
        return ON_ONE
    schemas = [graph.nodes[source].schema for source in node.inputs]
    lineage = node.operator.lineage(schemas, node.schema)
    found = [spread.renamed(known.items()) for spread, known in zip(inputs, lineage, strict=True)]
    if not found:
        return ANYHOW
    return _of_either(found) if node.operator.is_union else _of_both(found)


def _of_either(spreads: Sequence[RowDistribution]) -> RowDistribution:
    """Return the distribution of a union: the one shared by all its inputs."""
    first, *others = (spread.positions for spread in spreads)
    same = first is not None and all(
        other is not None
        and len(other) == len(first)
        and all(any(x.same(y) for x in a for y in b) for a, b in zip(first, other, strict=True))
        for other in others
    )
    if not same or first is None:
        return ANYHOW
    return RowDistribution(
        tuple(
            tuple(x for x in a if all(any(x.same(y) for y in o[at]) for o in others if o is not None))
            for at, a in enumerate(first)
        )
    )


def _of_both(spreads: Sequence[RowDistribution]) -> RowDistribution:
    """Return the distribution of rows built from one row of each stream, all on the same shard."""
    first, *others = (spread.positions for spread in spreads)
    if first is None:
        return ANYHOW
    met = [other for other in others if other is not None and len(other) == len(first)]
    return RowDistribution(tuple(sum((other[at] for other in met), same) for at, same in enumerate(first)))


# --- joins of two spreads ------------------------------------------------------------------


def matching_keys(spread: RowDistribution, keys: Sequence[Expr]) -> list[set[int]] | None:
    """Return the indices of the keys equal to each position of the spread; None if a position has none."""
    if spread.positions is None:
        return None
    found = [
        {at for at, key in enumerate(keys) if any(key.same(e) for e in same)} for same in spread.positions
    ]
    return found if all(found) else None


def common_keys(one: list[set[int]] | None, other: list[set[int]] | None) -> list[int] | None:
    """Return the indices of keys by which both inputs are distributed alike; None if there are none."""
    if one is None or other is None or len(one) != len(other):
        return None
    both = [a & b for a, b in zip(one, other, strict=True)]
    return [min(b) for b in both] if all(both) else None


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
def _(route: Gather, schema: Schema, shards: int, weighted: bool) -> Divide:
    return lambda rows: {0: rows}


@_divider.register
def _(route: Broadcast, schema: Schema, shards: int, weighted: bool) -> Divide:
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
def _(route: Gather, schema: Schema, shards: int) -> DivideTable | None:
    return lambda table: {0: table}


@_table_divider.register
def _(route: Broadcast, schema: Schema, shards: int) -> DivideTable | None:
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
    """Return whether columns of a type have codes as defined in `headrace.arrangement.codes`."""
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
    scope = CodeScope(schema, variables, {})
    values = "".join(f"{dict_key_source(e, scope)}, " for e in route.keys)
    unpack = "".join(f"{v}, " for v in (*variables, *(("weight",) if weighted else ())))
    source = f"def keys_of(rows):\n    return [({values}) for {unpack}in rows]\n"
    names: dict[str, Any] = {**runtime_names(bounded=is_bounded()), **scope.constants}
    exec(source, names)
    return names["keys_of"]
