"""Source rows that can have contributed to a row of a sink, as far as keys and handed-on columns tell.

The columns of the row are followed backwards. Every column that an operator hands on (`Operator.lineage`)
keeps its value. Through an operator that brings rows with equal keys together (`Operator.placement`), the key
holds for all of its inputs: rows with other keys cannot meet the ones in question. What remains at a source
is a condition on its columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.tree import Column
from headrace.graph.operator_declarations import EqualRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import PortKey

Equalities: TypeAlias = "tuple[tuple[Expr, Any], ...]"
"""Expressions over a stream's columns with their values, all of which hold. Empty: any row."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """Condition on the rows of a source: at least one of the alternatives holds.

    alternatives: one per way from the source to the sink; None if some way leaves every row possible.
    """

    alternatives: tuple[Equalities, ...] | None

    def __str__(self) -> str:
        if self.alternatives is None:
            return ""
        texts = [" and ".join(f"{expr} = {value!r}" for expr, value in each) for each in self.alternatives]
        return ", or ".join(texts)


def restrict_sources(
    graph: FlowGraph, sink: str, row: Sequence[Any], *, keys_only: bool
) -> dict[str, Restriction]:
    """Find the condition on each source that reaches a sink, for a row of that sink.

    keys_only: where an operator brings rows together, follow only its key. Then the rows that meet the
               conditions are all that can influence the row. Otherwise a row that merely competes with it,
               such as one beaten to the top of its group, may be left out.
    """
    node = graph.nodes[graph.nodes[graph.sinks[sink]].inputs[0]]
    start = tuple((Column(name), value) for name, value in zip(node.schema.names, row, strict=True))
    found: dict[int, dict[str, Equalities]] = {}
    todo: list[tuple[int, Equalities]] = [(node.id, start)]
    while todo:
        at, equalities = todo.pop()
        seen = found.setdefault(at, {})
        key = str(sorted(f"{expr} = {value!r}" for expr, value in equalities))
        if key in seen or "[]" in seen:  # "[]": any row is possible already
            continue
        seen[key] = equalities
        todo += _through(graph, graph.nodes[at], equalities, keys_only)
    return {
        name: Restriction(None if "[]" in found[at] else tuple(found[at].values()))
        for name, at in graph.sources.items()
        if at in found
    }


def matched_keys(graph: FlowGraph) -> list[dict[str, tuple[Expr, ...]]]:
    """Find the keys by which operators match rows of several sources.

    Per operator: the key as expressions over the columns of each source from which all of it is handed on.
    """
    found: list[dict[str, tuple[Expr, ...]]] = []
    for node in graph.nodes:
        keys = node.operator.placement().keys
        if keys is None or len(node.inputs) < 2:
            continue
        schemas = [graph.nodes[source].schema for source in node.inputs]
        matched: dict[str, tuple[Expr, ...]] = {}
        for key, source, schema in zip(keys, node.inputs, schemas, strict=True):
            origins = [_origin(graph, source, part) for part in _key(key, schema)]
            names = {origin[0] for origin in origins if origin}
            if len(names) == 1 and all(origins):
                matched.setdefault(names.pop(), tuple(origin[1] for origin in origins if origin))
        if len(matched) > 1:
            found.append(matched)
    return found


def _origin(graph: FlowGraph, at: int, expr: Expr) -> tuple[str, Expr] | None:
    """Follow an expression over the columns of a node back to the source that hands all of them on."""
    node = graph.nodes[at]
    if not node.inputs:
        return next(((name, expr) for name, id_ in graph.sources.items() if id_ == at), None)
    schemas = [graph.nodes[source].schema for source in node.inputs]
    for source, lineage in zip(node.inputs, node.operator.lineage(schemas, node.schema), strict=True):
        if carried := _carried(((expr, None),), lineage):
            return _origin(graph, source, carried[0][0])
    return None


def _through(
    graph: FlowGraph, node: Node, equalities: Equalities, keys_only: bool
) -> list[tuple[int, Equalities]]:
    """Carry what holds of a node's output over to its inputs."""
    operator = node.operator
    schemas = [graph.nodes[source].schema for source in node.inputs]
    lineage = operator.lineage(schemas, node.schema) if schemas else ()
    carried = [_carried(equalities, known) for known in lineage]
    placement = operator.placement()
    by_key = [() for _ in carried]
    if placement.keys is not None:
        keys = [_key(key, schema) for key, schema in zip(placement.keys, schemas, strict=True)]
        by_key = _by_key(keys, carried)
    if keys_only and (placement.whole or placement.keys is not None):
        carried = by_key
    else:
        carried = [_both(own, key) for own, key in zip(carried, by_key, strict=True)]
    ports = zip(operator.ports(), node.inputs, carried, strict=True)
    return [(source, holds) for port, source, holds in ports if not port.completeness]


def _carried(equalities: Equalities, lineage: Any) -> Equalities:
    """Express equalities over the columns of a port, as far as the operator hands them on."""
    carried: list[tuple[Expr, Any]] = []
    for expr, value in equalities:
        if isinstance(expr, Column):
            if (source := lineage.get(expr.name)) is not None:
                carried.append((source, value))
        elif all(_keeps(lineage, column) for column in expr.walk() if isinstance(column, Column)):
            carried.append((expr, value))
    return tuple(carried)


def _both(one: Equalities, other: Equalities) -> Equalities:
    return (*one, *(each for each in other if not any(each[0].same(expr) for expr, _ in one)))


def _keeps(lineage: Any, column: Column) -> bool:
    source = lineage.get(column.name)
    return source is not None and source.same(column)


def _key(key: PortKey, schema: Schema) -> tuple[Expr, ...]:
    if isinstance(key, EqualRows):
        return tuple(Column(name) for name in schema.names)
    return key or ()


def _by_key(keys: list[tuple[Expr, ...]], carried: list[Equalities]) -> list[Equalities]:
    """Keep what holds of key expressions, for all ports."""
    known: dict[int, Any] = {}
    for key, equalities in zip(keys, carried, strict=True):
        for position, part in enumerate(key):
            for expr, value in equalities:
                if expr.same(part):
                    known[position] = value
    return [
        tuple((part, known[position]) for position, part in enumerate(key) if position in known)
        for key in keys
    ]
