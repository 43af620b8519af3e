"""What a flow is, as plain data: to know it again, and to say how it changed.

State belongs to a flow of exactly this form. So the fingerprint counts what an
operator is and what it reads, and neither lines nor names that only people
read, nor parameters that state does not depend on (`ALTERABLE`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

from penstock.analysis.canonical import Json, parameters
from penstock.analysis.flow_diff import diff, essence
from penstock.analysis.names import user_name

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.graph.node import FlowGraph, Node


def describe(graph: FlowGraph) -> list[dict[str, Json]]:
    """One description per node, in order: what `json` can write, the same in every process.

    kind, parameters, schema and inputs (positions of other nodes) make the
    fingerprint; name and text are for people.
    """
    return [_describe(graph, node) for node in graph.nodes]


def fingerprint(graph: FlowGraph) -> str:
    """A hash that two flows share exactly if state of one may be used by the other."""
    return fingerprint_of(describe(graph))


def fingerprint_of(description: list[dict[str, Json]]) -> str:
    """The fingerprint of a flow that is there only as its description."""
    text = json.dumps([essence(node) for node in description], sort_keys=True, separators=(",", ":"))
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
    return {name: value for name, value in parameters(operator).items() if name not in alterable}


def _schema(schema: Schema) -> Json:
    return {
        "scalar": schema.scalar,
        "columns": [[f.name, str(f.type), f.nullable] for f in schema.fields],
    }


__all__ = ["describe", "diff", "fingerprint", "fingerprint_of"]
