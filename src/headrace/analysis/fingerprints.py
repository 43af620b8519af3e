"""Descriptions, fingerprints and identities of flows and operators."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis.canonical_data import Json, dataclass_parameters, without_display_parts
from headrace.analysis.column_liveness import live_columns
from headrace.analysis.flow_diff import fingerprinted_part, render_flow_diff
from headrace.analysis.node_labels import user_name
from headrace.expr.tree import Column
from headrace.graph.graph_algorithms import adjacency_lists, strongly_connected_components
from headrace.operators.select import Select
from headrace.operators.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node


def describe_nodes(graph: FlowGraph) -> list[dict[str, Json]]:
    """Describe each node, in order, as JSON data that is the same in every process.

    kind, parameters, schema and inputs (positions of other nodes) enter the fingerprint; name and text are
    for people.
    """
    return [_describe(graph, node) for node in graph.nodes]


def fingerprint(graph: FlowGraph) -> str:
    """Hash a flow. Flows with equal hashes can use each other's state."""
    return fingerprint_from_description(describe_nodes(graph))


def fingerprint_from_description(description: list[dict[str, Json]]) -> str:
    """Return the fingerprint of a flow given by its description."""
    text = json.dumps(
        [fingerprinted_part(node) for node in description], sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _describe(graph: FlowGraph, node: Node) -> dict[str, Json]:
    return {
        "kind": node.operator.kind,
        "name": user_name(graph, node),
        "text": node.operator.describe(),
        "parameters": _parameters(node.operator),
        "schema": _schema(node.schema),
        "inputs": list(node.inputs),
    }


def _parameters(operator: Any) -> dict[str, Json]:
    alterable = {f.name for f in dataclasses.fields(operator) if f.metadata.get("alterable")}
    return {name: value for name, value in dataclass_parameters(operator).items() if name not in alterable}


def _schema(schema: Schema) -> Json:
    return {
        "scalar": schema.scalar,
        "columns": [[f.name, str(f.type), f.nullable] for f in schema.fields],
    }


__all__ = ["describe_nodes", "fingerprint", "fingerprint_from_description", "render_flow_diff"]


Description: TypeAlias = "dict[str, Any]"
"""Description of a node, as made by `describe_nodes`."""


def add_live_columns(description: Sequence[Description], graph: FlowGraph) -> list[Description]:
    """Add to a description which columns matter, so that others may come and go.

    live:    columns of a node that its readers depend on, if its rows do not depend on the others; else None.
    narrows: columns of a node that only leaves out others; else None.
    """
    return [
        {
            **described,
            "live": _ordered(node.schema, live) if _is_independent(node) else None,
            "narrows": _narrowed(node),
        }
        for described, node, live in zip(description, graph.nodes, live_columns(graph), strict=True)
    ]


def _is_independent(node: Node) -> bool:
    """Return whether the columns of a node are computed without its other columns."""
    return isinstance(node.operator, Source) or node.operator.row_by_row


def _ordered(schema: Schema, columns: AbstractSet[str]) -> list[str]:
    return [name for name in schema.names if name in columns]


def _narrowed(node: Node) -> list[str] | None:
    if not isinstance(node.operator, Select) or node.schema.scalar:
        return None
    same = all(isinstance(value, Column) and value.name == name for name, value in node.operator.columns)
    return list(node.schema.names) if same else None


def node_identities(description: Sequence[Description]) -> list[str]:
    """Return the identity of each node, in order.

    Columns that nobody reads are no part of it, where the description tells which these are.
    """
    own = [_hash(_alone(node)) for node in description]
    found: list[str] = [""] * len(own)
    reads = [(source, at) for at, node in enumerate(description) for source in node["inputs"]]
    # In reverse topological order, so that readers come first.
    for group in reversed(strongly_connected_components(adjacency_lists(len(own), reads))):
        inside = set(group)
        if (source := _narrowed_input(description, group)) is not None:
            found[group[0]] = found[source]
            continue
        now = {at: own[at] for at in group}
        # In a loop, nodes depend on their readers: as many rounds as it has members distinguish them.
        for _ in group:
            now = {
                at: _hash([own[at], [now[i] if i in inside else found[i] for i in description[at]["inputs"]]])
                for at in group
            }
        for at, identity in now.items():
            found[at] = identity
    return found


def _narrowed_input(description: Sequence[Description], group: Sequence[int]) -> int | None:
    """Return the input of a node that leaves out just those columns of it that nobody reads."""
    node = description[group[0]]
    if len(group) > 1 or node.get("narrows") is None or group[0] in node["inputs"]:
        return None
    source: int = node["inputs"][0]
    read: Description = description[source]
    return source if read.get("live") == node["narrows"] else None


def _alone(node: Description) -> list[Any]:
    kind, parameters, schema = node["kind"], node["parameters"], node["schema"]
    if (live := node.get("live")) is not None:
        schema = {**schema, "columns": [column for column in schema["columns"] if column[0] in live]}
        if kind == Source.kind:
            parameters = {**parameters, "schema": schema}
    return without_display_parts([kind, parameters, schema])


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
