"""Checks of requests against what they ask of, the same for every runtime of a replica."""

from __future__ import annotations

from penstock.compute.errors import BadMessage, BadPlan
from penstock.compute.plans import sinks_of
from penstock.compute.protocol.commands import Peek
from penstock.compute.protocol.dataflow import Dataflow, IndexExport
from penstock.expr.types import Schema
from penstock.flow.flow import Flow


def exported(flow: Flow, dataflow: Dataflow) -> dict[str, Schema]:
    """The schemas of the flow's sinks. Raises `BadPlan` for exports that do not fit them."""
    schemas = {sink.name: sink.schema for sink in sinks_of(flow)}
    for export in dataflow.exports:
        if export.sink not in schemas:
            raise BadPlan(
                f"{export.id} is to export the sink {export.sink!r}, and the flow has {sorted(schemas)}",
                part="exports",
            )
        if isinstance(export, IndexExport) and not set(export.key) <= set(schemas[export.sink].names):
            raise BadPlan(
                f"{export.id} is to be arranged by {', '.join(export.key)}, and its rows have "
                f"{', '.join(schemas[export.sink].names)}",
                part="exports",
            )
    return schemas


def check_keys(peek: Peek, width: int) -> None:
    """Raises `BadMessage` for keys that are not of `width` columns."""
    for key in peek.keys or ():
        if len(key) != width:
            raise BadMessage(
                f"a key of {len(key)} values, and {peek.target.id} is read by {width}",
                fix="give a value for each key column",
                field="keys",
            )
