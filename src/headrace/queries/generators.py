"""Lowering of Catalyst's generators: operators that make several rows of one."""

from __future__ import annotations

from typing import Any

from headrace.errors import UnsupportedQuery
from headrace.expr.check import check
from headrace.expr.tree import Call, Column, Literal
from headrace.expr.types import INT32, MapType
from headrace.queries.catalyst_plan import CatalystNode
from headrace.queries.expressions import typed_constant
from headrace.queries.relations import AnyStream, Planner, Relation, lowers, output_of, united


@lowers("Generate")
def _generate(node: CatalystNode, planner: Planner) -> Relation:
    generator = node.tree("generator")
    assert generator is not None
    below, outer = planner.relation(node.children[0]), bool(node.fields["outer"])
    made = {a.expr_id: planner.name(a.expr_id, a.fields["name"]) for a in node.trees("generatorOutput")}
    match generator.kind:
        case "Stack":
            rows = _stacked(generator, below, list(made.values()))
        case "Explode" | "PosExplode" | "Inline":
            rows = _exploded(generator, below, list(made.values()), planner, outer=outer)
        case "JsonTuple":
            rows = _json_fields(generator, below, list(made.values()), planner)
        case "ReplicateRows":
            rows = _replicated(generator, below, list(made.values()), planner)
        case kind:
            raise UnsupportedQuery(
                f"the query generates rows by {kind}, which has no incremental form yet", operator="Generate"
            )
    columns = {**below.columns, **made}
    return Relation(rows, {expr_id: columns[expr_id] for expr_id in output_of(node)})


def _stacked(generator: CatalystNode, below: Relation, columns: list[str]) -> AnyStream:
    """Lower `stack(n, ...)`: n rows of as many of the values as there are columns."""
    count, *values = generator.children
    width = len(columns)
    first = below.stream.select(
        **dict(zip(columns, below.scope.lower_all(tuple(values[:width])), strict=True))
    )
    types = [field.type for field in first.schema.fields]
    branches: list[Relation] = []
    for at in range(int(count.fields["value"])):
        cells = below.scope.lower_all(tuple(values[at * width : (at + 1) * width]))
        missing = tuple(typed_constant(None, type) for type in types[len(cells) :])
        rows = below.stream.with_columns(**dict(zip(columns, (*cells, *missing), strict=True)))
        branches.append(Relation(rows, dict(enumerate(rows.schema.names))))
    return united(branches)


def _exploded(
    generator: CatalystNode, below: Relation, columns: list[str], planner: Planner, *, outer: bool
) -> AnyStream:
    """Lower generators of a row for each element of a list, or its fields; a map is its entries."""
    values = below.scope.lower(generator.children[0])
    position = columns.pop(0) if generator.kind == "PosExplode" else None
    of_map = isinstance(check(values, below.stream.schema).type, MapType)
    if of_map:
        values = Call("map_entries", (values,))
    if not of_map and generator.kind != "Inline":
        (element,) = columns
        return below.stream.with_columns(**{element: values}).explode(element, position=position, outer=outer)
    element = planner.fresh("struct")
    listed = below.stream.with_columns(**{element: values})
    rows = listed.explode(element, position=position, outer=outer)
    struct: Any = rows.schema.fields[rows.schema.names.index(element)].type
    fields = {
        name: Column(element).field(field.name) for name, field in zip(columns, struct.fields, strict=True)
    }
    return rows.with_columns(**fields)


def _json_fields(generator: CatalystNode, below: Relation, columns: list[str], planner: Planner) -> AnyStream:
    """Lower `json_tuple`: the row with fields of a JSON text as columns."""
    struct = planner.fresh("fields")
    found = Call("json_tuple", below.scope.lower_all(generator.children))
    fields = {name: Column(struct).field(f"c{at}") for at, name in enumerate(columns)}
    return below.stream.with_columns(**{struct: found}).with_columns(**fields)


def _replicated(generator: CatalystNode, below: Relation, columns: list[str], planner: Planner) -> AnyStream:
    """Lower `ReplicateRows`: as many copies of a row as its first column says."""
    count, *values = below.scope.lower_all(generator.children)
    copies = planner.fresh("copies")
    named = dict(zip(columns, values, strict=True))
    times = Call("array_repeat", (Literal(1), Call("cast", (count,), (INT32,))))
    return below.stream.with_columns(**named, **{copies: times}).explode(copies)
